#include "replay.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "../../core/generator.h"
#include "../../core/profiler.h"
#include "../device/device_program.h"
#include "../passes/passes.h"
#include "../program/uses.h"

namespace tapir::inline v0::ir {

/// From the first element to the last one.
static int64_t elements_between(const Shape& shape, const Strides& strides) {
  int64_t last = 0;
  for (int64_t d = 0; d < shape.size(); ++d) last += (shape[d] - 1) * strides[d];
  return last + 1;
}

/// The passes in their order, each where the options ask for it. `budget`: of bytes that live within a call; 0: any number.
static std::vector<PassEffect> improve(Program& p, CompileOptions o, int64_t budget) {
  // In deterministic mode a replay has the bits of the calls: a run that was resumed replays other steps than one that was not.
  const auto deterministic = [](const Call& call) { return call.modes.deterministic; };
  if (device_of(p).is_cpu() && std::ranges::any_of(p.calls, deterministic))
    o.rows = o.fold_norm = o.pools = o.layouts = false;
  std::vector<PassEffect> effects = {{"recorded", int64_t(p.calls.size())}};
  const auto pass = [&](const char* name, bool on, void (*f)(Program&)) {
    if (!on) return;
    f(p);
    effects.push_back({name, int64_t(p.calls.size())});
  };
  pass("constants", o.constants, take_constants);
  pass("common_calls", o.common_calls, remove_common_calls);
  pass("dead_code", o.dead_code, remove_dead_code);
  pass("casts", o.casts, merge_casts);
  pass("norm_sums", o.norms && o.fuse, join_norm_sums);
  pass("widen", o.fuse, widen_products);
  pass("layouts", o.layouts, fold_layouts);
  pass("fold_norm", o.fold_norm, fold_norms);
  pass("epilogues", o.fuse, join_epilogues);
  pass("pools", o.pools, sink_relus);
  pass("norms", o.norms, join_norms);
  pass("norm_products", o.norms && o.fuse, join_norm_products);
  pass("put_attention", o.fuse, join_put_attention);
  const bool fuses = o.fuse && backend(device_of(p)).fused;
  pass("fuse", fuses && !o.rows, [](Program& program) { fuse(program); });
  pass("fuse", fuses && o.rows, [](Program& program) { fuse(program, FuseRows::Worthwhile); });
  pass("order", o.order, order_calls);
  if (budget > 0) recompute(p, budget), effects.push_back({"recompute", int64_t(p.calls.size())});
  pass("reuse", o.reuse, reuse_operands);
  pass("copies", o.casts && budget == 0, join_copies);       // all of them are in memory at once
  pass("prepare", o.prepare && budget == 0, prepare_calls);  // what it keeps is memory
  return effects;
}

Replay::Replay(Recorded recorded, std::span<const Tensor> arguments, std::span<const Tensor> results,
               std::unique_ptr<detail::CompileCall::Frame> frame, const CompileOptions& options, Callers callers)
    : r_(std::move(recorded)), frame_(std::move(frame)), lodgers_(std::move(callers.lodgers)),
      autotune_(options.max_autotune), waits_(!options.background) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  Program& p = r_.program;
  peak_before_ = recorded_peak(p);
  for (size_t i = 0; i < p.blocks.size(); ++i) {
    Storage* root = r_.roots[i].get();
    if (!root) continue;
    const char* at = static_cast<const char*>(root->data);
    ranges_.push_back({at, at + root->bytes, p.blocks[i].written});
  }
  if (const double b = options.memory_budget; b > 0) budget_ = int64_t(b <= 1 ? b * double(peak_before_) : b);
  int64_t handed_out = 0;
  for (size_t i = 0; i < p.blocks.size(); ++i)
    if (r_.moves[i] && p.blocks[i].kind != Block::Kind::Outside) handed_out += p.blocks[i].bytes;
  improve_for_device(options, budget_ ? std::max<int64_t>(budget_ - handed_out, 1) : 0);
  find_prepared();
  find_staying(results.size(), callers);
  make_schedule();
  seconds_ = std::chrono::duration<double>(Clock::now() - start).count();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const View& v = p.inputs[i];
    written_argument_.push_back(block_of(v) >= 0 && p.blocks[size_t(v.block)].written);
    if (block_of(v) < 0 ||
        std::any_of(bound_.begin(), bound_.end(), [&](const Bound& b) { return b.block == v.block; }))
      continue;  // the same tensor twice
    Bound& b = bound_.emplace_back(Bound{i, v.block, v.offset * size_of(v.dtype)});
    const int64_t bytes = elements_between(v.shape, v.strides) * size_of(v.dtype);
    if (i < callers.arguments && !device_.is_cpu() && v.device == device_ && !written_argument_.back() &&
        bytes <= 2 * numel_of(v.shape) * size_of(v.dtype))
      b.copied = bytes;
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const size_t pools = pools_.size();
    add_result(results[i], p.outputs[i], arguments);
    if (pools_.size() > pools) {
      pools_.back().callers = i < callers.results;
      pools_.back().inside = stays_[size_t(pools_.back().block)];
    }
  }
  for (size_t i = 0; i < r_.grads.size(); ++i) {
    const View& end = r_.grads[i].end;
    Slot& slot = slots_.emplace_back();
    while (block_of(r_.grads[slot.first].start) != block_of(r_.grads[i].start)) ++slot.first;
    if (block_of(end) < 0 || p.blocks[size_t(end.block)].kind == Block::Kind::Outside) continue;
    slot.pool = pool_of(end.block);
    pools_[size_t(slot.pool)].inside = stays_[size_t(end.block)];
    slot.contiguous = is_contiguous(end.shape, end.strides);
    pools_[size_t(slot.pool)].slots.push_back(i);
  }
  for (const Bound& b : bound_) {  // kernels are asked for as an argument lies, or its copy will
    const Tensor& x = arguments[b.argument];
    const bool stays = x.impl().storage && !(b.copied && fixed_places());
    schedule_->bind(b.block, (stays ? static_cast<char*>(x.data_ptr()) : Schedule::anywhere()) - b.bytes);
  }
  ready_ = schedule_->prepare(Prepare::Ask);
}

/// Storages that prepared calls read.
void Replay::find_prepared() {
  const Program& p = r_.program;
  std::vector<bool> read(p.blocks.size());
  for (const Call& call : std::span(p.calls).first(size_t(p.prepared)))
    each_view(call, [&](const View& v, Access) { read[size_t(v.block)] = true; });
  for (size_t i = 0; i < r_.storages.size(); ++i)
    if (read[size_t(r_.storages[i].block)]) sources_.push_back(i);
}
/// Their sum, plus 1: they only rise.
uint64_t Replay::versions_of_sources() const {
  uint64_t sum = 1;
  for (const size_t i : sources_) {
    const Recorded::Seen& s = r_.storages[i];
    sum += s.storage->version.load(std::memory_order_relaxed);
    if (Storage* root = r_.roots[size_t(s.block)].get()) sum += root->version.load(std::memory_order_relaxed);
  }
  return sum;
}

/// Passes. On a device random numbers count from memory.
void Replay::improve_for_device(const CompileOptions& options, int64_t budget) {
  Program& p = r_.program;
  device_ = device_of(p);
  counted_ = device_.is_cpu() ? -1 : count_from_memory(p, r_.offset);
  if (counted_ >= 0) position_ = allocate_storage(sizeof(int64_t), device_);
  effects_ = improve(p, options, budget);
  r_.moves.resize(p.blocks.size()), r_.roots.resize(p.blocks.size());  // passes may add blocks
}

/// Gradients and what is kept for backward, where they are made within the program and are no results of the caller's.
void Replay::find_staying(size_t results, const Callers& callers) {
  const Program& p = r_.program;
  hands_over_ = callers.results < results && r_.grads.empty() && device_.is_cpu();
  const size_t callers_own = hands_over_ ? callers.results : results;
  std::vector<bool> never(p.blocks.size());
  for (const View& v : std::span(p.outputs).first(callers_own))
    if (v.in_memory()) never[size_t(v.block)] = true;
  for (const Recorded::GradSlot& g : r_.grads)
    if (g.relevant && block_of(g.end) >= 0) never[size_t(g.end.block)] = true;
  const std::vector<Life> lives = lives_of(p);
  stays_.assign(p.blocks.size(), false);
  const auto stay = [&](const View& v) {
    if (const int i = block_of(v); i >= 0)
      stays_[size_t(i)] = !never[size_t(i)] && p.blocks[size_t(i)].kind == Block::Kind::Temporary &&
                          p.blocks[size_t(i)].device == device_ && lives[size_t(i)].last >= 0;
  };
  for (const Recorded::GradSlot& g : r_.grads) stay(g.end);
  for (const View& v : std::span(p.outputs).subspan(callers_own, results - callers_own)) stay(v);
}

StoragePtr Replay::hand_over() {
  if (!hands_over_) return {};
  StoragePtr arena = schedule_->arena();
  schedule_->release_arena();
  for (Pool& pool : pools_)
    if (pool.inside) pool.set({});
  return arena;
}

std::vector<Lodger> Replay::lodgers(std::span<const int> blocks) const {
  std::vector<Lodger> out;
  const auto& outputs = r_.program.outputs;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const int block = block_of(outputs[results_.size() - blocks.size() + i]);
    if (block >= 0 && blocks[i] >= 0 && stays_[size_t(block)])
      out.push_back(
          {blocks[i], schedule_->plan().offset[size_t(block)], placed_bytes(r_.program.blocks[size_t(block)])});
  }
  return out;
}

void Replay::make_schedule() {
  Program& p = r_.program;
  std::vector<bool> moves = r_.moves;
  for (size_t i = 0; i < p.blocks.size(); ++i) {  // a schedule wants to know where they lie
    if (stays_[i]) moves[i] = false;
    if (Storage* root = r_.roots[i].get()) p.blocks[i].memory = StoragePtr::share(root);
  }
  if (counted_ >= 0) p.blocks[size_t(counted_)].memory = position_;
  schedule_ =
      std::make_unique<Schedule>(p, Placement{std::move(moves), stays_, lodgers_}, device_.is_cpu() ? r_.offset : 0);
  for (Block& b : p.blocks) b.memory = {};
  if (device_.is_cpu()) return;
  auto run = std::make_unique<DeviceRun>(device_, position_, r_.numbers);
  for (const Call& call : p.calls)
    if (call.custom && call.custom->is_capturable()) run->accompany(call.custom);
    else if (call.custom) run->leave_graphs(label_of(call) + " is host code");
  schedule_->run_on(std::move(run));
}

int Replay::pool_of(int block) {
  for (size_t i = 0; i < pools_.size(); ++i)
    if (pools_[i].block == block) return int(i);
  pools_.push_back({.block = block});
  const Block& b = r_.program.blocks[size_t(block)];
  if (b.kind == Block::Kind::Constant) pools_.back().values = &b.values;
  return int(pools_.size()) - 1;
}

void Replay::add_result(const Tensor& y, const View& v, std::span<const Tensor> arguments) {
  Result& out = results_.emplace_back();
  if (!y.defined()) return;
  out.view = v, out.contiguous = numel_of(v.shape) == 0 || is_contiguous(v.shape, v.strides);
  out.kind = Result::Made;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].is_same(y)) return void((out.kind = Result::Argument, out.argument = i));
    if (v.block < 0 || block_of(r_.program.inputs[i]) != v.block || out.kind == Result::OfArgument) continue;
    out.kind = Result::OfArgument, out.argument = i;
    out.view.offset -= r_.program.inputs[i].offset * size_of(r_.program.inputs[i].dtype) / size_of(v.dtype);
  }
  if (v.block < 0 || out.kind == Result::OfArgument) return;
  for (size_t i = 0; i < r_.grads.size(); ++i)
    if (block_of(r_.grads[i].start) == v.block) return void((out.kind = Result::OfGradient, out.argument = i));
  if (r_.program.blocks[size_t(v.block)].kind != Block::Kind::Outside) {
    out.argument = size_t(pool_of(v.block));
  } else if (y.is_leaf() && y.requires_grad()) out.kind = Result::Leaf, out.leaf = WeakTensor(y);
  else {
    out.kind = Result::OfOutside, out.storage = detail::Weak(y.impl().storage.get());
    out.view.offset = y.storage_offset();
  }
}

// ---- is it the same as it was? ----

Fit Replay::fit(const char*& why, Held& held) const {
  if (const Fit fit = r_.fit(why, held); fit != Fit::Same) return fit;
  for (const Result& y : results_) {
    if (y.kind == Result::Leaf) held.leaves.push_back(y.leaf.lock());
    if (y.kind == Result::OfOutside && y.storage.lock()) held.storages.emplace_back(y.storage.get());
    else if (y.kind == Result::OfOutside || (y.kind == Result::Leaf && !held.leaves.back().defined()))
      return why = "a tensor from outside that is a result was replaced", Fit::Changed;
  }
  for (size_t i = 0; i < r_.grads.size(); ++i) {
    const WeakTensor& outside = r_.grads[i].outside;
    if (!outside.empty() && !held.leaves.emplace_back(outside.lock()).defined())
      return why = "a tensor from outside that becomes a gradient was replaced", Fit::Changed;
    if (const Fit fit = fit_gradient(i, why); fit != Fit::Same) return fit;
  }
  return Fit::Same;
}

/// The gradient that a slot begins with.
Fit Replay::fit_gradient(size_t slot, const char*& why) const {
  const Recorded::GradSlot& g = r_.grads[slot];
  const auto differs = [&](const char* what) { return why = what, Fit::OtherStart; };
  if (!g.relevant) return Fit::Same;
  const Tensor& now = g.leaf->grad();
  if (g.had && (!(now.shape() == g.start.shape) || !(now.strides() == g.start.strides) || now.dtype() != g.start.dtype))
    return differs("a gradient lies otherwise in memory");
  if (now.defined() && now.impl().refs.load(std::memory_order_acquire) > 1)  // somebody else's too
    for (size_t k = 0; k < slot; ++k)
      if (slots_[k].first != slots_[slot].first && r_.grads[k].leaf->grad().is_same(now))
        return differs("two parameters share one gradient");
  if (block_of(g.start) >= 0 && start_of(slot) != start_of(slots_[slot].first))
    return differs("gradients no longer share memory");
  return Fit::Same;
}

/// Where the block begins that a slot's gradient lies in.
const char* Replay::start_of(size_t slot) const {
  const Recorded::GradSlot& g = r_.grads[slot];
  return static_cast<const char*>(g.leaf->grad().data_ptr()) - g.start.offset * size_of(g.start.dtype);
}

/// Writes must not reach what the program takes for other memory.
bool Replay::apart(std::span<const Tensor> arguments) const {
  const auto range = [](const Tensor& x) {
    const char* at = static_cast<const char*>(x.data_ptr());
    return Range{at, at + elements_between(x.shape(), x.strides()) * size_of(x.dtype()), false};
  };
  const auto meet = [](const Range& a, const Range& b) { return a.begin < b.end && b.begin < a.end; };
  for (const Bound& b : bound_) {
    const Range x = range(arguments[b.argument]);
    const bool written = written_argument_[b.argument];
    for (const Range& r : ranges_)
      if ((written || r.written) && meet(x, r)) return false;
    for (const Bound& c : bound_)
      if (written && c.block != b.block && meet(x, range(arguments[c.argument]))) return false;
    for (const Recorded::GradSlot& g : r_.grads) {  // that are there at the beginning, in blocks that move
      const int block = block_of(g.start);
      if (block >= 0 && block != b.block && (written || r_.program.blocks[size_t(block)].written) &&
          meet(x, range(g.leaf->grad())))
        return false;
    }
  }
  const auto shared = [&](size_t i) {  // a gradient that is there, in memory that others may have too
    if (block_of(r_.grads[i].start) < 0) return false;
    Storage* const s = r_.grads[i].leaf->grad().impl().storage.get();
    return s->refs.load(std::memory_order_relaxed) > 1 || root_of(s) != s;
  };
  for (size_t i = 0; i < r_.grads.size(); ++i) {
    if (!shared(i)) continue;
    const int block = block_of(r_.grads[i].start);
    const Range x = range(r_.grads[i].leaf->grad());
    const bool written = r_.program.blocks[size_t(block)].written;
    for (const Range& r : ranges_)
      if ((written || r.written) && meet(x, r)) return false;
    for (size_t k = 0; k < i; ++k) {
      const int other = block_of(r_.grads[k].start);
      if (other >= 0 && other != block && (written || r_.program.blocks[size_t(other)].written) &&
          meet(x, range(r_.grads[k].leaf->grad())))
        return false;
    }
  }
  return true;
}

// ---- a run ----

/// Is it the tensor that a run made, or one like it? Who holds a gradient may change its shape, or have it recorded.
static bool is_as_made(const Tensor& g, const View& v) {
  return g.shape() == v.shape && g.strides() == v.strides && g.storage_offset() == v.offset && g.dtype() == v.dtype &&
         g.device() == v.device && !g.requires_grad();
}

/// Does nobody hold the pool's memory but this program, and the leaves whose gradients it set?
bool Replay::reusable(const Pool& pool) const {
  if (!pool.storage) return false;
  uint32_t gradients = 0;
  for (size_t i : pool.slots) {
    const WeakTensor& current = slots_[i].current;
    if (!current.alive()) continue;
    if (r_.grads[i].relevant || !r_.grads[i].leaf->grad().is_same(*current) || current->impl().refs.load() != 1 ||
        !is_as_made(*current, r_.grads[i].end))
      return false;
    gradients += current->impl().storage.get() == pool.storage.get();
  }
  return pool.storage->refs.load(std::memory_order_acquire) == 1 + gradients;
}

/// A call that was checked left gradients where the program would make them: else a replay had both at once.
void Replay::keep_gradients() {
  for (Pool& pool : pools_) {
    if (pool.slots.size() != 1 || pool.inside) continue;
    const size_t i = pool.slots[0];
    const View& end = r_.grads[i].end;
    const Tensor& g = r_.grads[i].leaf->grad();
    if (r_.grads[i].relevant || !g.defined() || g.impl().refs.load() != 1 || !is_as_made(g, end)) continue;
    const StoragePtr& memory = g.impl().storage;
    if (memory->refs.load() != 1 || memory->read_only || root_of(memory.get()) != memory.get() ||
        memory->bytes != r_.program.blocks[size_t(pool.block)].bytes)
      continue;
    slots_[i].current = WeakTensor(g);
    pool.set(memory);
  }
}

/// Where somebody holds a gradient of the arena, that is his now, and from here on gradients lie apart.
void Replay::leave_kept_arena() {
  const auto kept = [&](const Pool& pool) { return pool.inside && pool.storage && !reusable(pool); };
  if (std::none_of(pools_.begin(), pools_.end(), kept)) return;
  check_internal(!hands_over_, "[compile] expected no gradients beside results that are handed over");
  stays_.assign(stays_.size(), false);
  for (Pool& pool : pools_)
    if (std::exchange(pool.inside, false)) pool.set({});
  prepared_at_ = 0;
  make_schedule();
}

void Replay::make_room() {
  leave_kept_arena();
  for (size_t i = 0; i < slots_.size(); ++i) {  // gradients that lie elsewhere: the run will not need them
    const Slot& slot = slots_[i];
    const WeakTensor& leaf = r_.grads[i].leaf;
    if (slot.pool < 0 || !pools_[size_t(slot.pool)].inside) continue;
    const bool own = pools_[size_t(slot.pool)].storage && slot.current.alive() && leaf->grad().is_same(*slot.current);
    if (!own) leaf->set_grad({});
  }
  schedule_->take_arena();
}

/// Do a graph's kernels go on using the addresses that they have?
bool Replay::fixed_places() const { return schedule_->device_run() && schedule_->device_run()->wants_fixed_places(); }

void Replay::copy_within_device(void* to, const void* from, int64_t bytes) const {
  backend(device_).copy_bytes(to, device_, from, device_, bytes, current_stream(device_));
}

void Replay::bind_arguments(std::span<const Tensor> arguments) {
  for (Bound& b : bound_) {
    char* at = static_cast<char*>(arguments[b.argument].data_ptr());
    if (b.copied && fixed_places()) {
      if (!b.place) b.place = allocate_storage(b.copied, device_);
      copy_within_device(b.place->data, at, b.copied);
      at = static_cast<char*>(b.place->data);
    }
    schedule_->bind(b.block, at - b.bytes);
  }
}

/// A result that is not a gradient too stays the program's, and the caller gets a copy.
bool Replay::is_copied_out(const Pool& pool) const {
  return pool.callers && pool.slots.empty() && fixed_places() &&
         r_.program.blocks[size_t(pool.block)].device == device_;
}

void Replay::copy_results() {
  for (Pool& pool : pools_) {
    pool.copy = pool.storage;
    if (!is_copied_out(pool)) continue;
    pool.copy = allocate_storage(pool.storage->bytes, device_);
    if (pool.storage->bytes) copy_within_device(pool.copy->data, pool.storage->data, pool.storage->bytes);
  }
}

/// A part of the arena, for others a block like any other: programs that read two gradients find two blocks.
static StoragePtr part_of(const StoragePtr& arena, int64_t at, int64_t bytes) {
  return adopt_storage(
      static_cast<char*>(arena->data) + at, bytes, arena->device,
      [](Storage& s) { delete static_cast<StoragePtr*>(s.context); }, new StoragePtr(arena));
}

void Replay::bind_made() {
  for (Pool& pool : pools_) {
    pool.copy = {};
    if (pool.inside) {
      const int64_t at = schedule_->plan().offset[size_t(pool.block)],
                    bytes = r_.program.blocks[size_t(pool.block)].bytes;
      if (!pool.storage) pool.set(part_of(schedule_->arena(), at, bytes));
      continue;
    }
    if (is_copied_out(pool) ? !pool.storage : !reusable(pool)) {
      const Block& b = r_.program.blocks[size_t(pool.block)];
      pool.set(allocate_storage(b.bytes, b.device));
    } else if (pool.slots.empty()) {  // another tensor lies there now
      pool.storage->handles.fetch_add(1, std::memory_order_relaxed);
    }
    if (pool.values) std::memcpy(pool.storage->data, pool.values->data(), pool.values->size());
    schedule_->bind(pool.block, pool.storage->data);
  }
}

Tensor Replay::made(const View& v, bool contiguous, const StoragePtr& storage, int64_t offset) const {
  Tensor t(new TensorImpl);
  TensorImpl& p = t.impl();
  p.dtype = v.dtype, p.device = v.device, p.storage = storage, p.offset = offset;
  p.sizes = v.shape, p.strides = v.strides, p.numel = numel_of(v.shape), p.contiguous = contiguous;
  p.inference = modes.inference;
  return t;
}

void Replay::set_gradients() {
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Recorded::GradSlot& g = r_.grads[i];
    Slot& slot = slots_[i];
    if (block_of(g.end) < 0)  // without elements, or none at all
      g.leaf->set_grad(g.end.kind == View::Kind::Memory ? made(g.end, true, allocate_storage(0, g.end.device), 0)
                                                        : Tensor());
    if (!g.outside.empty() && !g.leaf->grad().is_same(*g.outside)) g.leaf->set_grad(*g.outside);
    if (slot.pool < 0) continue;
    const StoragePtr& memory = pools_[size_t(slot.pool)].storage;
    const Tensor& now = g.leaf->grad();
    if (slot.current.alive() && now.is_same(*slot.current) && now.impl().storage.get() == memory.get()) continue;
    const Tensor gradient = made(g.end, slot.contiguous, memory, g.end.offset);
    g.leaf->set_grad(gradient);
    slot.current = WeakTensor(gradient);
  }
}

void Replay::raise_versions(std::span<const Tensor> arguments) {
  const auto raise = [](Storage& s, uint32_t by) { s.version.fetch_add(by, std::memory_order_relaxed); };
  for (const Recorded::Seen& s : r_.storages)
    if (r_.program.blocks[size_t(s.block)].written) raise(*s.storage.get(), std::max(s.raised, 1u));
  for (size_t i = 0; i < arguments.size(); ++i)
    if (written_argument_[i]) raise(*arguments[i].impl().storage, std::max(r_.raised_input[i], 1u));
  for (const Recorded::GradSlot& g : r_.grads)
    if (g.relevant && g.had && block_of(g.start) >= 0 && r_.program.blocks[size_t(g.start.block)].written)
      raise(*g.leaf->grad().impl().storage, 1);
}

/// After an exception: what lies in the places of the gradients that a run makes is none.
void Replay::drop_gradients() {
  for (size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].pool >= 0 && !r_.grads[i].relevant) r_.grads[i].leaf->set_grad({});
}

void Replay::run(std::span<const Tensor> arguments, std::vector<Tensor>& results, const RandomState* from) {
  make_room();
  const profiler::Range range(profiler::Kind::User, "compiled");
  if (schedule_->device_run() && schedule_->device_run()->enter_stream()) {  // memory belongs to streams
    for (Bound& b : bound_) b.place = {};
    release_pools();
  }
  bind_arguments(arguments);
  for (size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].first == i && block_of(r_.grads[i].start) >= 0)
      schedule_->bind(r_.grads[i].start.block, const_cast<char*>(start_of(i)));
  bind_made();
  Generator& generator = default_generator();
  const RandomState random = from ? *from : RandomState{generator.seed(), generator.offset()};
  if (!from) generator.set_state(random.seed, random.offset + r_.numbers);
  raise_versions(arguments);
  for (Result& y : results_)
    if (y.kind == Result::OfGradient) y.gradient = r_.grads[y.argument].leaf->grad();
  const uint64_t sources = versions_of_sources();
  const ScopedMode autotune(modes.autotune, autotune_);
  try {
    schedule_->run(random.seed, random.offset, std::exchange(prepared_at_, 0) == sources);
  } catch (...) {
    drop_gradients();
    throw;
  }
  prepared_at_ = sources;  // not where the run threw
  set_gradients();
  copy_results();
  results.clear();
  for (Result& y : results_) {
    const View& v = y.view;
    switch (y.kind) {
      case Result::Undefined: results.emplace_back(); break;
      case Result::Argument: results.push_back(arguments[y.argument]); break;
      case Result::Leaf: results.push_back(*y.leaf); break;
      case Result::OfOutside:
        results.push_back(made(v, y.contiguous, StoragePtr::share(y.storage.get()), v.offset));
        break;
      case Result::OfArgument: {
        const Tensor& x = arguments[y.argument];
        const int64_t at = x.storage_offset() * size_of(x.dtype()) / size_of(v.dtype) + v.offset;
        results.push_back(made(v, y.contiguous, x.impl().storage, at));
        break;
      }
      case Result::OfGradient: {
        const Tensor g = std::move(y.gradient);
        const View& start = r_.grads[y.argument].start;
        const int64_t first = g.storage_offset() * size_of(g.dtype()) - start.offset * size_of(start.dtype);
        results.push_back(made(v, y.contiguous, g.impl().storage, first / size_of(v.dtype) + v.offset));
        break;
      }
      case Result::Made:
        results.push_back(
            made(v, y.contiguous, v.block < 0 ? allocate_storage(0, v.device) : pools_[y.argument].copy, v.offset));
    }
  }
  for (Pool& pool : pools_) pool.copy = {};
  ++replays_;
}

void Replay::release_memory() {
  schedule_->release_arena();
  release_pools();
}

CompileStats Replay::stats() const {
  CompileStats s{.recorded_calls = effects_.front().calls, .calls = int64_t(schedule_->size())};
  s.recorded_peak = peak_before_, s.arena = lodgers_.empty() ? schedule_->arena_bytes() : 0, s.seconds = seconds_;
  for (const Block& b : r_.program.blocks) s.arena += b.kept ? b.bytes : 0;
  for (const Pool& pool : pools_) s.results += pool.inside ? 0 : r_.program.blocks[size_t(pool.block)].bytes;
  return s;
}

}  // namespace tapir::inline v0::ir
