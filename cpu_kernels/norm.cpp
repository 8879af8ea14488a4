#include "norm.h"

namespace tapir::inline v0::cpu {

void norm(Context& ctx, const entry::Norm& c) {
  for_any_float("norm", c.x.dtype, [&]<class T>() {
    if (c.params.op == NormOp::Layer || c.params.op == NormOp::Rms) return norm_rows<T>(ctx, c);
    norm_channels<T>(ctx, {c.y, c.mean, c.rstd, c.x, c.weight, c.bias, c.running_mean, c.running_var}, c.params);
  });
}

void norm_backward(Context& ctx, const entry::NormBackward& c) {
  for_any_float("norm", c.x.dtype, [&]<class T>() {
    if (c.params.op == NormOp::Layer || c.params.op == NormOp::Rms) return norm_rows_backward<T>(ctx, c);
    norm_channels_backward<T>(ctx, {c.dx, c.dweight, c.dbias, c.dy, c.x, c.weight, c.mean, c.rstd}, c.params);
  });
}

void norm_relu(Context& ctx, const entry::NormRelu& c) {
  const NormOperands operands{.y = c.y,
                              .mean = c.mean,
                              .rstd = c.rstd,
                              .x = c.x,
                              .weight = c.weight,
                              .bias = c.bias,
                              .running_mean = c.running_mean,
                              .running_var = c.running_var,
                              .shift = c.shift,
                              .add = c.add,
                              .relu = true};
  for_any_float("norm_relu", c.x.dtype, [&]<class T>() { norm_channels<T>(ctx, operands, c.params); });
}

void norm_relu_backward(Context& ctx, const entry::NormReluBackward& c) {
  const NormGradOperands operands{.dx = c.dx,
                                  .dweight = c.dweight,
                                  .dbias = c.dbias,
                                  .dy = c.dy,
                                  .x = c.x,
                                  .weight = c.weight,
                                  .mean = c.mean,
                                  .rstd = c.rstd,
                                  .dadd = c.dadd,
                                  .y = c.y,
                                  .shift = c.shift,
                                  .relu = true};
  for_any_float("norm_relu", c.x.dtype, [&]<class T>() { norm_channels_backward<T>(ctx, operands, c.params); });
}

}  // namespace tapir::inline v0::cpu
