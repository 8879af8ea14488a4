#pragma once
// For kernels: arithmetic that means the same on integers of any width, bool and floats, on every device.
#include <cmath>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "math.h"

namespace tapir::inline v0 {

// Integers wrap, in unsigned arithmetic at least as wide as int; bool: + is or, x is and.
template <class T> using Wide = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <class T> constexpr T wrap_add(T a, T b) {
  if constexpr (std::same_as<T, bool>) return a | b;
  else if constexpr (std::integral<T>) return T(Wide<T>(a) + Wide<T>(b));
  else return a + b;
}
template <class T> constexpr T wrap_sub(T a, T b) {
  if constexpr (std::same_as<T, bool>) return a ^ b;
  else if constexpr (std::integral<T>) return T(Wide<T>(a) - Wide<T>(b));
  else return a - b;
}
template <class T> constexpr T wrap_mul(T a, T b) {
  if constexpr (std::same_as<T, bool>) return a & b;
  else if constexpr (std::integral<T>) return T(Wide<T>(a) * Wide<T>(b));
  else return a * b;
}

template <class T> constexpr bool is_below_zero(T x) {
  if constexpr (std::is_signed_v<T>) return x < T(0);
  else return false;
}

// Integers. A divisor of 0 gives 0, for the caller to report; the least value divided by -1 wraps.
/// a / b, rounded towards 0.
template <std::integral T> constexpr T trunc_quotient(T a, T b) {
  if (b == T(0)) return 0;
  if constexpr (std::is_signed_v<T>)
    if (b == T(-1)) return wrap_sub(T(0), a);
  return T(a / b);
}
/// a - b trunc_quotient(a, b)
template <std::integral T> constexpr T trunc_rest(T a, T b) {
  return b == T(0) ? T(0) : wrap_sub(a, wrap_mul(trunc_quotient(a, b), b));
}
/// a / b, rounded towards minus infinity.
template <std::integral T> constexpr T floor_quotient(T a, T b) {
  const T r = trunc_rest(a, b);
  return T(trunc_quotient(a, b) - (r != T(0) && is_below_zero(r) != is_below_zero(b)));
}
/// a - b floor_quotient(a, b): has the divisor's sign.
template <std::integral T> constexpr T floor_rest(T a, T b) {
  const T r = trunc_rest(a, b);
  return r != T(0) && is_below_zero(r) != is_below_zero(b) ? wrap_add(r, b) : r;
}
/// a^b by squaring; a negative exponent leaves what is an integer: 1, -1, and 0 for the others.
template <std::integral T> constexpr T power(T a, T b) {
  if constexpr (std::is_signed_v<T>)
    if (b < 0) return a == 1 ? T(1) : a == -1 ? (b & 1 ? T(-1) : T(1)) : T(0);
  T result = 1;
  for (; b; b = T(b >> 1)) {
    if (b & 1) result = wrap_mul(result, a);
    a = wrap_mul(a, a);
  }
  return result;
}
/// a moved by b bits, with zeros or, to the right, the sign following; b outside [0, bits) moves all of them.
template <std::integral T> constexpr T shift_left(T a, T b) {
  const bool fits = !is_below_zero(b) && int64_t(b) < 8 * int64_t(sizeof(T));
  return fits ? T(Wide<T>(a) << (fits ? int(b) : 0)) : T(0);
}
template <std::integral T> constexpr T shift_right(T a, T b) {
  constexpr int bits = 8 * int(sizeof(T));
  const bool fits = !is_below_zero(b) && int64_t(b) < bits;
  const int n = fits ? int(b) : bits - 1;
  return fits || std::is_signed_v<T> ? T(a >> n) : T(0);
}

// The same of floats, by Python's rules.
template <std::floating_point T> TAPIR_HD inline T trunc_quotient(T a, T b) { return std::trunc(a / b); }
template <std::floating_point T> TAPIR_HD inline T trunc_rest(T a, T b) { return std::fmod(a, b); }
template <std::floating_point T> TAPIR_HD inline T floor_quotient(T a, T b) {
  if (b == T(0)) return a / b;
  const T r = std::fmod(a, b);
  T q = (a - r) / b;
  if (r != T(0) && (r < T(0)) != (b < T(0))) q -= 1;
  if (q == T(0)) return std::copysign(T(0), a / b);
  const T whole = std::floor(q);  // q is a whole number but for its rounding
  return q - whole > T(0.5) ? whole + 1 : whole;
}
template <std::floating_point T> TAPIR_HD inline T floor_rest(T a, T b) {
  const T r = std::fmod(a, b);
  return r != T(0) && (r < T(0)) != (b < T(0)) ? r + b : r;
}
template <std::floating_point T> TAPIR_HD inline T power(T a, T b) { return math::pow(a, b); }

}  // namespace tapir::inline v0
