#pragma once
#include "../math.h"
#include "../params.h"

// Note [8-bit floats]
// E4M3 has 4 bits of exponent and 3 of mantissa, no infinity, NaN where all bits but the sign are set, and 448 as its largest number; E5M2
// is an IEEE format with 5 and 2 bits, largest 57344 (Micikevicius et al., "FP8 Formats for Deep Learning", 2022). Numbers above the largest
// become the largest, as with NVIDIA's conversions; infinity and NaN become NaN. Every value of both is exact in bfloat16.
namespace tapir::inline v0::formulas {

TAPIR_HD constexpr float largest(Float8 format) { return format == Float8::E4M3 ? 448.0f : 57344.0f; }

/// Ties to even.
TAPIR_HD inline uint8_t to_float8(float x, Float8 format) {
  const int mantissa = format == Float8::E4M3 ? 3 : 2, bias = format == Float8::E4M3 ? 7 : 15;
  const uint32_t bits = std::bit_cast<uint32_t>(x), sign = bits >> 24 & 0x80, size = bits & 0x7fffffffu;
  if (size >= 0x7f800000u) return uint8_t(sign | 0x7f);
  if (size >= std::bit_cast<uint32_t>(largest(format))) return uint8_t(sign | (format == Float8::E4M3 ? 0x7eu : 0x7bu));
  if (size < uint32_t(128 - bias) << 23) {  // below 2^(1 - bias): multiples of 2^(1 - bias - mantissa)
    const float scale = math::power_of_two(bias - 1 + mantissa);
    return uint8_t(sign | uint32_t(std::nearbyint(std::bit_cast<float>(size) * scale)));
  }
  const int cut = 23 - mantissa;
  const uint32_t rounded = size + ((1u << (cut - 1)) - 1) + (size >> cut & 1);
  return uint8_t(sign | ((rounded >> cut) - (uint32_t(127 - bias) << mantissa)));
}

TAPIR_HD inline float from_float8(uint8_t x, Float8 format) {
  const int mantissa = format == Float8::E4M3 ? 3 : 2, bias = format == Float8::E4M3 ? 7 : 15;
  const uint32_t sign = uint32_t(x & 0x80) << 24, size = x & 0x7f;
  if (format == Float8::E4M3 ? size == 0x7f : size > 0x7c) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (format == Float8::E5M2 && size == 0x7c) return std::bit_cast<float>(sign | 0x7f800000u);
  if (size >> mantissa == 0) {
    const float unit = math::power_of_two(1 - bias - mantissa);
    return sign ? -(float(size) * unit) : float(size) * unit;
  }
  return std::bit_cast<float>(sign | ((size << (23 - mantissa)) + (uint32_t(127 - bias) << 23)));
}

/// What numbers are divided by before they become 8-bit floats, of which the largest size is `amax`.
TAPIR_HD inline float float8_scale(float amax, Float8 format) {
  constexpr float kLeast = std::numeric_limits<float>::min();
  const float scale = amax / largest(format);
  return amax == 0 ? 1.0f : scale < kLeast ? kLeast : scale;  // NaN stays
}

}  // namespace tapir::inline v0::formulas
