#include "fsdp.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "../autograd/final_callback.h"
#include "../core/modes.h"
#include "../functional/checkpoint.h"
#include "../ops/ops.h"
#include "fsdp_state.h"
#include "once.h"

namespace tapir::inline v0::distributed {

namespace {

/// The tensor as it is between steps: of no elements, so that nobody reads memory that is not there.
void make_empty(ShardedParam& p, DType dtype) {
  TensorImpl& t = p.tensor.impl();
  t.dtype = dtype, t.numel = 0, t.offset = 0;
  t.sizes = Shape({0}), t.strides = Strides({1}), t.contiguous = true;
  p.storage->data = nullptr;
}
void make_whole(ShardedParam& p, const Tensor& row) {
  TensorImpl& t = p.tensor.impl();
  t.dtype = row.dtype(), t.numel = p.numel;
  t.sizes = p.shape, t.strides = contiguous_strides(p.shape), t.contiguous = true;
  p.storage->data = static_cast<char*>(row.data_ptr()) + p.offset * size_of(row.dtype());
  p.storage->bytes = p.numel * size_of(row.dtype());
}

}  // namespace

void ShardedParameters::State::add_unit(nn::Module* block, std::vector<std::pair<std::string, Tensor>> params) {
  ShardedUnit& u = units.emplace_back();
  u.block = block;
  int64_t at = 0;
  for (auto& [name, t] : params) {
    const Tensor& first = params[0].second;
    check(t.dtype() == first.dtype() && t.device() == first.device(),
          "[{}] expected the parameters of a block to have one dtype and device, got {} for {} and {} for {}",
          kFsdpName, first, params[0].first, t, name);
    ShardedParam& p = u.params.emplace_back();
    p.name = name, p.tensor = t, p.shape = t.shape(), p.offset = at, p.numel = t.numel();
    at += p.numel;
  }
  u.chunk = (at + group.size() - 1) / group.size();
  if (u.params.empty()) return;
  shard(u);
}

/// Keeps this rank's chunk, and lets the rest go.
void ShardedParameters::State::shard(ShardedUnit& u) {
  const Tensor& first = u.params[0].tensor;
  const DType dtype = first.dtype();
  u.mine = zeros({u.chunk}, {.dtype = dtype, .device = first.device()});
  const int64_t begin = u.chunk * group.rank(), end = begin + u.chunk;
  for (ShardedParam& p : u.params) {
    const int64_t low = std::max(begin, p.offset), high = std::min(end, p.offset + p.numel);
    if (low < high)
      u.mine.narrow(0, low - begin, high - low)
          .copy_(p.tensor.detach().contiguous().view({p.numel}).narrow(0, low - p.offset, high - low));
    p.storage = adopt_storage(nullptr, 0, first.device(), nullptr, nullptr);
    p.tensor.impl().set_storage(p.storage);
    p.tensor.set_grad({});
    make_empty(p, dtype);
  }
  u.mine.requires_grad_();
}

void ShardedParameters::State::add_hooks(size_t i) {
  ShardedUnit& u = units[i];
  for (size_t k = 0; k < u.params.size(); ++k)
    u.params[k].hook =
        u.params[k].tensor.register_post_accumulate_grad_hook([this, i, k](const Tensor&) { on_gradient(i, k); });
  if (!u.block) return;
  using Tensors = std::vector<Tensor>;
  u.hooks.push_back(u.block->register_forward_pre_hook([this, i](nn::Module&, Tensors&) { before_block(i); }));
  u.hooks.push_back(u.block->register_forward_hook([this, i](nn::Module&, Tensors&, Tensors&) { after_block(i); }));
  u.hooks.push_back(
      u.block->register_full_backward_pre_hook([this, i](nn::Module&, Tensors&) { before_block_backward(i); }));
}

void ShardedParameters::State::start_gather(ShardedUnit& u) {
  if (u.gathered || u.row.defined() || u.params.empty()) return;
  NoGrad guard;
  u.sent = tapir::to(u.mine.detach(), dtype_of(u));
  u.row = empty({u.chunk * group.size()}, {.dtype = u.sent.dtype(), .device = u.mine.device()});
  u.gathering = group.all_gather(u.row, u.sent, true);
}

void ShardedParameters::State::gather(ShardedUnit& u) {
  if (u.gathered) return;
  start_gather(u);
  u.gathering.wait();
  u.gathering = Work(), u.sent = Tensor();
  // After a step the values are others: what a graph of before has saved must not pass for them.
  const bool fresh = u.mine.defined() && std::exchange(u.version, u.mine.version()) != u.mine.version();
  for (ShardedParam& p : u.params) {
    make_whole(p, u.row);
    if (fresh) p.storage->version.fetch_add(1);
  }
  u.gathered = true;
}

void ShardedParameters::State::release(ShardedUnit& u) {
  if (u.row.defined() && !u.gathered) u.gathering.wait();  // was to come, and is not needed
  for (ShardedParam& p : u.params) make_empty(p, u.mine.dtype());
  u.row = Tensor(), u.sent = Tensor(), u.gathering = Work(), u.gathered = false;
}

void ShardedParameters::State::release_all() {
  for (ShardedUnit& u : units)
    if (u.row.defined()) release(u);
}

/// Sends for the block that comes `step` places behind block i in the list.
void ShardedParameters::State::prefetch(const std::vector<size_t>& list, size_t i, int step) {
  if (!options.prefetch) return;
  const auto at = std::find(list.begin(), list.end(), i);
  const int64_t next = at - list.begin() + step;
  if (at != list.end() && next >= 0 && next < int64_t(list.size())) start_gather(units[list[size_t(next)]]);
}

void ShardedParameters::State::before_block(size_t i) {
  ShardedUnit& u = units[i];
  gather(u);
  if (in_recomputation()) return;
  order.push_back(i);
  prefetch(last_order, i, 1);
  if (modes.grad && !u.armed) arm(u);
}

void ShardedParameters::State::arm(ShardedUnit& u) {
  u.armed = !u.params.empty(), u.pending = u.params.size();
  for (ShardedParam& p : u.params) p.ready = false, p.tensor.set_grad({});  // a backward that threw may have left some
}

void ShardedParameters::State::after_block(size_t i) {
  if (!in_recomputation()) release(units[i]);
}

// Note [The order of collectives]
// A rank on which some unit gets no gradient, or not all, sends zeros in its place, and gathers what the others gather: collectives come in
// the order of the forward pass, backwards, the root last. The engine runs what was recorded later first: when block i's backward begins,
// nothing more comes for the blocks that were called after it. Graphs of two forwards in one backward break that rule: there the
// end of backward is waited for. All ranks must call the same blocks in forward, and reach some parameter in backward.

void ShardedParameters::State::before_block_backward(size_t i) {
  if (await_end() && forwards == 1) reduce_from(size_t(order.rend() - std::find(order.rbegin(), order.rend(), i)));
  gather(units[i]);
  prefetch(last_order, i, -1);
}

void ShardedParameters::State::on_gradient(size_t i, size_t k) {
  ShardedUnit& u = units[i];
  ShardedParam& p = u.params[k];
  check(u.armed && !p.ready, "[{}] expected one backward for each forward through it, got another gradient of \"{}\"",
        kFsdpName, p.name);
  p.ready = true;
  await_end();
  if (--u.pending == 0 && u.block) reduce(i);
}

/// Has backward_ended() called; false where gradients are not accumulated.
bool ShardedParameters::State::await_end() {
  const bool accumulates = call_after_backward([](void* state) { static_cast<State*>(state)->backward_ended(); }, this);
  backward_began |= accumulates;
  return accumulates;
}

/// The blocks that were first called at that place of the forward pass, or later, and still wait for gradients.
void ShardedParameters::State::reduce_from(size_t place) {
  for (size_t at = order.size(); at-- > place;) {
    const size_t i = order[at];
    if (!units[i].armed || std::find(order.begin(), order.end(), i) != order.begin() + int64_t(at)) continue;
    start_gather(units[i]);
    prefetch(last_order, i, -1);
    reduce(i);
  }
}

/// All gradients of the unit are there: nothing in this backward reads its parameters any more.
void ShardedParameters::State::reduce(size_t i) {
  NoGrad guard;
  finish_reduce();
  ShardedUnit& u = units[i];
  const DType dtype = options.reduce_dtype.value_or(dtype_of(u));
  u.grad_row = empty({u.chunk * group.size()}, {.dtype = dtype, .device = u.mine.device()});
  int64_t end = 0;
  for (ShardedParam& p : u.params) {
    Tensor to = u.grad_row.narrow(0, p.offset, p.numel);
    if (const Tensor g = p.tensor.grad(); g.defined()) to.copy_(g.contiguous().view({p.numel}));
    else to.zero_();
    p.tensor.set_grad({});
    end = p.offset + p.numel;
  }
  u.grad_row.narrow(0, end, u.grad_row.numel() - end).zero_();
  release(u);
  u.armed = false;
  u.grad_chunk = empty({u.chunk}, {.dtype = dtype, .device = u.mine.device()});
  u.reducing = group.reduce_scatter(u.grad_chunk, u.grad_row, ReduceOp::Mean, true);
  reducing = i;
}

void ShardedParameters::State::backward_ended() {
  reduce_from(0);
  if (units[0].armed) reduce(0);
  finish_reduce();
  release_all();
  for (ShardedParam& p : units[0].params) p.storage->version.fetch_add(1);  // a second backward throws: they are gone
}

void ShardedParameters::State::finish_reduce() {
  if (reducing == SIZE_MAX) return;
  ShardedUnit& u = units[std::exchange(reducing, SIZE_MAX)];
  u.reducing.wait();
  const Tensor g = tapir::to(u.grad_chunk, u.mine.dtype());
  if (Tensor held = u.mine.grad(); held.defined()) held.add_(g);
  else u.mine.set_grad(g);
  u.grad_row = Tensor(), u.grad_chunk = Tensor(), u.reducing = Work();
}

ShardedParameters::ShardedParameters(nn::Module& module, const FsdpOptions& options, const ProcessGroup& group)
    : state_(new State{group, options, {}, {}, {}, {}}) {
  NoGrad guard;
  State& s = *state_;
  try {
    for (const auto& dtype : {options.param_dtype, options.reduce_dtype})
      check(!dtype || is_floating(*dtype), "[{}] expected param_dtype and reduce_dtype of floating point, got {}",
            kFsdpName, dtype.value_or(kFloat32));
    const auto below = module.named_modules();
    for (const nn::Module* block : options.blocks)
      check(std::any_of(below.begin(), below.end(), [&](const auto& m) { return block && m.second == block; }),
            "[{}] expected blocks that are modules of the model, got {}", kFsdpName,
            block ? "one that is none" : "a null pointer");
    auto all = module.named_parameters();
    s.buffers = module.named_buffers();
    for (const auto* list : {&all, &s.buffers})
      for (const auto& [name, t] : *list) group.broadcast(t.detach(), 0);
    std::erase_if(all, [](const auto& p) { return !p.second.requires_grad(); });
    check(!all.empty(), "[{}] expected a module with a parameter that requires a gradient, got none", kFsdpName);
    std::unordered_map<const TensorImpl*, size_t> owner;
    for (size_t b = 0; b < options.blocks.size(); ++b)
      for (const Tensor& p : options.blocks[b]->parameters()) {
        const bool fresh = owner.emplace(p.impl_or_null(), b + 1).second;
        check(fresh, "[{}] expected blocks that share no parameter and do not hold each other, got one of {} in two",
              kFsdpName, p);
      }
    for (size_t i = 0; i <= options.blocks.size(); ++i) {
      std::vector<std::pair<std::string, Tensor>> params;
      for (const auto& p : all)
        if (const auto at = owner.find(p.second.impl_or_null()); (at == owner.end() ? 0 : at->second) == i)
          params.push_back(p);
      s.add_unit(i ? options.blocks[i - 1] : nullptr, std::move(params));
    }
    for (size_t i = 0; i < s.units.size(); ++i) s.add_hooks(i);
  } catch (...) {
    delete state_;
    throw;
  }
}

ShardedParameters::~ShardedParameters() {
  for (ShardedUnit& u : state_->units) {
    for (const int64_t hook : u.hooks) u.block->remove_hook(hook);
    for (ShardedParam& p : u.params) {
      p.tensor.remove_hook(p.hook);
      if (p.storage) make_empty(p, u.mine.dtype());
    }
  }
  delete state_;
}

void ShardedParameters::before_forward() {
  State& s = *state_;
  check(!s.units.empty(), "[{}] expected parameters that are still sharded, got those of unshard()", kFsdpName);
  for (ShardedUnit& u : s.units) u.armed = false;
  if (s.reducing != SIZE_MAX) {  // a backward that threw
    ShardedUnit& u = s.units[std::exchange(s.reducing, SIZE_MAX)];
    u.reducing.wait();
    u.grad_row = Tensor(), u.grad_chunk = Tensor(), u.reducing = Work();
  }
  s.release_all();
  s.last_order = std::exchange(s.order, {});
  ShardedUnit& root = s.units[0];
  s.gather(root);
  if (!modes.grad) return;
  s.arm(root);
  s.forwards = std::exchange(s.backward_began, false) ? 1 : s.forwards + 1;
}

void ShardedParameters::after_forward() {
  State& s = *state_;
  s.last_order = s.order;
  if (!modes.grad) s.release_all();
}

Tensor ShardedParameters::input(const Tensor& x) const {
  const bool cast = state_->options.param_dtype && x.defined() && is_floating(x.dtype());
  return cast ? tapir::to(x, *state_->options.param_dtype) : x;
}

std::vector<Tensor> ShardedParameters::chunks() const {
  std::vector<Tensor> out;
  for (const ShardedUnit& u : state_->units)
    if (u.mine.defined()) out.push_back(u.mine);
  return out;
}

Tensor ShardedParameters::clip_grad_norm_(double max_norm) const {
  check(max_norm >= 0, "[{}] expected max_norm of at least 0, got {}", kFsdpName, max_norm);
  NoGrad guard;
  Tensor total = zeros({}, {.dtype = kFloat64, .device = chunks().at(0).device()});
  for (const Tensor& c : chunks())
    if (c.grad().defined()) total.add_(sum(square(tapir::to(c.grad(), kFloat64))));
  state_->group.all_reduce(total);
  const Tensor norm = sqrt(total), factor = clamp(max_norm / (norm + 1e-6), {}, 1.0);
  for (const Tensor& c : chunks())
    if (c.grad().defined()) Tensor(c.grad()).mul_(tapir::to(factor, c.dtype()));
  return norm;
}

bool ShardedParameters::agree_on_infinities() const {
  NoGrad guard;
  Tensor bad = zeros({}, {.dtype = kFloat32});
  for (const Tensor& c : chunks())
    if (c.grad().defined() && !all(isfinite(c.grad())).item<bool>()) bad.fill_(1);
  state_->group.all_reduce(bad, ReduceOp::Max);
  if (bad.item() == 0) return false;
  for (const Tensor& c : chunks())
    if (c.grad().defined() && c.numel()) Tensor(c.grad()).narrow(0, 0, 1).fill_(INFINITY);
  return true;
}

}  // namespace tapir::inline v0::distributed
