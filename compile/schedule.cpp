#include "schedule.h"

#include <cstring>
#include <span>
#include <tuple>

#include "../core/trace_call.h"
#include "uses.h"

namespace tapir::inline v0::ir {
namespace {

// How an argument is kept in a thunk, and handed to the entry.
template <class T> struct Kept {
  T value{};
  const T& get() const { return value; }
};
template <> struct Kept<std::span<const TensorView>> {
  std::vector<TensorView> list;
  std::span<const TensorView> get() const { return list; }
};
template <> struct Kept<OptimizerLists> {
  std::vector<TensorView> lists[5];
  OptimizerLists get() const { return {lists[0], lists[1], lists[2], lists[3], lists[4]}; }
};

}  // namespace

template <auto Member, class E> struct KernelThunk;
template <auto Member, class R, class... A> struct KernelThunk<Member, R (*BackendTable::*)(Context&, A...)> final
    : Thunk {
  R (*entry)(Context&, A...) = nullptr;
  std::tuple<Kept<std::remove_cvref_t<A>>...> args;

  void run(Context& ctx) override {
    std::apply([&](const auto&... a) { (void)entry(ctx, a.get()...); }, args);
  }
  void retarget(const BackendTable& table) override { entry = table.*Member; }

  /// From the operands of a call, in order; views that move are listed in `s`.
  void fill(const Call& call, Schedule& s) {
    size_t at = 0;
    std::apply([&](auto&... a) { (fill(a, call, at, s), ...); }, args);
    check_internal(at == call.operands.size(), "[{}] expected {} operands, got {}", call.entry, int64_t(at),
                   int64_t(call.operands.size()));
  }
  static void fill(TensorView& to, const View& v, Schedule& s) { to = s.view_of(v), s.watch(v, to); }
  static void fill(std::vector<TensorView>& to, const Operand& o, Schedule& s) {
    to.resize(o.views.size());
    for (size_t i = 0; i < to.size(); ++i) fill(to[i], o.views[i], s);
  }
  template <class T> static void fill(Kept<T>& to, const Call& call, size_t& at, Schedule& s) {
    if constexpr (std::is_same_v<T, TensorView>) fill(to.value, call.operands.at(at++).views.at(0), s);
    else if constexpr (std::is_same_v<T, std::span<const TensorView>>) fill(to.list, call.operands.at(at++), s);
    else if constexpr (std::is_same_v<T, OptimizerLists>) {
      for (auto& list : to.lists) fill(list, call.operands.at(at++), s);
    } else if constexpr (std::is_same_v<T, OptimizerScalars>) {
      for (TensorView* v :
           {&to.value.lr, &to.value.step, &to.value.inv_scale, &to.value.found_inf, &to.value.beta1, &to.value.numbers})
        fill(*v, call.operands.at(at++).views.at(0), s);
    } else {
      const std::string& bytes = call.operands.at(at++).bytes;
      check_internal(bytes.size() == sizeof(T), "[{}] expected {} bytes of parameters, got {}", call.entry,
                     int64_t(sizeof(T)), int64_t(bytes.size()));
      std::memcpy(static_cast<void*>(&to.value), bytes.data(), sizeof(T));
      if constexpr (requires { to.value.seed, to.value.offset; })
        s.random_.push_back({&to.value.seed, &to.value.offset, to.value.offset - s.offset_});
      if constexpr (std::is_same_v<T, FusedParams>)
        for (FusedStep& step : std::span(to.value.steps, size_t(to.value.count)))
          if (step.kind == FusedKind::Keep)
            s.random_steps_.push_back({&step, uint64_t(step.numbers[2].to_int()) - s.offset_});
    }
  }
};

std::unique_ptr<Thunk> Schedule::make(const Call& call) {
  const std::string_view name = call.entry;
  std::unique_ptr<Thunk> out;
#define X(e)                                                                                    \
  if (name == #e) {                                                                             \
    auto thunk = std::make_unique<KernelThunk<&BackendTable::e, decltype(&BackendTable::e)>>(); \
    thunk->fill(call, *this);                                                                   \
    out = std::move(thunk);                                                                     \
  }
  TAPIR_KERNEL_ENTRIES(X)
#undef X
  check_internal(bool(out), "[compile] expected a kernel, got {}", call.entry);
  out->deterministic = call.deterministic;
  out->retarget(*table_);
  return out;
}

void Schedule::place_blocks(const Program& p, const std::vector<bool>& moves) {
  std::vector<bool> elsewhere = moves;
  for (size_t i = 0; i < p.blocks.size(); ++i) elsewhere[i] = moves[i] || p.blocks[i].kept;
  plan_ = plan_memory(p, elsewhere);
  arena_ = allocate_storage(plan_.arena, kCPU);
  const Uses uses(p);
  base_.resize(p.blocks.size()), moving_.resize(p.blocks.size()), values_.resize(p.blocks.size());
  for (size_t i = 0; i < p.blocks.size(); ++i) {
    const Block& b = p.blocks[i];
    if (moves[i]) continue;
    if (b.kind == Block::Kind::Outside) base_[i] = static_cast<char*>(b.memory->data);
    else if (b.kept) base_[i] = static_cast<char*>(held_.emplace_back(allocate_storage(b.bytes, kCPU))->data);
    else if (plan_.offset[i] >= 0) base_[i] = static_cast<char*>(arena_->data) + plan_.offset[i];
    else if (b.kind == Block::Kind::Constant) {
      held_.push_back(allocate_storage(b.bytes, kCPU));
      base_[i] = static_cast<char*>(held_.back()->data);
      std::memcpy(base_[i], b.values.data(), size_t(b.bytes));
      if (uses.writes[i] == 0) continue;
      values_[i] = b.values;
      restored_.push_back({base_[i], &values_[i]});
    }
  }
}

Schedule::Schedule(const Program& p, const std::vector<bool>& moves, uint64_t offset)
    : moves_(moves), table_(&backend(kCPU)), offset_(offset), prepared_(size_t(p.prepared)) {
  place_blocks(p, moves);
  for (const Call& call : p.calls) thunks_.push_back(make(call)), sites_.emplace_back(call.entry, call.site);
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
  if (v.kind == View::Kind::Memory && v.block >= 0 && moves_[size_t(v.block)])
    moving_[size_t(v.block)].places.push_back({&at, v.offset * size_of(v.dtype)});
}

void Schedule::move(Moving& m, char* data) {
  m.data = data;
  for (const Place& p : m.places) p.view->data = data + p.bytes;
}

void Schedule::fail_at(size_t i, const Context& ctx) const {
  const auto& [entry, site] = sites_[i];
  fail_values(ctx.error, format("[{}] bad value {value} at position {position}, expected one within {bound}{}", entry,
                                describe(site.get())));
}

void Schedule::run(uint64_t seed, uint64_t offset, bool prepared) {
  if (const BackendTable& table = backend(kCPU); &table != table_) [[unlikely]] {  // a profiler or a log came or went
    table_ = &table;
    for (auto& thunk : thunks_) thunk->retarget(table);
  }
  for (const Random& r : random_) *r.seed = seed, *r.offset = offset + r.relative;
  for (const RandomStep& r : random_steps_)
    r.step->numbers[1] = int64_t(seed), r.step->numbers[2] = int64_t(offset + r.relative);
  for (const Restored& r : restored_) std::memcpy(r.to, r.from->data(), r.from->size());
  Context& ctx = context(kCPU);
  for (const auto& thunk : std::span(thunks_).subspan(prepared ? prepared_ : 0)) {
    ctx.deterministic = thunk->deterministic;
    thunk->run(ctx);
    ctx.free_scratch();
    if (ctx.error.set) [[unlikely]]
      fail_at(size_t(&thunk - thunks_.data()), ctx);
  }
}

}  // namespace tapir::inline v0::ir
