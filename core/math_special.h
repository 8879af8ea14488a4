#pragma once
// For kernels: special functions, in double unless they say otherwise; shared by every device.
#include "math.h"

namespace tapir::inline v0::math {

inline constexpr double kPi = 3.14159265358979323846;

/// sin(pi x), 2 ulp: the nearest integer is taken off first, which is exact.
TAPIR_HD inline float sinpi(float x) {
  const float whole = std::nearbyint(x), r = x - whole, odd = whole - 2.0f * std::floor(0.5f * whole);
  const Angle a = reduce_angle(3.14159265358979f * r);
  const float y = sin_or_cos(a);
  return odd != 0 ? -y : y;
}
TAPIR_HD inline double sinpi(double x) { return std::sin(kPi * x); }
/// sin(pi x) / (pi x), 1 at 0.
template <class T> TAPIR_HD inline T sinc(T x) {
  const T y = sinpi(x) / (T(kPi) * x);
  return x == T(0) ? T(1) : y;
}
/// Its derivative (cos(pi x) - sinc(x)) / x; near 0 the first terms of the series, where that would cancel.
TAPIR_HD inline double sinc_slope(double x) {
  const double z = kPi * x;
  if (std::abs(x) < 1e-3) return -kPi * z / 3 * (1 - z * z / 10);
  return (std::cos(z) - std::sin(z) / z) / x;
}

/// The y with erf(y) = x: Winitzki's formula (2008), then Halley's method for erf(y) - x, or where x is near 1 for erfc(y) - (1 - x).
template <class T> TAPIR_HD inline T erfinv(T x) {
  constexpr T a = T(0.147), inverse = T(2 / (kPi * 0.147)), slope = T(1.12837916709551257390);
  const T s = abs(x), l = log1p(-s * s), half = inverse + T(0.5) * l, part = l / a;
  T y = std::sqrt(-part / (std::sqrt(half * half - part) + half));
  for (int step = 0; step < (sizeof(T) == 4 ? 1 : 2); ++step) {
    const T error = s < T(0.5) ? erf(y) - s : (T(1) - s) - erfc(y), u = error / (slope * exp(-y * y));
    y -= u / (T(1) + y * u);
  }
  y = s < T(1) ? y : s == T(1) ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::quiet_NaN();
  return x < T(0) ? -y : y;
}

/// ln |Gamma(x)|; the library's function on the host writes a global sign, its twin with _r does not.
#ifdef __CUDA_ARCH__
TAPIR_HD inline float lgamma(float x) { return ::lgammaf(x); }
TAPIR_HD inline double lgamma(double x) { return ::lgamma(x); }
#else
TAPIR_HD inline float lgamma(float x) {
  int sign;
  return ::lgammaf_r(x, &sign);
}
TAPIR_HD inline double lgamma(double x) {
  int sign;
  return ::lgamma_r(x, &sign);
}
#endif

/// The derivative of ln Gamma(x). Reflection to positive x, recurrence up to 10, then the asymptotic series.
TAPIR_HD inline double digamma(double x) {
  if (x == 0) return std::copysign(std::numeric_limits<double>::infinity(), -x);
  double y = 0;
  if (x < 0) {
    const double part = x - std::nearbyint(x);  // not floor, which would lose a small x
    if (!(std::abs(part) > 0)) return std::numeric_limits<double>::quiet_NaN();  // a pole, or -inf
    y = -kPi / std::tan(kPi * part);
    x = 1 - x;
  }
  for (; x < 10; x += 1) y -= 1 / x;
  const double z = 1 / (x * x);
  // B_2k / 2k
  const double tail = z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z * (1.0 / 12))));
  const double series = z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - tail)));
  return x < std::numeric_limits<double>::infinity() ? y + std::log(x) - 0.5 / x - series : x;
}

/// The Hurwitz zeta function, the sum of (q + k)^-s over k >= 0, for q > 0 and s > 1: Euler and Maclaurin's formula from q + n >= 10 on.
TAPIR_HD inline double positive_zeta(double s, double q) {
  // B_2j / (2j)!
  constexpr double terms[] = {1.0 / 12,
                              -1.0 / 720,
                              1.0 / 30240,
                              -1.0 / 1209600,
                              1.0 / 47900160,
                              -691.0 / 1307674368e3,
                              1.0 / 74724249600.0,
                              -3617.0 / 10670622842880e3};
  double sum = 0;
  for (; q < 10; q += 1) sum += std::pow(q, -s);
  const double power = std::pow(q, -s);
  if (power == 0) return sum;
  sum += power * q / (s - 1) + 0.5 * power;
  double factor = s * power / q;
  for (int j = 0; j < 8; ++j) {
    sum += terms[j] * factor;
    factor *= (s + 2 * j + 1) * (s + 2 * j + 2) / (q * q);
  }
  return sum;
}
/// The same for integers s and any q; infinity at 0, -1, -2, ... With r the fraction of q, the terms below 0 are those of r - 1,
/// r - 2, ... down to q.
TAPIR_HD inline double zeta(int s, double q) {
  if (q > 0) return positive_zeta(s, q);
  const double r = q - std::floor(q);
  if (q != q) return q;
  if (!(r > 0)) return std::numeric_limits<double>::infinity();
  const double below = positive_zeta(s, 1 - r) - positive_zeta(s, 1 - q);
  return positive_zeta(s, r) + (s % 2 ? -below : below);
}
/// The n-th derivative of digamma.
TAPIR_HD inline double polygamma(int n, double x) {
  if (n == 0) return digamma(x);
  if (n == 1 && x == -std::numeric_limits<double>::infinity()) return std::numeric_limits<double>::quiet_NaN();
  const double y = std::tgamma(n + 1.0) * zeta(n + 1, x);
  return n % 2 ? y : -y;
}

}  // namespace tapir::inline v0::math
