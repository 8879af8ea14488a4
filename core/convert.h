#pragma once
// For kernels: what becomes of a number in another element type, on every device.
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "dtype.h"
#include "scalar.h"

namespace tapir::inline v0 {

template <class T> inline constexpr bool is_half = std::same_as<T, Half> || std::same_as<T, BFloat16>;

/// A float as an integer: NaN gives 0, what does not fit saturates.
template <std::integral To, std::floating_point From> constexpr To saturate(From v) {
  // Powers of two are exact in every float type, the largest integer often is not. Where `below` rounds to the smallest
  // integer itself, that one takes the saturating way: the same value.
  constexpr From above = From(uint64_t(1) << (std::numeric_limits<To>::digits - 1)) * 2;
  constexpr From below = std::is_signed_v<To> ? -above - 1 : From(-1);
  const bool fits = v > below && v < above;
  const To inside = static_cast<To>(fits ? v : From(0));
  const To edge = v >= above ? std::numeric_limits<To>::max() : v <= below ? std::numeric_limits<To>::min() : To(0);
  return fits ? inside : edge;
}

/// Conversion between element types: floats to integers truncate and saturate, integers wrap, bool is "not 0".
template <class To, class From> constexpr To cast(From v) {
  if constexpr (std::same_as<To, From>) return v;
  else if constexpr (is_half<From>) return cast<To>(float(v));
  else if constexpr (is_half<To>) return To(cast<float>(v));
  else if constexpr (std::same_as<To, bool>) return v != From(0);
  else if constexpr (std::integral<To> && std::floating_point<From>) return saturate<To>(v);
  else return static_cast<To>(v);
}
template <class To> constexpr To cast(Scalar v) {
  return v.is_float() ? cast<To>(v.to_double()) : cast<To>(v.to_int());
}

}  // namespace tapir::inline v0
