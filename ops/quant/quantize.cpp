#include "../quantize.h"

#include <cmath>
#include <limits>

#include "../arithmetic.h"
#include "../bitwise.h"
#include "../cast.h"
#include "../compare.h"
#include "../create.h"
#include "../front.h"
#include "../reduce.h"
#include "../shape.h"
#include "../slicing.h"
#include "../ternary.h"
#include "../unary.h"

namespace tapir::inline v0 {
namespace {

struct Bounds {
  int64_t low, high;
};
Bounds bounds_of(const char* op, DType dtype) {
  check(dtype == kInt8 || dtype == kUInt8 || dtype == kInt32, "[{}] expected dtype int8, uint8 or int32, got {}", op,
        dtype);
  if (dtype == kInt8) return {-128, 127};
  if (dtype == kUInt8) return {0, 255};
  return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
}
void check_floats(const char* op, const Tensor& x) {
  check_defined(op, "the input", x);
  check(is_floating(x.dtype()), "[{}] expected an input of floats, got {}", op, x);
}
void check_scale(const char* op, double scale, int64_t zero_point, Bounds b) {
  check(scale > 0 && std::isfinite(scale), "[{}] expected a scale above 0 and finite, got {}", op, scale);
  check(b.low <= b.high, "[{}] `quant_min` should be less than or equal to `quant_max`, got {} and {}", op, b.low,
        b.high);
  check(zero_point >= b.low && zero_point <= b.high, "[{}] `zero_point` must be between {} and {}, got {}", op, b.low,
        b.high, zero_point);
}

/// Scales and zero points of one axis as (1, n, 1, ...), float32; their values are checked, which waits for the device.
struct Channels {
  Tensor scale, zero_point;
};
Channels channels(const char* op, const Tensor& x, const Tensor& scale, const Tensor& zero_point, int64_t axis,
                  Bounds b) {
  check_defined(op, "the scales", scale);
  common_device(op, {&x, &scale, &zero_point});
  axis = wrap_dim(op, axis, x.dim());
  const int64_t n = x.shape()[axis];
  check(scale.dim() == 1 && scale.numel() == n && is_floating(scale.dtype()),
        "[{}] expected {} scales of floats, one for each element of axis {} of {}, got {}", op, n, axis, x.shape(),
        scale);
  check(!zero_point.defined() || (zero_point.shape() == scale.shape() && zero_point.dtype() != kBool),
        "[{}] number of elements in scales and zero_points must match: expected {}, got {}", op, n, zero_point);
  if (n > 0) {
    const Tensor good = logical_and(gt(scale, 0), lt(scale, std::numeric_limits<double>::infinity()));
    check(all(good).item<bool>(), "[{}] expected scales above 0 and finite", op);
  }
  if (n > 0 && zero_point.defined()) {
    const Tensor good = logical_and(ge(zero_point, b.low), le(zero_point, b.high));
    check(all(good).item<bool>(), "[{}] `zero_point` must be between {} and {}", op, b.low, b.high);
  }
  Shape shape = Dims::filled(x.dim(), 1);
  shape[axis] = n;
  const Tensor zeros = zero_point.defined() ? to(zero_point, kFloat32) : zeros_like(scale);
  return {reshape(to(scale, kFloat32), shape), reshape(zeros, shape)};
}

/// The quantized numbers as floats, not saturated: round(x / scale) + zero_point. Like PyTorch's kernels by the reciprocal.
Tensor places(const Tensor& x, const Operand& inverse, const Operand& zero_point) {
  return add(round(mul(x, inverse)), zero_point);
}
Tensor saturated(const Tensor& q, Bounds b) { return clamp(q, Scalar(b.low), Scalar(b.high)); }
double inverse_of(double scale) { return double(1 / float(scale)); }

/// scale (q - zero_point) of saturated q, with the gradient straight through.
Tensor fake(const char* op, const Tensor& x, const Operand& inverse, const Operand& scale, const Operand& zero_point,
            Bounds b) {
  Tensor y, inside;
  const bool recorded = wants_grad({x});
  {
    NoGrad guard;
    const Tensor wide = x.dtype() == kFloat64 ? x : to(x, kFloat32);
    const Tensor q = places(wide, inverse, zero_point);
    y = to(mul(sub(saturated(where(ne(q, q), Operand(b.low), q), b), zero_point), scale), x.dtype());
    if (recorded) inside = to(logical_and(ge(q, b.low), le(q, b.high)), x.dtype());
  }
  return record(op, y, {x}, save(inside), [](const Tensor& g, const Tensor& inside) { return Grads{mul(g, inside)}; });
}

}  // namespace

Tensor quantize_per_tensor(const Tensor& x, double scale, int64_t zero_point, DType dtype) {
  const Bounds b = bounds_of("quantize_per_tensor", dtype);
  check_floats("quantize_per_tensor", x), check_scale("quantize_per_tensor", scale, zero_point, b);
  NoGrad guard;
  return to(saturated(places(to(x, kFloat32), inverse_of(scale), zero_point), b), dtype);
}

Tensor quantize_per_channel(const Tensor& x, const Tensor& scales, const Tensor& zero_points, int64_t axis,
                            DType dtype) {
  const Bounds b = bounds_of("quantize_per_channel", dtype);
  check_floats("quantize_per_channel", x);
  NoGrad guard;
  const Channels c = channels("quantize_per_channel", x, scales, zero_points, axis, b);
  return to(saturated(places(to(x, kFloat32), reciprocal(c.scale), c.zero_point), b), dtype);
}

Tensor dequantize(const Tensor& q, double scale, int64_t zero_point) {
  check_defined("dequantize", "the quantized tensor", q);
  const Bounds b = bounds_of("dequantize", q.dtype());
  check_scale("dequantize", scale, zero_point, b);
  return mul(sub(to(q, kFloat32), zero_point), double(float(scale)));
}
Tensor dequantize_per_channel(const Tensor& q, const Tensor& scales, const Tensor& zero_points, int64_t axis) {
  check_defined("dequantize_per_channel", "q", q, "scales", scales, "zero_points", zero_points);
  check_defined("dequantize_per_channel", "the quantized tensor", q);
  const Bounds b = bounds_of("dequantize_per_channel", q.dtype());
  const Channels c = channels("dequantize_per_channel", q, scales, zero_points, axis, b);
  return mul(sub(to(q, kFloat32), c.zero_point), c.scale);
}

Tensor fake_quantize_per_tensor_affine(const Tensor& x, double scale, int64_t zero_point, int64_t quant_min,
                                       int64_t quant_max) {
  const char* op = "fake_quantize_per_tensor_affine";
  check_floats(op, x), check_scale(op, scale, zero_point, {quant_min, quant_max});
  return fake(op, x, inverse_of(scale), double(float(scale)), zero_point, {quant_min, quant_max});
}
Tensor fake_quantize_per_channel_affine(const Tensor& x, const Tensor& scale, const Tensor& zero_point, int64_t axis,
                                        int64_t quant_min, int64_t quant_max) {
  check_defined("fake_quantize_per_channel_affine", "x", x, "scale", scale, "zero_point", zero_point);
  const char* op = "fake_quantize_per_channel_affine";
  check_floats(op, x);
  check(quant_min <= quant_max, "[{}] `quant_min` should be less than or equal to `quant_max`, got {} and {}", op,
        quant_min, quant_max);
  const Channels c = [&] {
    NoGrad guard;
    return channels(op, x, scale, zero_point, axis, {quant_min, quant_max});
  }();
  return fake(op, x, reciprocal(c.scale), c.scale, c.zero_point, {quant_min, quant_max});
}

Tensor pack_int4(const Tensor& q) {
  check_defined("pack_int4", "the input", q);
  check(q.dtype() == kInt8 && q.dim() > 0 && q.size(-1) % 2 == 0,
        "[pack_int4] expected int8 with an even last dimension, got {}", q);
  check(q.numel() == 0 || all(logical_and(ge(q, -8), le(q, 7))).item<bool>(),
        "[pack_int4] expected integers in [-8, 7]");
  const int64_t k = q.size(-1);
  const Tensor u = to(add(q, 8), kUInt8);
  return add(slice(u, -1, 0, k, 2), mul(slice(u, -1, 1, k, 2), 16));
}
Tensor unpack_int4(const Tensor& p) try {
  check_defined("unpack_int4", "the input", p);
  check(p.dtype() == kUInt8 && p.dim() > 0, "[unpack_int4] expected uint8 (..., K / 2), got {}", p);
  const Tensor q = stack({bitwise_and(p, 15), bitwise_right_shift(p, 4)}, -1);
  return sub(to(flatten(q, -2, -1), kInt8), 8);
} catch (...) {
  fail_as("unpack_int4");
}

}  // namespace tapir::inline v0
