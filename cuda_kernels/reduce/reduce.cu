#include <cmath>
#include <limits>

#include "../../core/dispatch.h"
#include "../kernels.h"
#include "reduce.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

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

struct Call {
  Reduction<1> r;
  TensorView x;

  Call(Context& ctx, const char* name, V out, V x, uint32_t dims) : r(make(ctx, name, out, x, dims)), x(x) {
    r.plan.out = out.data, r.plan.dtype = out.dtype;
  }
  static Reduction<1> make(Context& ctx, const char* name, V out, V x, uint32_t dims) {
    const TensorView kept_x = part_of(x, dims, false), kept_out = part_of(out, dims, false),
                     gone_x = part_of(x, dims, true);
    return {ctx, name, layout_of<2>({&kept_x, &kept_out}), layout_of<1>({&gone_x})};
  }

  template <class Op, class Load> void run(const Op& op, const Load& load) {
    if (r.plan.kept.numel == 0) return;
    r.run_first(op, load, false);
    if (r.plan.chunks == 1) return;
    Reduction<1> second = r;
    ReducePlan<1>& p = second.plan;
    int64_t step = r.plan.chunks;  // between the states of two outputs
    for (int d = 0; d < p.kept.rank; ++d) p.kept.strides[0][d] = step, step *= p.kept.sizes[d];
    p.gone = Layout<1>();
    p.gone.rank = 1, p.gone.numel = p.gone.sizes[0] = r.plan.chunks, p.gone.strides[0][0] = 1;
    p.chunk = r.plan.chunks, p.chunks = 1, p.states = nullptr;
    second.run_rows(JoinOf<Op>{op}, StateLoad<typename Op::State>{{}, static_cast<typename Op::State*>(r.plan.states)});
  }
  template <class Op> void run_truth(const Op& op) { run(op, TruthLoad{{{}, x.data, x.dtype}}); }
  template <class Op> void run_any(const Op& op) { run(op, AnyLoad<typename Op::In>{{}, x.data, x.dtype}); }
  /// For float32 and shorter: fast where the layout allows it.
  template <class Op> void run_packed(const Op& op) {
    const auto by_packs = [&]<class T>() {
      return x.dtype == dtype_of<T> && r.packs(0, x.data, x.dtype, kPackSize<T>) &&
             (run(op, PackLoad<T, typename Op::In>{x.as<T>()}), true);
    };
    if (by_packs.template operator()<float>() || by_packs.template operator()<Half>() ||
        by_packs.template operator()<BFloat16>())
      return;
    run_any(op);
  }
};

void norm_p(Call& call, const ReduceParams& p) {
  const double inf = std::numeric_limits<double>::infinity();
  if (std::isinf(p.p)) {
    if (call.x.dtype == kFloat64 || !is_floating(call.x.dtype))
      return call.run_any(ExtremeOf<double>{p.p < 0, Term::Magnitude, p.p < 0 ? inf : 0});
    return call.run_packed(ExtremeOf<float>{p.p < 0, Term::Magnitude, p.p < 0 ? float(inf) : 0});
  }
  if (p.p == 0) return call.run_truth(SumOf<int64_t>{});
  // In double: squares of large floats do not overflow.
  if (p.p == 1) return call.run_packed(SumOf<double>{Term::Magnitude});
  if (p.p == 2) return call.run_packed(SumOf<double>{Term::Square, true, 2});
  return call.run_packed(SumOf<double>{Term::Power, true, p.p});
}

template <class C> void run_extreme(Call& call, ReduceOp op) {
  using Limits = std::numeric_limits<C>;
  const bool smallest = op == ReduceOp::Min;
  C worst = smallest ? Limits::max() : Limits::lowest();
  if constexpr (std::is_floating_point_v<C>) worst = smallest ? Limits::infinity() : -Limits::infinity();
  const ExtremeOf<C> extreme{smallest, Term::Itself, worst};
  if constexpr (std::is_same_v<C, float>) call.run_packed(extreme);
  else call.run_any(extreme);
}

template <class C> void run_float(Call& call, const ReduceParams& p) {
  const double count = double(call.r.plan.gone.numel);
  const auto go = [&](const auto& op) {
    if constexpr (std::is_same_v<C, float>) call.run_packed(op);
    else call.run_any(op);
  };
  switch (p.op) {
    case ReduceOp::Var:
    case ReduceOp::Std: return go(MomentsOf<C>{p.op == ReduceOp::Std, count, p.correction});
    case ReduceOp::LogSumExp: return go(LogSumExpOf<C>{});
    case ReduceOp::Mean: return go(SumOf<C>{Term::Itself, false, 1, count});
    case ReduceOp::Max:
    case ReduceOp::Min: return run_extreme<C>(call, p.op);
    default: return go(SumOf<C>{});
  }
}

}  // namespace

void reduce(Context& ctx, const entry::Reduce& c) {
  const TensorView &out = c.out, &x = c.x;
  const ReduceParams& p = c.params;
  Call call(ctx, "reduce", out, x, p.dims);
  const bool integers = !is_floating(x.dtype) && !is_floating(out.dtype);
  switch (p.op) {
    case ReduceOp::NormP: return norm_p(call, p);
    case ReduceOp::Any: return call.run_truth(ExtremeOf<int64_t>{false, Term::Itself, 0});
    case ReduceOp::All: return call.run_truth(ExtremeOf<int64_t>{true, Term::Itself, 1});
    case ReduceOp::NanSum: return call.run_packed(SumOf<double>{Term::NanAsZero});
    case ReduceOp::Prod: return integers ? call.run_any(ProductOf<int64_t>{}) : call.run_any(ProductOf<double>{});
    case ReduceOp::Sum:
      if (integers) return call.run_any(SumOf<int64_t>{});
      break;
    case ReduceOp::Max:
    case ReduceOp::Min:
      if (!is_floating(x.dtype)) return run_extreme<int64_t>(call, p.op);
      break;
    default: break;
  }
  const bool wide = x.dtype == kFloat64 || out.dtype == kFloat64 || !is_floating(x.dtype);
  return wide ? run_float<double>(call, p) : run_float<float>(call, p);
}

void arg_reduce(Context& ctx, const entry::ArgReduce& c) {
  const TensorView& x = c.x;
  Call call(ctx, "arg_reduce", c.out, x, x.rank > 0 ? uint32_t(1) << c.params.dim : 0);
  const bool smallest = c.params.op == ArgReduceOp::ArgMin;
  if (!is_floating(x.dtype)) return call.run_any(PlaceOf<int64_t>{smallest});
  return x.dtype == kFloat64 ? call.run_any(PlaceOf<double>{smallest})
                             : call.run_packed(PlaceOf<float>{smallest, call.r.by_rows});
}

}  // namespace tapir::inline v0::cuda_kernels
