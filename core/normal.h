#pragma once
// For kernels: the normal numbers of docs/random.md, the same on every device (within the rounding of fused multiply-adds).
#include <bit>
#include <cmath>
#include <cstdint>

#include "math.h"

namespace tapir::inline v0 {

template <class T> struct NormalPair {
  T first, second;  // of an even lane and of the odd lane after it
};

// Note [Normals without libm]
// Box and Muller 1958: sqrt(-2 ln u) (cos, sin)(2 pi v), u in (0, 1], v in [0, 1). The float version has its own logarithm and
// sine, short polynomials without a branch: loops over it vectorise, and every device agrees.

/// ln(u) for u in [2^-32, 1]; relative error below 2e-7, exactly 0 at 1.
template <class T = float> constexpr T log_unit(T u) {
  // u = 2^e m with m in [sqrt(1/2), sqrt(2)); ln m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.1716
  const uint32_t bits = std::bit_cast<uint32_t>(u), shifted = bits - 0x3f3504f3u;
  const T e = T(int32_t(shifted) >> 23), m = std::bit_cast<T>((shifted & 0x007fffffu) + 0x3f3504f3u);
  const T s = (m - 1) / (m + 1), z = s * s;
  const T tail = s * z * (T(0.66666667) + z * (T(0.39999998) + z * (T(0.28573796) + z * T(0.2246974))));
  return e * T(0.693359375) + (T(2) * s + (tail + e * T(-2.12194440e-4)));
}

/// cos and sin of 2 pi v, v in [0, 1).
template <class T = float> constexpr NormalPair<T> circle_point(T v) {
  // quarter = the nearest multiple of 1/4; x = 2 pi (v - quarter / 4) lies in [-pi/4, pi/4].
  const int32_t quarter = int32_t(v * 4 + T(0.5));
  const T x = (v - T(quarter) * T(0.25)) * T(6.28318530717958647692), z = x * x;
  const T sine = x + x * z * (T(-0.16666667) + z * (T(8.3333310e-3) + z * T(-1.9840874e-4) + z * z * T(2.7525562e-6)));
  const T cosine = T(1) + z * (T(-0.5) + z * (T(4.1666638e-2) + z * (T(-1.3888378e-3) + z * T(2.4760495e-5))));
  const T a = quarter & 1 ? sine : cosine, b = quarter & 1 ? cosine : sine;
  return {(quarter + 1) & 2 ? -a : a, quarter & 2 ? -b : b};
}

/// Two independent standard normals from the words of an even lane and of the next one.
template <class T = float> constexpr NormalPair<T> normal_pair(uint32_t word0, uint32_t word1) {
  const T u = (T(word0) + 1) * T(0x1p-32), v = T(word1 >> 8) * T(0x1p-24);
  const T radius = std::sqrt(T(-2) * log_unit(u));
  const auto [c, s] = circle_point(v);
  return {radius * c, radius * s};
}
/// The same in double: each lane brings its words of plane 0 and plane 1.
template <class T = double>
TAPIR_HD inline NormalPair<T> normal_pair(uint32_t word0, uint32_t low0, uint32_t word1, uint32_t low1) {
  const T u = (T(uint64_t(word0) << 21 | low0 >> 11) + 1) * T(0x1p-53),
          v = T(uint64_t(word1) << 21 | low1 >> 11) * T(0x1p-53);
  const T radius = std::sqrt(T(-2) * std::log(u)), angle = T(6.28318530717958647692) * v;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace tapir::inline v0
