// Products of 8-bit floats for training, Note [8-bit floats] in core/formulas/float8.h.
#include "../float8.h"

#include "../autocast.h"
#include "../cast.h"
#include "../create.h"
#include "../front.h"
#include "../shape.h"

namespace tapir::inline v0 {
namespace {

/// A matrix as 8-bit floats, in its own order and transposed: what was asked for.
struct Bytes {
  Tensor rows, columns, scale;
};

Bytes to_bytes(const Tensor& x, Float8 format, bool rows, bool columns) {
  const int64_t m = x.shape()[0], n = x.shape()[1];
  Bytes b;
  b.scale = empty({}, {.dtype = kFloat32, .device = x.device()});
  if (rows) b.rows = empty({m, n}, {.dtype = kUInt8, .device = x.device()});
  if (columns) b.columns = empty({n, m}, {.dtype = kUInt8, .device = x.device()});
  backend(x).to_float8(context(x),
                       {.out = b.rows, .transposed = b.columns, .scale = b.scale, .x = x, .params = {format}});
  return b;
}
/// a (M, K) b (N, K)^T + bias (N)
Tensor product(DType dtype, const Tensor& a, const Tensor& a_scale, const Tensor& b, const Tensor& b_scale,
               const Float8MatmulParams& formats, const Tensor& bias = {}) {
  const Tensor y = empty({a.shape()[0], b.shape()[0]}, {.dtype = dtype, .device = a.device()});
  backend(a).float8_matmul(
      context(a), {.out = y, .a = a, .a_scale = a_scale, .b = b, .b_scale = b_scale, .bias = bias, .params = formats});
  return y;
}

/// The sums of g's columns, rounded once.
Tensor column_sums(const Tensor& g, DType dtype) {
  const Tensor y = empty({1, g.shape()[1]}, {.dtype = dtype, .device = g.device()});
  backend(g).reduce(context(g), {.out = y, .x = g, .params = {.op = ReduceOp::Sum, .dims = 1}});
  return view(y, {g.shape()[1]});
}

bool fits(const Tensor& x) { return is_floating(x.dtype()) && x.dtype() != kFloat64; }
void check_operands(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias) {
  check_defined(op, "the input", x), check_defined(op, "the weight", w);
  common_device(op, {&x, &w, &bias});
  check(fits(w) && w.dim() == 2, "[{}] expected a weight (out, in) of float32, float16 or bfloat16, got {}", op, w);
  const int64_t out = w.shape()[0], in = w.shape()[1];
  check(fits(x) && x.dim() > 0 && x.shape().back() == in,
        "[{}] expected an input (..., {}) of float32, float16 or bfloat16, got {} (weight is {})", op, in, x,
        w.shape());
  check(!bias.defined() || (fits(bias) && bias.dim() == 1 && bias.shape()[0] == out),
        "[{}] expected a bias ({},) of float32, float16 or bfloat16, got {} (weight is {})", op, out, bias, w.shape());
  check(backend(x).to_float8 && backend(x).float8_matmul, "[{}] expected a device with kernels of 8-bit floats, got {}",
        op, x.device());
}

}  // namespace

Tensor float8_linear(const Tensor& x, const Tensor& w, const Tensor& bias) {
  constexpr const char* name = "float8_linear";
  check_operands(name, x, w, bias);
  if (x.dim() != 2) {  // leading dimensions are rows
    Shape shape = x.shape();
    shape[x.dim() - 1] = 1;
    const int64_t rows = numel_of(shape);
    shape[x.dim() - 1] = w.shape()[0];
    return view(float8_linear(reshape(x, {rows, w.shape()[1]}), w, bias), shape);
  }
  if (const DType dtype = product_type(x.dtype(), x.device()); dtype != x.dtype())
    return float8_linear(to(x, dtype), w, bias);  // the weight's bytes are made of the weight itself
  const uint64_t wanted = wants_grad({x, w, bias}) ? wanted_bits({x, w, bias}) : 0;
  const Bytes a = to_bytes(x, Float8::E4M3, true, wanted & 2), b = to_bytes(w, Float8::E4M3, true, wanted & 1);
  const Tensor y = product(x.dtype(), a.rows, a.scale, b.rows, b.scale, {}, bias);
  const DType bias_dtype = bias.defined() ? bias.dtype() : kFloat32;
  return record(name, y, {x, w, bias},
                save(needed_by(1, a.columns), needed_by(1, a.scale), needed_by(0, b.columns), needed_by(0, b.scale)),
                [dx = x.dtype(), dw = w.dtype(), dbias = bias_dtype](Needs needs, const Tensor& g, const Tensor& x,
                                                                     const Tensor& x_scale, const Tensor& w,
                                                                     const Tensor& w_scale) {
                  check(!grad_enabled(),
                        "[{}] expected a gradient that is not recorded, got create_graph: it has no second derivative",
                        "float8_linear");
                  Grads out(3);
                  constexpr Float8MatmulParams kFormats{Float8::E5M2, Float8::E4M3};
                  if (needs[0] || needs[1]) {
                    const Bytes dy = to_bytes(g, Float8::E5M2, needs[0], needs[1]);
                    if (needs[0]) out[0] = product(dx, dy.rows, dy.scale, w, w_scale, kFormats);
                    if (needs[1]) out[1] = product(dw, dy.columns, dy.scale, x, x_scale, kFormats);
                  }
                  if (needs[2]) out[2] = column_sums(g, dbias);
                  return out;
                });
}

}  // namespace tapir::inline v0
