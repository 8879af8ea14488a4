#pragma once
#include "conv.h"

// Quantized numbers are plain tensors of int8, uint8 or int32 beside their scales: x = scale (q - zero_point), Note [Quantized numbers]
// in core/formulas/quantize.h. None of the casts to integers has a gradient; fake_quantize passes it straight through.
namespace tapir::inline v0 {

/// round(x / scale) + zero_point, ties to even, saturated: of dtype int8, uint8 or int32. ValueError for a scale that is not above 0 and
/// finite and a zero_point outside the dtype.
Tensor quantize_per_tensor(const Tensor& x, double scale, int64_t zero_point, DType dtype);
/// The same with scales and zero_points (n) along `axis`, which has n elements. An absent zero_points: 0.
Tensor quantize_per_channel(const Tensor& x, const Tensor& scales, const Tensor& zero_points, int64_t axis,
                            DType dtype);
/// scale (q - zero_point) in float32.
Tensor dequantize(const Tensor& q, double scale, int64_t zero_point = 0);
Tensor dequantize_per_channel(const Tensor& q, const Tensor& scales, const Tensor& zero_points, int64_t axis);
/// What quantizing does to x, in x's dtype; the gradient passes where q lies in [quant_min, quant_max]. Jacob et al. 2018, arXiv 1712.05877.
Tensor fake_quantize_per_tensor_affine(const Tensor& x, double scale, int64_t zero_point, int64_t quant_min,
                                       int64_t quant_max);
Tensor fake_quantize_per_channel_affine(const Tensor& x, const Tensor& scale, const Tensor& zero_point, int64_t axis,
                                        int64_t quant_min, int64_t quant_max);

/// Integers in [-8, 7], (..., K) int8, as two in a byte, (..., K / 2) uint8: element 2 i in the lower half, 8 added.
Tensor pack_int4(const Tensor& q);
Tensor unpack_int4(const Tensor& packed);

struct QuantizedLinearOptions {
  Tensor bias = {};              // (O), float32
  int64_t bits = 8;              // 4: the weight is packed
  bool dynamic = false;          // activations are quantized to 8 bits, each row by its own range
  Tensor input_scale = {};       // 0-dim float32: activations are quantized by this range
  Tensor input_zero_point = {};  // 0-dim int32, from 0 to 255
};
/// x (..., K) floats times a quantized weight: (O, K) int8 or (O, K / 2) packed, scale (O) or (O, groups) float32 -> (..., O) in x's dtype.
/// Its gradient is that of the dequantized weight.
Tensor quantized_linear(const Tensor& x, const Tensor& weight, const Tensor& scale,
                        const QuantizedLinearOptions& options = {});
/// The float weight that this one stands for, (O, K).
Tensor dequantize_weight(const Tensor& weight, const Tensor& scale, int64_t bits = 8);
/// A convolution in 8 bits: x (N, C, ...) or (C, ...) floats, 1 to 3 spatial axes, weight (O, C / groups, ...) int8, scale (O); activations
/// by input_scale (0-dim float32) and input_zero_point (0-dim int32, from 0 to 255).
Tensor quantized_conv(const Tensor& x, const Tensor& weight, const Tensor& scale, const Tensor& input_scale,
                      const Tensor& input_zero_point, const Tensor& bias = {}, const ConvOptions& options = {});

}  // namespace tapir::inline v0
