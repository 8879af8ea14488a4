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
  for_any_float("norm_relu", c.x.dtype, [&]<class T>() {
    norm_channels<T>(ctx,
                     {c.y, c.mean, c.rstd, c.x, c.weight, c.bias, c.running_mean, c.running_var, c.shift, c.add, true},
                     c.params);
  });
}

void norm_relu_backward(Context& ctx, const entry::NormReluBackward& c) {
  for_any_float("norm_relu", c.x.dtype, [&]<class T>() {
    norm_channels_backward<T>(
        ctx, {c.dx, c.dweight, c.dbias, c.dy, c.x, c.weight, c.mean, c.rstd, c.dadd, c.y, c.shift, true}, c.params);
  });
}

}  // namespace tapir::inline v0::cpu
