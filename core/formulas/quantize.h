#pragma once
#include "../math.h"

// Note [Quantized numbers]
// A real x is scale (q - zero_point). Weights are int8 (or 4 bits), symmetric: zero_point is 0, so that a product over k needs no
// correction of theirs. Activations are uint8 with a zero point z, which is corrected once an output: sum over k of (q - z) w =
// sum q w - z sum w. 0 is always exact, since padding and what follows a ReLU are full of it.
namespace tapir::inline v0::formulas {

struct QuantScale {
  float scale = 1, zero_point = 0;
};
/// Of uint8 for values in [low, high]; the range is stretched to hold 0. NaN where one of them is not finite.
TAPIR_HD inline QuantScale affine_scale(float low, float high) {
  low = low < 0 ? low : 0, high = high > 0 ? high : 0;
  QuantScale s;
  s.scale = (high - low) / 255;
  if (s.scale == math::kInf) s.scale = high / 255 - low / 255;
  if (s.scale < 1e-30f) s.scale = 1e-30f;
  const float zero = std::nearbyint(-low / s.scale);
  s.zero_point = zero < 0 ? 0 : zero > 255 ? 255 : zero;
  return s;
}
/// round(x / scale) + zero_point in [0, 255], ties to even; 0 for NaN.
TAPIR_HD inline uint8_t quantize_uint8(float x, float inverse, float zero_point) {
  float q = std::nearbyint(x * inverse) + zero_point;
  q = q > 0 ? q : 0;
  return uint8_t(int32_t(q < 255 ? q : 255));
}

}  // namespace tapir::inline v0::formulas
