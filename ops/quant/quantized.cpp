// Layers with quantized weights: by the kernels of the waist where a device has them, else in floats that hold the same integers.
#include <algorithm>

#include "../../core/formulas/quantize.h"
#include "../arithmetic.h"
#include "../cast.h"
#include "../checked.h"
#include "../create.h"
#include "../extremum.h"
#include "../front.h"
#include "../matmul.h"
#include "../quantize.h"
#include "../reduce.h"
#include "../shape.h"
#include "../spatial.h"
#include "../ternary.h"
#include "../unary.h"

namespace tapir::inline v0 {
namespace {

/// Sums of products of 8 bits fit int32 up to so many.
constexpr int64_t kLongestSum = 65536;

void check_range(const char* op, const Tensor& scale, const Tensor& zero) {
  check(scale.defined() && scale.dim() == 0 && is_floating(scale.dtype()),
        "[{}] expected input_scale as a 0-dim tensor of floats, got {}", op, scale);
  check(zero.defined() && zero.dim() == 0 && zero.dtype() == kInt32,
        "[{}] expected input_zero_point as a 0-dim int32, got {}", op, zero);
}
Tensor floats(const Tensor& x) { return x.defined() && x.dtype() != kFloat32 ? to(x, kFloat32) : x; }

/// Weight (O, K) and the length of its groups.
struct Weight {
  int64_t rows, columns, group;
};
Weight check_weight(const char* op, const Tensor& w, const Tensor& scale, int64_t bits) {
  check_defined(op, "the weight", w), check_defined(op, "the scale", scale);
  check(bits == 8 || bits == 4, "[{}] expected 8 or 4 bits, got {}", op, bits);
  check(w.dim() == 2 && w.dtype() == (bits == 8 ? kInt8 : kUInt8),
        "[{}] expected a weight of {} with 2 dimensions, got {}", op, bits == 8 ? kInt8 : kUInt8, w);
  const int64_t rows = w.shape()[0], columns = w.shape()[1] * 8 / bits;
  check(is_floating(scale.dtype()) && (scale.dim() == 1 || scale.dim() == 2) && scale.shape()[0] == rows,
        "[{}] expected scales ({}) or ({}, groups) of floats, got {}", op, rows, rows, scale);
  const int64_t groups = scale.dim() == 1 ? 1 : scale.shape()[1];
  const int64_t group = groups > 0 ? columns / groups : 0;
  check(group * groups == columns && (bits == 8 || group % 32 == 0),
        "[{}] expected groups that divide the {} columns{}, got {} groups", op, columns,
        bits == 8 ? "" : " in multiples of 32", groups);
  return {rows, columns, group};
}

/// x in 8 bits as floats, zero points subtracted. Formulas as in core/formulas/quantize.h.
Tensor centred(const Tensor& x, const Tensor& scale, const Tensor& zero_point) {
  const Tensor q = clamp(add(round(mul(x, reciprocal(scale))), zero_point), Scalar(0), Scalar(255));
  return sub(nan_to_num(q), zero_point);
}
Tensor composite(const Tensor& x, const Tensor& w, const Tensor& scale, const Tensor& bias, QuantOp op,
                 const QuantizedLinearOptions& o) {
  if (op == QuantOp::WeightOnly) return linear(x, dequantize_weight(w, scale, o.bits), bias);
  Tensor x_scale = floats(o.input_scale),
         zero = o.input_zero_point.defined() ? to(o.input_zero_point, kFloat32) : Tensor();
  if (op == QuantOp::Dynamic) {
    const Tensor low = clamp(amin(x, -1, {.keepdim = true}), {}, Scalar(0)),
                 high = clamp(amax(x, -1, {.keepdim = true}), Scalar(0));
    x_scale = clamp(div(sub(high, low), 255), Scalar(1e-30));
    zero = clamp(round(div(neg(low), x_scale)), Scalar(0), Scalar(255));
  }
  const Tensor sums = linear(centred(x, x_scale, zero), to(w, kFloat32));
  const Tensor y = mul(sums, mul(x_scale, flatten(scale)));
  return bias.defined() ? add(y, bias) : y;
}

/// Float operations of a composite: in the dtypes that they are given.
struct Plainly {
  NoGrad no_grad;
  ScopedMode<AutocastRegion*> no_cast{modes.autocast, nullptr};
};

}  // namespace

Tensor dequantize_weight(const Tensor& w, const Tensor& scale, int64_t bits) {
  check_defined("dequantize_weight", "w", w, "scale", scale);
  const Weight s = check_weight("dequantize_weight", w, scale, bits);
  common_device("dequantize_weight", {&w, &scale});
  const int64_t groups = s.group > 0 ? s.columns / s.group : 1;
  const Tensor q = to(bits == 8 ? w : unpack_int4(w), kFloat32);
  return reshape(mul(reshape(q, {s.rows, groups, s.group}), reshape(floats(scale), {s.rows, groups, 1})),
                 {s.rows, s.columns});
}

Tensor quantized_linear(const Tensor& x, const Tensor& weight, const Tensor& scale, const QuantizedLinearOptions& o) {
  constexpr const char* name = "quantized_linear";
  check_defined(name, "the input", x);
  const Weight s = check_weight(name, weight, scale, o.bits);
  common_device(name, {&x, &weight, &scale, &o.bias, &o.input_scale, &o.input_zero_point});
  check(is_floating(x.dtype()) && x.dim() > 0 && x.size(-1) == s.columns,
        "[{}] expected an input of floats (..., {}) for {} features, got {}", name, s.columns, s.columns, x);
  check(!o.bias.defined() || (o.bias.dim() == 1 && o.bias.numel() == s.rows && is_floating(o.bias.dtype())),
        "[{}] expected a bias of {} floats, got {}", name, s.rows, o.bias);
  check(!o.dynamic || !o.input_scale.defined(), "[{}] expected dynamic or an input_scale, got both", name);
  const QuantOp op = o.dynamic ? QuantOp::Dynamic : o.input_scale.defined() ? QuantOp::Static : QuantOp::WeightOnly;
  if (op == QuantOp::Static) check_range(name, o.input_scale, o.input_zero_point);
  check(op == QuantOp::WeightOnly || (o.bits == 8 && s.group == s.columns && s.columns <= kLongestSum),
        "[{}] expected 8 bits, one scale for each row and at most {} features where activations are quantized, got {} "
        "bits, groups of {} and {} features",
        name, kLongestSum, o.bits, s.group, s.columns);
  Shape shape = x.shape();
  shape[x.dim() - 1] = s.rows;
  const DType dtype = x.dtype() == kFloat64 ? kFloat32 : x.dtype();  // of the kernel's activations
  Tensor y;
  {
    Plainly guard;
    const Tensor rows = reshape(to(x, dtype), {x.numel() / std::max<int64_t>(s.columns, 1), s.columns}),
                 scales = reshape(floats(scale), {s.rows, scale.numel() / std::max<int64_t>(s.rows, 1)});
    if (s.columns == 0) {
      y = zeros(shape, {.dtype = kFloat32, .device = x.device()});
      if (o.bias.defined()) y = add(y, floats(o.bias));
    } else {
      const auto kernel = [&] {
        Tensor out = empty(shape, {.dtype = dtype, .device = x.device()});
        const Tensor y_rows =
            reshape(out, {rows.shape()[0], s.rows});  // not behind the kernel, which would count as its own
        backend(x).quant_matmul(context(x), {.y = y_rows,
                                             .x = rows,
                                             .x_scale = floats(o.input_scale),
                                             .x_zero = o.input_zero_point,
                                             .w = weight,
                                             .w_scale = scales,
                                             .bias = floats(o.bias),
                                             .params = {op, o.bits, s.group}});
        return out;
      };
      y = kernel_or_composite(name, bool(backend(x).quant_matmul), kernel, [&] {
        return to(reshape(composite(floats(rows), weight, scales, floats(o.bias), op, o), shape), dtype);
      });
    }
    y = to(y, x.dtype());
  }
  const int64_t bits = o.bits;
  return record(name, y, {x, o.bias}, save(needed_by(0, weight), needed_by(0, scale)),
                [bits](Needs needs, const Tensor& g, const Tensor& w, const Tensor& scale) {
                  Grads out(2);
                  if (needs[0]) out[0] = matmul(g, to(dequantize_weight(w, scale, bits), g.dtype()));
                  if (needs[1]) out[1] = to(sum(reshape(g, {-1, g.size(-1)}), 0), kFloat32);
                  return out;
                });
}

Tensor quantized_conv(const Tensor& x, const Tensor& weight, const Tensor& scale, const Tensor& input_scale,
                      const Tensor& input_zero_point, const Tensor& bias, const ConvOptions& options) {
  constexpr const char* name = "quantized_conv";
  check_defined(name, "the input", x), check_defined(name, "the weight", weight),
      check_defined(name, "the scale", scale);
  common_device(name, {&x, &weight, &scale, &input_scale, &input_zero_point, &bias});
  check(weight.dtype() == kInt8 && weight.dim() >= 3 && weight.dim() <= 5 && weight.numel() > 0,
        "[{}] expected an int8 weight (O, C / groups, ...) with 1 to 3 spatial axes, got {}", name, weight);
  const int64_t rank = weight.dim(), o = weight.shape()[0];
  check(is_floating(x.dtype()), "[{}] expected an input of floats, got {}", name, x);
  check(scale.dim() == 1 && scale.numel() == o && is_floating(scale.dtype()),
        "[{}] expected {} scales of floats, got {}", name, o, scale);
  check(!bias.defined() || (bias.dim() == 1 && bias.numel() == o && is_floating(bias.dtype())),
        "[{}] expected a bias of {} floats, got {}", name, o, bias);
  check_range(name, input_scale, input_zero_point);
  check(weight.numel() / o <= kLongestSum, "[{}] expected at most {} products in a sum, got {}", name, kLongestSum,
        weight.numel() / o);
  if (x.dim() == rank - 1)
    return squeeze(quantized_conv(unsqueeze(x, 0), weight, scale, input_scale, input_zero_point, bias, options), 0);
  check(!modes.grad || !x.requires_grad(),
        "[{}] has no gradient: expected NoGrad, InferenceMode or an input that requires none, got {}", name, x);
  Plainly guard;
  check(options.groups > 0 && o % options.groups == 0 && x.dim() == rank &&
            x.shape()[1] == checked_mul(name, weight.shape()[1], options.groups),
        "[{}] given groups={} and a weight of size {}, expected an input (N, {}, ...), got {}", name, options.groups,
        weight.shape(), checked_mul(name, weight.shape()[1], options.groups), x);
  const auto conv = rank == 3 ? conv1d : rank == 4 ? conv2d : conv3d;
  const ConvGeometry geometry = conv_geometry(name, x, weight, options);
  const Tensor image = floats(x), add_to = floats(bias), scales = floats(scale), x_scale = floats(input_scale);
  const auto kernel = [&] {
    Tensor y = empty_image(geometry.shape, image, prefers_channels_last(image));
    if (y.numel())
      backend(x).quant_conv(context(x), {.y = y,
                                         .x = image,
                                         .x_scale = x_scale,
                                         .x_zero = input_zero_point,
                                         .w = weight,
                                         .w_scale = scales,
                                         .bias = add_to,
                                         .params = geometry.params});
    return y;
  };
  const auto by_floats = [&] {
    Shape along = Dims::filled(rank, 1);
    along[1] = o;
    Tensor y = conv(centred(image, x_scale, to(input_zero_point, kFloat32)), to(weight, kFloat32), {}, options);
    y = mul(y, reshape(mul(scales, x_scale), along));
    return bias.defined() ? add(y, reshape(add_to, along)) : y;
  };
  const bool suits = backend(x).quant_conv && !geometry.dropped;
  return noted(name, to(kernel_or_composite(name, suits, kernel, by_floats), x.dtype()));
}

}  // namespace tapir::inline v0
