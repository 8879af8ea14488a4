#pragma once
// The fields of the parameters of kernel entries, by name. A list that leaves one out does not compile.
#include "../../core/each.h"
#include "../../core/fused.h"
#include "../../core/trace.h"

namespace tapir::inline v0::ir {

#define TAPIR_FIELD(x) visit(#x, x);
/// f(name, field) for each field of params.
#define TAPIR_PARAMS_FIELDS(P, ...)                                     \
  template <class F> void each_field(const P& params, const F& visit) { \
    const auto& [__VA_ARGS__] = params;                                 \
    TAPIR_EACH(TAPIR_FIELD, __VA_ARGS__)                                \
  }
TAPIR_PARAMS_FIELDS(UnaryParams, op, a, b, c)
TAPIR_PARAMS_FIELDS(BinaryParams, op, alpha, beta, gamma)
TAPIR_PARAMS_FIELDS(TernaryParams, op, alpha)
TAPIR_PARAMS_FIELDS(ReduceParams, op, dims, p, correction)
TAPIR_PARAMS_FIELDS(ArgReduceParams, op, dim)
TAPIR_PARAMS_FIELDS(ScanParams, op, dim)
TAPIR_PARAMS_FIELDS(HistogramParams, low, high)
TAPIR_PARAMS_FIELDS(RangeParams, start, step)
TAPIR_PARAMS_FIELDS(RandomParams, op, seed, offset, a, b, low, high)
TAPIR_PARAMS_FIELDS(MatmulParams, alpha, beta, finish)
TAPIR_PARAMS_FIELDS(LinalgParams, op, upper, transpose, unit)
TAPIR_PARAMS_FIELDS(ConvParams, spatial, groups, stride, padding, dilation, relu)
TAPIR_PARAMS_FIELDS(PoolParams, op, spatial, kernel, stride, padding, dilation, ceil_mode, count_include_pad, divisor)
TAPIR_PARAMS_FIELDS(QuantMatmulParams, op, bits, group, finish)
TAPIR_PARAMS_FIELDS(ToFloat8Params, format)
TAPIR_PARAMS_FIELDS(Float8MatmulParams, a, b)
TAPIR_PARAMS_FIELDS(ResampleParams, op, spatial, scale, align_corners)
TAPIR_PARAMS_FIELDS(SoftmaxParams, dim, log)
TAPIR_PARAMS_FIELDS(AttentionParams, scale, causal, dropout_p, seed, offset)
TAPIR_PARAMS_FIELDS(PutAttentionParams, scale, causal, wrap)
TAPIR_PARAMS_FIELDS(RnnParams, op, reverse, steps)
TAPIR_PARAMS_FIELDS(NormParams, op, eps, momentum, axes, groups, training)
TAPIR_PARAMS_FIELDS(NormMatmulParams, op, eps, finish, bits, group)
TAPIR_PARAMS_FIELDS(GatherParams, dim)
TAPIR_PARAMS_FIELDS(ScatterParams, dim, op)
TAPIR_PARAMS_FIELDS(IndexParams, accumulate, wrap)
TAPIR_PARAMS_FIELDS(SortParams, op, dim, k, descending)
TAPIR_PARAMS_FIELDS(SearchParams, right)
TAPIR_PARAMS_FIELDS(NllParams, ignore_index, label_smoothing)
TAPIR_PARAMS_FIELDS(DropoutParams, p, seed, offset)
TAPIR_PARAMS_FIELDS(OptimizerParams, op, weight_decay, beta1, beta2, eps, nesterov, amsgrad, maximize, decoupled,
                    centered, a, b)
TAPIR_PARAMS_FIELDS(ForeachParams, op, p)
TAPIR_PARAMS_FIELDS(FusedStep, kind, op, type, operand, numbers)
TAPIR_PARAMS_FIELDS(FusedParams, count, row_dims, steps)
#undef TAPIR_FIELD
#undef TAPIR_PARAMS_FIELDS

}  // namespace tapir::inline v0::ir
