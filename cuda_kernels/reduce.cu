#include <cmath>
#include <limits>

#include "../core/dispatch.h"
#include "kernels.h"
#include "reduce.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int power_of_two_from(int64_t n, int most) {
  int p = 1;
  while (p < most && p < n) p *= 2;
  return p;
}

/// The dimensions of v whose bit in `dims` is `reduced`.
TensorView part_of(V v, uint32_t dims, bool reduced) {
  TensorView part = v;
  part.rank = 0;
  for (int64_t d = 0; d < v.rank; ++d) {
    if (bool(dims >> d & 1) != reduced) continue;
    part.sizes[part.rank] = v.sizes[d], part.strides[part.rank++] = v.strides[d];
  }
  return part;
}

/// One call: what is reduced, and how it is cut.
struct Reduction {
  Context& ctx;
  const char* name;
  TensorView x;
  ReducePlan plan;
  bool by_rows;

  Reduction(Context& ctx, const char* name, V out, V x, uint32_t dims) : ctx(ctx), name(name), x(x) {
    const TensorView kept_x = part_of(x, dims, false), kept_out = part_of(out, dims, false),
                     gone_x = part_of(x, dims, true);
    plan.kept = layout_of<2>({&kept_x, &kept_out}), plan.gone = layout_of<1>({&gone_x});
    plan.out = out.data, plan.dtype = out.dtype, plan.chunk = plan.gone.numel;
    const auto inner = [](const auto& layout) { return std::abs(layout.strides[0][0]); };
    by_rows = plan.kept.rank == 0 || (plan.gone.rank > 0 && inner(plan.gone) < inner(plan.kept));
  }

  /// Packs of `width` elements lie in one piece everywhere.
  bool packs(int64_t width) const {
    if (reinterpret_cast<uintptr_t>(x.data) % size_t(width * size_of(x.dtype)) != 0) return false;
    const auto whole = [width](const auto& layout, bool inside) {
      if (inside && (layout.rank == 0 || layout.strides[0][0] != 1)) return false;
      if (inside && layout.rank > 1 && layout.sizes[0] % width != 0) return false;
      for (int d = inside ? 1 : 0; d < layout.rank; ++d)
        if (layout.strides[0][d] % width != 0) return false;
      return true;
    };
    if (!by_rows && plan.kept.rank == 1 && plan.kept.numel % width != 0) return false;
    return whole(plan.gone, by_rows) && whole(plan.kept, !by_rows);
  }

  template <class Op> void run_empty(const Op& op);
  template <class Op, class Load> void run(const Op& op, const Load& load);
  template <class Op, class Load> void run_rows(const Op& op, const Load& load, int64_t width);
  template <class Op> void run_any(const Op& op) { run(op, AnyLoad<typename Op::In>{x.data, x.dtype}); }
  /// For operations of float: fast where the layout allows it.
  template <class Op> void run_packed(const Op& op) {
    if (x.dtype == kFloat32 && packs(4)) run(op, PackLoad<float>{x.as<float>()});
    else if (x.dtype == kFloat16 && packs(8)) run(op, PackLoad<Half>{x.as<Half>()});
    else if (x.dtype == kBFloat16 && packs(8)) run(op, PackLoad<BFloat16>{x.as<BFloat16>()});
    else run_any(op);
  }
};

/// Chunks of at least `least` elements for about a thousand blocks in all.
void cut(ReducePlan& plan, int64_t blocks, int64_t least, int64_t multiple) {
  const int64_t n = plan.gone.numel, most = std::max<int64_t>(1, 1024 / std::max<int64_t>(blocks, 1));
  const int64_t wanted = std::clamp<int64_t>(n / least, 1, most);
  plan.chunk = ceil_div(ceil_div(n, wanted), multiple) * multiple;
  plan.chunks = ceil_div(n, plan.chunk);
}

template <class Op, class Load> void Reduction::run_rows(const Op& op, const Load& load, int64_t width) {
  const int64_t packs = ceil_div(plan.chunk, width);
  plan.lanes = packs > 32 * 16 ? kReduceThreads : power_of_two_from(ceil_div(packs, 4), 32);
  launch(ctx, name, grid_of(plan.kept.numel * plan.chunks * plan.lanes, kReduceThreads), reduce_rows<Op, Load>, op,
         load, plan);
}

template <class Op, class Load> void Reduction::run(const Op& op, const Load& load) {
  if (plan.kept.numel == 0) return;
  if (plan.gone.numel == 0) plan.chunk = 1;  // rows without elements
  constexpr int V = Load::kWidth;
  const int64_t outputs = plan.kept.numel;
  const int columns = power_of_two_from(ceil_div(outputs, V), 32), rows = kReduceThreads / columns;
  const int64_t tiles = ceil_div(outputs, int64_t(columns) * V);
  if (plan.gone.numel > 0) {
    if (by_rows) cut(plan, outputs, 4096, kReduceThreads * V);
    else cut(plan, tiles, int64_t(rows) * 16, rows);
  }
  if (plan.chunks > 1) plan.states = ctx.scratch_of<typename Op::State>(outputs * plan.chunks);
  if (by_rows || plan.gone.numel == 0) {
    run_rows(op, load, V);
  } else {
    const Grid grid{dim3(unsigned(std::min<int64_t>(tiles * plan.chunks, 1 << 16))),
                    dim3(unsigned(columns), unsigned(rows))};
    launch(ctx, name, grid, reduce_columns<Op, Load>, op, load, plan);
  }
  if (plan.chunks == 1) return;
  using Second = JoinOf<Op>;
  Reduction second = *this;
  ReducePlan& p = second.plan;
  int64_t step = plan.chunks;  // between the states of two outputs
  for (int d = 0; d < p.kept.rank; ++d) p.kept.strides[0][d] = step, step *= p.kept.sizes[d];
  p.gone = Layout<1>();
  p.gone.rank = 1, p.gone.numel = p.gone.sizes[0] = plan.chunks, p.gone.strides[0][0] = 1;
  p.chunk = plan.chunks, p.chunks = 1;
  second.run_rows(Second{op}, StateLoad<typename Op::State>{static_cast<typename Op::State*>(plan.states)}, 1);
}

void norm_p(Reduction& r, const ReduceParams& p) {
  const double inf = std::numeric_limits<double>::infinity();
  if (std::isinf(p.p)) {
    if (r.x.dtype == kFloat64 || !is_floating(r.x.dtype))
      return r.run_any(ExtremeOf<double>{p.p < 0, Term::Magnitude, p.p < 0 ? inf : 0});
    return r.run_packed(ExtremeOf<float>{p.p < 0, Term::Magnitude, p.p < 0 ? float(inf) : 0});
  }
  if (p.p == 0) return r.run_any(SumOf<int64_t>{Term::Truth});
  // In double: squares of large floats do not overflow.
  if (p.p == 1) return r.run_any(SumOf<double>{Term::Magnitude});
  if (p.p == 2) return r.run_any(SumOf<double>{Term::Square, true, 2});
  return r.run_any(SumOf<double>{Term::Power, true, p.p});
}

template <class C> void run_extreme(Reduction& r, ReduceOp op) {
  using Limits = std::numeric_limits<C>;
  const bool smallest = op == ReduceOp::Min;
  C worst = smallest ? Limits::max() : Limits::lowest();
  if constexpr (std::is_floating_point_v<C>) worst = smallest ? Limits::infinity() : -Limits::infinity();
  const ExtremeOf<C> extreme{smallest, Term::Itself, worst};
  if constexpr (std::is_same_v<C, float>) r.run_packed(extreme);
  else r.run_any(extreme);
}

template <class C> void run_float(Reduction& r, const ReduceParams& p) {
  const double count = double(r.plan.gone.numel);
  const auto go = [&](const auto& op) {
    if constexpr (std::is_same_v<C, float>) r.run_packed(op);
    else r.run_any(op);
  };
  switch (p.op) {
    case ReduceOp::Var:
    case ReduceOp::Std: return go(MomentsOf<C>{p.op == ReduceOp::Std, count, p.correction});
    case ReduceOp::LogSumExp: return r.run_any(LogSumExpOf<C>{});
    case ReduceOp::Mean: return go(SumOf<C>{Term::Itself, false, 1, count});
    case ReduceOp::Max:
    case ReduceOp::Min: return run_extreme<C>(r, p.op);
    default: return go(SumOf<C>{});
  }
}

}  // namespace

void reduce(Context& ctx, V out, V x, const ReduceParams& p) {
  Reduction r(ctx, "reduce", out, x, p.dims);
  const bool integers = !is_floating(x.dtype) && !is_floating(out.dtype);
  switch (p.op) {
    case ReduceOp::NormP: return norm_p(r, p);
    case ReduceOp::Any: return r.run_any(ExtremeOf<int64_t>{false, Term::Truth, 0});
    case ReduceOp::All: return r.run_any(ExtremeOf<int64_t>{true, Term::Truth, 1});
    case ReduceOp::NanSum: return r.run_any(SumOf<double>{Term::NanAsZero});
    case ReduceOp::Prod: return integers ? r.run_any(ProductOf<int64_t>{}) : r.run_any(ProductOf<double>{});
    case ReduceOp::Sum:
      if (integers) return r.run_any(SumOf<int64_t>{});
      break;
    case ReduceOp::Max:
    case ReduceOp::Min:
      if (!is_floating(x.dtype)) return run_extreme<int64_t>(r, p.op);
      break;
    default: break;
  }
  const bool wide = x.dtype == kFloat64 || out.dtype == kFloat64 || !is_floating(x.dtype);
  return wide ? run_float<double>(r, p) : run_float<float>(r, p);
}

void arg_reduce(Context& ctx, V out, V x, const ArgReduceParams& p) {
  Reduction r(ctx, "arg_reduce", out, x, x.rank > 0 ? uint32_t(1) << p.dim : 0);
  const bool smallest = p.op == ArgReduceOp::ArgMin;
  if (!is_floating(x.dtype)) return r.run_any(PlaceOf<int64_t>{smallest});
  return x.dtype == kFloat64 ? r.run_any(PlaceOf<double>{smallest}) : r.run_any(PlaceOf<float>{smallest});
}

}  // namespace tapir::inline v0::cuda_kernels
