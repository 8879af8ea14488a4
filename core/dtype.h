#pragma once
#include <bit>
#include <cstdint>
#include <limits>
#include <string_view>

namespace tapir::inline v0 {

enum class DType : uint8_t { Float32, Float64, Float16, BFloat16, Int64, Int32, Int16, Int8, UInt8, Bool };
inline constexpr int kNumDTypes = 10;

inline constexpr DType kFloat32 = DType::Float32, kFloat64 = DType::Float64, kFloat16 = DType::Float16,
                       kBFloat16 = DType::BFloat16, kInt64 = DType::Int64, kInt32 = DType::Int32, kInt16 = DType::Int16,
                       kInt8 = DType::Int8, kUInt8 = DType::UInt8, kBool = DType::Bool;

/// IEEE binary16. Conversion from float rounds to nearest even; overflow gives infinity.
struct Half {
  uint16_t bits = 0;
  Half() = default;
  constexpr explicit Half(float value) : bits(from_float(value)) {}
  constexpr operator float() const { return to_float(bits); }
  static constexpr uint16_t from_float(float value);
  static constexpr float to_float(uint16_t bits);
};

/// The upper half of a binary32. Conversion from float rounds to nearest even.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  constexpr explicit BFloat16(float value) : bits(from_float(value)) {}
  constexpr operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }
  static constexpr uint16_t from_float(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) return uint16_t(u >> 16 | 0x40);  // a NaN stays one
    return uint16_t((u + 0x7fffu + (u >> 16 & 1)) >> 16);
  }
};

constexpr uint16_t Half::from_float(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return uint16_t(sign | 0x7e00u | (a >> 13 & 0x3ffu));
  if (a >= 0x47800000u) return uint16_t(sign | 0x7c00u);  // 65536 and above; 65520 to 65536 round up below
  if (a < 0x38800000u) {  // below 2^-14: adding 0.5 aligns the bits to multiples of 2^-24
    const float shifted = std::bit_cast<float>(a) + 0.5f;
    return uint16_t(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f)));
  }
  return uint16_t(sign | ((a + 0xfffu + (a >> 13 & 1) - 0x38000000u) >> 13));
}

constexpr float Half::to_float(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000u) << 16, exponent = bits >> 10 & 0x1fu, fraction = bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = float(fraction) * 0x1p-24f;
  return sign ? -magnitude : magnitude;
}

/// Bytes of one element.
constexpr int64_t size_of(DType t) {
  constexpr int64_t sizes[] = {4, 8, 2, 2, 8, 4, 2, 1, 1, 1};
  return sizes[int(t)];
}
constexpr bool is_floating(DType t) { return int(t) <= int(DType::BFloat16); }
constexpr bool is_integral(DType t) { return !is_floating(t) && t != DType::Bool; }
/// "float32", "bool", ...
std::string_view name_of(DType t);
/// The dtype of that name; ValueError lists the names there are.
DType dtype_from_name(std::string_view name);
/// PyTorch's promotion of two dtypes of equal rank (both tensors with dimensions, or both without).
DType promote_types(DType a, DType b);
/// What arithmetic on 16-bit floats computes in: float32 for them, the type itself otherwise.
constexpr DType compute_type(DType t) { return t == kFloat16 || t == kBFloat16 ? kFloat32 : t; }

template <class T> struct DTypeOf;
template <> struct DTypeOf<float> { static constexpr DType value = kFloat32; };
template <> struct DTypeOf<double> { static constexpr DType value = kFloat64; };
template <> struct DTypeOf<Half> { static constexpr DType value = kFloat16; };
template <> struct DTypeOf<BFloat16> { static constexpr DType value = kBFloat16; };
template <> struct DTypeOf<int64_t> { static constexpr DType value = kInt64; };
template <> struct DTypeOf<int32_t> { static constexpr DType value = kInt32; };
template <> struct DTypeOf<int16_t> { static constexpr DType value = kInt16; };
template <> struct DTypeOf<int8_t> { static constexpr DType value = kInt8; };
template <> struct DTypeOf<uint8_t> { static constexpr DType value = kUInt8; };
template <> struct DTypeOf<bool> { static constexpr DType value = kBool; };
template <class T>
concept Element = requires {
  DTypeOf<T>::value;
};
template <Element T> inline constexpr DType dtype_of = DTypeOf<T>::value;

}  // namespace tapir::inline v0
