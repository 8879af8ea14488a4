#include "schedule.h"

#include <cstring>

#include "../../core/denormals.h"
#include "../../core/device_table.h"
#include "../../core/profiler.h"
#include "../../core/trace_call.h"
#include "../device/device_program.h"
#include "../device/device_run.h"
#include "../program/refusals.h"
#include "../program/uses.h"

namespace tapir::inline v0::ir {

/// A kernel with an entry's struct; it holds the lists that the struct names.
template <class E> struct KernelThunk final : Thunk {
  entry::Kernel<E>* kernel = nullptr;
  tapir::detail::Held<E> held;
  std::vector<std::vector<TensorView>> lists;

  void run(Context& ctx) override { (void)kernel(ctx, held.value); }
  void retarget(const BackendTable& table) override { kernel = entry::kernel_of<E>(table); }
  bool prepare(Device device, Prepare how) override {
    if constexpr (std::is_same_v<E, entry::Fused>)
      if (const auto f = backend(device).device->prepare_fused) return f(device, held.value, how);
    return true;
  }

  /// From the operands of a call, in order; views that move are listed in `s`.
  void fill(const Call& call, Schedule& s) {
    size_t at = 0;
    entry::each_field(held.value, [&]<class T>(T& field) {
      const Operand& o = call.operands.at(at++);
      if constexpr (entry::OneOperand<T>) fill(field, o.views.at(0), s);
      else if constexpr (entry::ManyOperands<T>) {
        std::vector<TensorView>& list = lists.emplace_back(o.views.size());
        for (size_t i = 0; i < list.size(); ++i) fill(list[i], o.views[i], s);
        field = list;
      } else set_params(tapir::detail::params_at(held, field), o.bytes, s);
    });
    check_internal(at == call.operands.size(), "[{}] expected {} operands, got {}", entry::name_of(call.entry),
                   int64_t(at), int64_t(call.operands.size()));
  }
  static void fill(TensorView& to, const View& v, Schedule& s) { to = s.view_of(v), s.watch(v, to); }
  template <class P> static void set_params(P& to, const std::string& bytes, Schedule& s) {
    tapir::detail::set_params(to, bytes, entry::id_of<E>);
    if constexpr (requires { to.seed, to.offset; })
      if (draws(to)) s.random_.push_back({&to.seed, &to.offset, to.offset - s.offset_});
    if constexpr (std::is_same_v<P, FusedParams>)
      for (FusedStep& step : std::span(to.steps, size_t(to.count)))
        if (step.kind == FusedKind::Keep)
          s.random_steps_.push_back({&step, uint64_t(step.numbers[2].to_int()) - s.offset_});
  }
};

/// A copy within a device.
struct CopyThunk final : Thunk {
  TensorView to, from;
  const BackendTable* table = nullptr;
  CopyThunk(const Call& call, Schedule& s) {
    using entry::CopyBytes;
    to = s.view_of(call[&CopyBytes::to]), from = s.view_of(call[&CopyBytes::from]);
    s.watch(call[&CopyBytes::to], to), s.watch(call[&CopyBytes::from], from);
  }
  void run(Context& ctx) override {
    table->copy_bytes(to.data, to.device, from.data, from.device, to.numel(), ctx.stream);
  }
  void retarget(const BackendTable& t) override { table = &t; }
};

/// Host code. Its tensors lie in the program's memory and own none of it.
struct CustomThunk final : Thunk {
  using Place = std::pair<View, TensorView>;  // the form, and where it lies
  std::vector<Place> reads, writes;
  std::shared_ptr<const tapir::detail::CustomFunction> custom;
  const char* name;
  CustomThunk(const Call& call, Schedule& s) : custom(call.custom), name(call.operands.back().op_name) {
    reads.reserve(call.operands.size()), writes.reserve(call.operands.size());  // views are watched where they are
    for (const Operand& o : call.operands)
      if (o.kind == TraceArg::Kind::View) {
        auto& list = o.access == Access::Read ? reads : writes;
        s.watch(o.views[0], list.emplace_back(o.views[0], s.view_of(o.views[0])).second);
      }
  }
  static std::vector<Tensor> tensors_of(const std::vector<Place>& places) {
    std::vector<Tensor> out;
    for (const auto& [v, at] : places) {
      const int64_t bytes = v.block < 0 ? 0 : extent_of(v.shape, v.strides).second * size_of(v.dtype);
      out.push_back(tensor_in(
          v, bytes ? adopt_storage(at.data, bytes, v.device, nullptr, nullptr) : allocate_storage(0, v.device), 0));
    }
    return out;
  }
  void run(Context&) override {
    const profiler::Range range(profiler::Kind::User, name);
    NoGrad guard;
    if (DeviceRun::captures_here()) custom->capture(tensors_of(reads), tensors_of(writes));
    else custom->run(tensors_of(reads), tensors_of(writes));
  }
  void retarget(const BackendTable&) override {}
};

std::unique_ptr<Thunk> Schedule::make(const Call& call) {
  std::unique_ptr<Thunk> out;
  if (call.custom) out = std::make_unique<CustomThunk>(call, *this);
  else if (is<entry::CopyBytes>(call)) out = std::make_unique<CopyThunk>(call, *this);
  else
    entry::with_entry(call.entry, [&]<class E>() {
      auto thunk = std::make_unique<KernelThunk<E>>();
      thunk->fill(call, *this);
      out = std::move(thunk);
    });
  check_internal(bool(out), "[compile] expected a kernel, got {}", entry::name_of(call.entry));
  out->modes = call.modes;
  out->retarget(*table_);
  return out;
}

/// Fresh memory with those bytes.
static StoragePtr storage_of(const std::string& values, Device device) {
  StoragePtr s = allocate_storage(int64_t(values.size()), device);
  if (device.is_cpu()) std::memcpy(s->data, values.data(), values.size());
  else backend(device).copy_bytes(s->data, device, values.data(), kCPU, s->bytes, current_stream(device));
  return s;
}

void Schedule::place_constant(const Block& b, size_t block, bool written) {
  held_.push_back(storage_of(b.values, b.device));
  base_[block] = static_cast<char*>(held_.back()->data);
  if (!written) return;
  check_internal(b.device.is_cpu(), "[compile] expected a constant of {} to be read only", b.device);
  values_[block] = b.values;
  restored_.push_back({base_[block], &values_[block]});
}

void Schedule::place_blocks(const Program& p, const Placement& placement) {
  plan_ = plan_memory(p, placement);
  arena_bytes_ = plan_.arena;
  const Uses uses(p);
  base_.resize(p.blocks.size()), moving_.resize(p.blocks.size()), values_.resize(p.blocks.size());
  for (size_t i = 0; i < p.blocks.size(); ++i) {
    const Block& b = p.blocks[i];
    if (placement.moves[i]) continue;
    if (b.kind == Block::Kind::Outside) base_[i] = static_cast<char*>(b.memory->data);
    else if (b.kept) base_[i] = static_cast<char*>(held_.emplace_back(allocate_storage(b.bytes, b.device))->data);
    else if (b.kind == Block::Kind::Constant && plan_.offset[i] < 0) place_constant(b, i, uses.is_written(int(i)));
  }
}

Schedule::Schedule(const Program& p, const Placement& placement, uint64_t offset)
    : device_(device_of(p)), moves_(placement.moves), table_(&backend(device_)), offset_(offset),
      prepared_(size_t(p.prepared)) {
  place_blocks(p, placement);
  for (size_t i = 0; i < p.calls.size(); ++i) {
    const Call& call = p.calls[i];
    thunks_.push_back(make(call));
    refusals_.push_back({refusal_of(call), call.site, iterates(call)});
  }
}

void Schedule::take_arena() {
  if (!arena_) use_arena(allocate_storage(arena_bytes_, device_));
}
void Schedule::use_arena(StoragePtr memory) {
  arena_ = std::move(memory);
  if (device_run_) device_run_->hold(arena_);
  for (size_t i = 0; i < plan_.offset.size(); ++i)
    if (plan_.offset[i] >= 0) bind(int(i), static_cast<char*>(arena_->data) + plan_.offset[i]);
}
void Schedule::release_arena() {
  if (device_run_) device_run_->let_go(arena_);
  arena_ = {};
}

void Schedule::run_on(std::unique_ptr<DeviceRun> run) {
  device_run_ = std::move(run);
  for (const StoragePtr& s : held_)
    if (!s->device.is_cpu()) device_run_->hold(s);
}

bool Schedule::prepare(Prepare how) {
  if (!device_run_) return true;
  for (Moving& m : moving_)
    if (!m.data) move(m, anywhere());
  bool all = true;
  for (auto& thunk : thunks_) all &= thunk->prepare(device_, how);
  return all;
}

TensorView Schedule::view_of(const View& v) const {
  if (v.kind == View::Kind::Absent) return {};
  TensorView out(v.number, v.dtype);
  if (v.kind == View::Kind::Number) return out;
  out.is_scalar = false, out.device = v.device, out.rank = v.shape.size();
  for (int64_t d = 0; d < out.rank; ++d) out.sizes[d] = v.shape[d], out.strides[d] = v.strides[d];
  if (v.block >= 0 && base_[size_t(v.block)]) out.data = base_[size_t(v.block)] + v.offset * size_of(v.dtype);
  return out;
}

void Schedule::watch(const View& v, TensorView& at) {
  if (v.kind == View::Kind::Memory && v.block >= 0 && (moves_[size_t(v.block)] || plan_.offset[size_t(v.block)] >= 0))
    moving_[size_t(v.block)].places.push_back({&at, v.offset * size_of(v.dtype)});
}

void Schedule::move(Moving& m, char* data) {
  changed_ = true;
  m.data = data;
  for (const Place& p : m.places) p.view->data = data + p.bytes;
}

/// Thunk i met a bad value, or may come to.
void Schedule::refuse(Context& ctx, size_t i) {
  Refusal& r = refusals_[i];
  if (r.site) r.text += describe(std::exchange(r.site, {}).get());
  check_runtime(!ctx.error.set || !r.iterates || !ctx.error.value,
                "[linalg] the iteration did not converge for batch element {}", ctx.error.position);
  check_values(ctx, r.text);
  ctx.late_error = 0;
}

/// Random calls start there; on a device, where it is memory that says where, only the key is theirs.
void Schedule::draw_from(uint64_t seed, uint64_t offset) {
  const uint64_t start = device_run_ ? offset_ : offset;
  if (device_run_ && seed == seed_) return;
  if (device_run_ && !(random_.empty() && random_steps_.empty())) changed_ = true;
  seed_ = seed;
  for (const Random& r : random_) *r.seed = seed, *r.offset = start + r.relative;
  for (const RandomStep& r : random_steps_)
    r.step->numbers[1] = int64_t(seed), r.step->numbers[2] = int64_t(start + r.relative);
}

/// Thunks from `first` to before `last`.
void Schedule::queue(Context& ctx, size_t first, size_t last) {
  for (size_t i = first; i < last; ++i) {
    Thunk* const thunk = thunks_[i].get();
    ctx.deterministic = thunk->modes.deterministic;
    {
      const detail::FlushDenormals flush(thunk->modes.flush_denormals);
      thunk->run(ctx);
    }
    ctx.free_scratch();
    if (!ctx.error.set && !ctx.late_error) [[likely]]
      continue;
    refuse(ctx, i);
  }
}

void Schedule::run(uint64_t seed, uint64_t offset, bool prepared) {
  if (const BackendTable& table = backend(device_); &table != table_)
      [[unlikely]] {  // a profiler or a log came or went
    table_ = &table;
    for (auto& thunk : thunks_) thunk->retarget(table);
  }
  draw_from(seed, offset);
  for (const Restored& r : restored_) std::memcpy(r.to, r.from->data(), r.from->size());
  if (!prepared) queue(context(device_), 0, prepared_);
  if (!device_run_) return queue(context(kCPU), prepared_, thunks_.size());
  device_run_->run(!changed_, offset, [this](Context& ctx) { queue(ctx, prepared_, thunks_.size()); });
  changed_ = false;
}

}  // namespace tapir::inline v0::ir
