#pragma once
#include "backend.h"

namespace tapir::inline v0::detail {

/// The calls that entry::NormMatmul stands for, one after another: what a device does where it has no kernel for all of them.
inline void norm_matmul_by_calls(Context& ctx, const entry::NormMatmul& c) {
  const auto rows = [&] {
    TensorView v = c.x;
    v.data = ctx.scratch(v.numel() * size_of(v.dtype)), v.strides[0] = v.sizes[1], v.strides[1] = 1;
    return v;
  };
  const BackendTable& table = *ctx.table;
  const TensorView x = !c.add.defined() ? TensorView(c.x) : c.sum.defined() ? TensorView(c.sum) : rows(), y = rows();
  if (c.add.defined()) table.binary(ctx, {x, c.x, c.add, {BinaryOp::Add}});
  table.norm(ctx, {.y = y,
                   .x = x,
                   .weight = c.weight,
                   .bias = c.norm_bias,
                   .params = {.op = c.params.op, .eps = c.params.eps, .axes = 1}});
  if (!c.b_scale.defined())
    return table.matmul(ctx, {.out = c.out, .a = y, .b = c.b, .bias = c.bias, .params = {.finish = c.params.finish}});
  table.quant_matmul(ctx, {.y = c.out,
                           .x = y,
                           .w = c.b,
                           .w_scale = c.b_scale,
                           .bias = c.bias,
                           .params = {QuantOp::WeightOnly, c.params.bits, c.params.group, c.params.finish}});
}

}  // namespace tapir::inline v0::detail
