#include "norm.h"

#include "../../core/norm_matmul.h"

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

/// Scratch memory for such elements, in row-major order.
static TensorView room_for(Context& ctx, V like, DType dtype) {
  TensorView v = like;
  v.data = ctx.scratch(v.numel() * size_of(dtype)), v.dtype = dtype;
  for (int64_t d = v.rank, step = 1; d-- > 0; step *= v.sizes[d]) v.strides[d] = step;
  return v;
}

void norm_matmul(Context& ctx, const entry::NormMatmul& c) { tapir::detail::norm_matmul_by_calls(ctx, c); }

void norm_add_backward(Context& ctx, const entry::NormAddBackward& c) {
  const auto room = [&](V like) { return room_for(ctx, like, kFloat32); };
  const TensorView dy = c.dy.dtype == c.x.dtype ? V(c.dy) : room(c.dy), dx = c.add.defined() ? room(c.dx) : V(c.dx);
  if (dy.data != c.dy.data) copy(ctx, {dy, c.dy});
  norm_backward(ctx, {dx, c.dweight, c.dbias, dy, c.x, c.weight, c.mean, c.rstd, c.params});
  if (c.add.defined()) binary(ctx, {c.dx, c.add, dx, {BinaryOp::Add}});
  if (c.rounded.defined()) copy(ctx, {c.rounded, c.dx});
}

}  // namespace tapir::inline v0::cpu
