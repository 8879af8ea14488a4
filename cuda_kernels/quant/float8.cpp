// Products of 8-bit floats: by cuBLASLt, else in bfloat16, in which each of their numbers is exact.
#include "float8.h"

#include "../matmul/matmul.h"
#include "../runtime/device.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

TensorView room(Context& ctx, V like, DType dtype) {
  TensorView v = like;
  v.dtype = dtype;
  return dense_room(ctx, v);
}

/// What the library's page asks of 8-bit floats: tensor cores that have them, rows of 16 bytes, not both of 5 bits of exponent.
bool suits_library(Context& ctx, const entry::Float8Matmul& c) {
  const auto fits = [](V x) { return blas::is_aligned(x.data) && x.sizes[1] % 16 == 0; };
  const bool formats = c.params.a == Float8::E4M3 || c.params.b == Float8::E4M3;
  return compute_capability(ctx.device) >= 89 && formats && fits(c.a) && fits(c.b) && c.out.sizes[1] % 16 == 0 &&
         c.out.dtype != kFloat64;
}

/// False, and nothing done, where the library has no kernel for it.
bool library_product(Context& ctx, const entry::Float8Matmul& c) {
  const int64_t k = c.a.sizes[1];
  const bool direct = c.out.is_contiguous() && blas::is_aligned(c.out.data);
  const TensorView out = direct ? V(c.out) : dense_room(ctx, c.out);
  blas::Product p;
  p.dtype = out.dtype, p.m = out.sizes[0], p.n = out.sizes[1], p.k = k;
  p.a = {c.a.data, 0, k, 1}, p.b = {c.b.data, 0, 1, k}, p.out = strided_matrix(out);
  p.float8 = {c.a_scale.as<float>(), c.b_scale.as<float>(), c.params.a, c.params.b};
  TensorView bias = c.bias;
  const bool late_bias = bias.defined() && out.dtype == kFloat32;  // the library's own has 16 bits
  if (bias.defined() && (bias.dtype != out.dtype || !bias.is_contiguous() || !blas::is_aligned(bias.data)))
    bias = room(ctx, c.bias, out.dtype), copy(ctx, {bias, c.bias});
  if (bias.defined() && !late_bias) p.bias = bias.data;
  if (!blas::product(ctx, p)) return false;
  if (late_bias) binary(ctx, {out, out, bias.expand(out.shape()), {BinaryOp::Add}});
  if (!direct) copy(ctx, {c.out, out});
  return true;
}

}  // namespace

void float8_matmul(Context& ctx, const entry::Float8Matmul& c) {
  const TensorView& out = c.out;
  if (out.numel() == 0) return;
  if (c.a.sizes[1] == 0) {
    if (!c.bias.defined()) return fill(ctx, {out, Scalar(0)});
    return copy(ctx, {out, TensorView(c.bias).expand(out.shape())});
  }
  if (suits_library(ctx, c) && library_product(ctx, c)) return;
  const TensorView a = widened_float8(ctx, c.a, c.params.a), sums = room(ctx, out, kFloat32);
  TensorView b = widened_float8(ctx, c.b, c.params.b);
  std::swap(b.sizes[0], b.sizes[1]), std::swap(b.strides[0], b.strides[1]);
  matmul(ctx, {.out = sums, .a = a, .b = b, .params = {}});
  finish_float8_product(ctx, out, sums, c);
}

}  // namespace tapir::inline v0::cuda_kernels
