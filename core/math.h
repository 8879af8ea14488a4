#pragma once
// For kernels: the float32 functions that the standard library has no vectorised form of. Branch-free, so that a loop over
// them vectorises; shared by every device. Errors in ulp are those that tests/cpu_kernels/unary_math_test.cpp allows. The float64
// overloads are the standard library's.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#ifdef __CUDACC__
#define TAPIR_HD __host__ __device__
#else
#define TAPIR_HD
#endif

namespace tapir::inline v0::math {

/// a b + c, rounded once where the machine can.
TAPIR_HD inline float fma(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__CUDACC__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

/// t^2 - square for the rounded square: what the rounding lost.
TAPIR_HD inline float square_rest(float t, float square) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__CUDACC__)
  return __builtin_fmaf(t, t, -square);
#else
  const float high = std::bit_cast<float>(std::bit_cast<uint32_t>(t) & 0xfffff000u),
              low = t - high;  // halves: exact products
  return ((high * high - square) + 2.0f * high * low) + low * low;
#endif
}

/// c[0] + c[1] x + c[2] x^2 + ...
template <class... C> TAPIR_HD inline float poly(float x, float c0, C... rest) {
  if constexpr (sizeof...(rest) == 0) return c0;
  else return fma(poly(x, rest...), x, c0);
}

/// The same in float64.
template <class... C> TAPIR_HD inline double poly_double(double x, double c0, C... rest) {
  if constexpr (sizeof...(rest) == 0) return c0;
  else return poly_double(x, rest...) * x + c0;
}

inline constexpr float kInf = std::numeric_limits<float>::infinity();

/// x = n ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 2^23 leaves the nearest integer in the low bits.
struct ExpParts {
  float r;
  int32_t n;
};
TAPIR_HD inline ExpParts reduce_exp(float x) {
  constexpr float shift = 12582912.0f;
  const float shifted = fma(x, 1.44269504f, shift), n = shifted - shift;
  const float r = fma(n, 2.12194440e-4f, fma(n, -0.693359375f, x));
  return {r, int32_t(std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(shift))};
}
/// 2^n for -126 <= n <= 127.
TAPIR_HD inline float power_of_two(int32_t n) { return std::bit_cast<float>(uint32_t(n + 127) << 23); }

/// e^x, 1 ulp.
TAPIR_HD inline float exp(float x) {
  const auto [r, n] = reduce_exp(x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x);
  const float p = poly(r, 1.0f, 1.0f, 0.5f, 1.0f / 6, 1.0f / 24, 1.0f / 120, 1.0f / 720, 1.0f / 5040);
  const int32_t half = n >> 1;  // two factors: results below 2^-126 are denormal, 2^128 is no float
  return p * power_of_two(half) * power_of_two(n - half);
}
/// e^x - 1, 2 ulp.
TAPIR_HD inline float expm1(float x) {
  const auto [r, n] = reduce_exp(x < -18.0f ? -18.0f : x > 88.8f ? 88.8f : x);
  const float tail = poly(r, 0.5f, 1.0f / 6, 1.0f / 24, 1.0f / 120, 1.0f / 720, 1.0f / 5040, 1.0f / 40320);
  const float q = fma(r * r, tail, r);  // e^r - 1
  const float s = power_of_two(n - 1);  // half the power: n may be 128
  const float y = 2.0f * fma(s, q, s - 0.5f);
  return x == 0 ? x : y;
}

/// ln x, 1 ulp.
TAPIR_HD inline float log(float x) {
  // x = 2^e (1 + f), 1 + f in [sqrt(1/2), sqrt(2)). ln(1 + f) = 2 atanh(s), s = f / (2 + f), written as f minus a small term.
  const bool tiny = x < 1.17549435e-38f;
  const uint32_t shifted = std::bit_cast<uint32_t>(tiny ? x * 8388608.0f : x) - 0x3f3504f3u;
  const float e = float((int32_t(shifted) >> 23) - (tiny ? 23 : 0));
  const float f = std::bit_cast<float>((shifted & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  const float s = f / (2.0f + f), z = s * s, h = 0.5f * f * f;
  const float tail = z * poly(z, 2.0f / 3, 2.0f / 5, 2.0f / 7, 2.0f / 9);
  const float y = fma(e, 0.693359375f, f - (h - fma(s, h + tail, e * -2.12194440e-4f)));
  return x > 0 ? (x < kInf ? y : x) : x == 0 ? -kInf : std::numeric_limits<float>::quiet_NaN();
}
/// ln(1 + x), 2 ulp.
TAPIR_HD inline float log1p(float x) {
  const float u = 1.0f + x;
  const float y = log(u) - ((u - 1.0f) - x) / u;  // what rounding 1 + x lost
  return u == 1.0f ? x : u > 0 && u < kInf ? y : log(u);
}
/// ln(1 + x) for 0 <= x <= 1, 2 ulp: log's formula with f = x, and a polynomial that holds for larger f.
TAPIR_HD inline float log1p_unit(float x) {
  const float s = x / (2.0f + x), z = s * s, h = 0.5f * x * x;
  return x - (h - s * (h + z * poly(z, 0.666664132f, 0.400216992f, 0.279991384f, 0.280244698f)));
}

TAPIR_HD inline float abs(float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7fffffffu); }
/// The magnitude of x >= 0 with the sign of s.
TAPIR_HD inline float with_sign(float x, float s) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x) | (std::bit_cast<uint32_t>(s) & 0x80000000u));
}

/// tanh x, 3 ulp.
TAPIR_HD inline float tanh(float x) {
  const float a = abs(x);
  const float t = expm1(2.0f * (a > 10.0f ? 10.0f : a));
  return with_sign(t / (t + 2.0f), x);
}
/// 1 / (1 + e^-x), 3 ulp.
TAPIR_HD inline float sigmoid(float x) {
  const float e = exp(-abs(x));
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}

/// erfc(t) e^(t^2) for 0 <= t <= 11: a polynomial in (t - 2) / (t + 2), fitted to relative error 3e-8.
TAPIR_HD inline float scaled_erfc(float t) {
  const float u = (t - 2.0f) / (t + 2.0f);
  return poly(u, 1.276978377f, -0.09276396319f, -0.166030434f, 0.1640551989f, -0.0542138765f, -0.008062068434f,
              0.008661998349f, 0.001328767718f, -0.001260634359f, -0.0004225154714f) /
         fma(2.0f, t, 1.0f);
}
/// erf x, 2 ulp.
TAPIR_HD inline float erf(float x) {
  const float a = abs(x), t = a > 5.0f ? 5.0f : a, z = t * t;
  const float small = x * poly(z, 1.128379166f, -0.3761262667f, 0.1128359472f, -0.02685421201f, 0.005189087423f,
                               -0.0008016864287f, 7.875875063e-5f);
  const float large = with_sign(1.0f - exp(-z) * scaled_erfc(t), x);
  return a < 1.0f ? small : large;
}

/// The normal distribution at x: cdf Phi(x) with small relative error on both sides, density phi(x).
struct Gaussian {
  float cdf, density;
};
TAPIR_HD inline Gaussian gaussian(float x) {
  const float a = abs(x), t = a > 15.0f ? 15.0f : a;
  const float square = t * t, lost = square_rest(t, square);
  const float e0 = exp(-0.5f * square), e = fma(e0, -0.5f * lost, e0);
  const float upper = 0.5f * e * scaled_erfc(t * 0.707106781f);  // 1 - Phi(|x|)
  return {x < 0 ? upper : 1.0f - upper, e * 0.398942280f};
}

/// Where sin() and cos() below hold: beyond, the quotient by pi / 2 takes too many bits.
inline constexpr float kMaxAngle = 1e6f;
struct Angle {
  float r;           // in [-pi/4, pi/4]
  uint32_t quarter;  // x = r + quarter pi / 2
};
TAPIR_HD inline Angle reduce_angle(float x) {
  constexpr double shift = 6755399441055744.0;  // 1.5 2^52
  const double n = (double(x) * 0.63661977236758134 + shift) - shift;
  const double r = (double(x) - n * 1.57079632673412561417e+00) - n * 6.07710050650619224932e-11;
  return {float(r), uint32_t(int32_t(n))};
}
TAPIR_HD inline float sin_or_cos(Angle a) {
  const float z = a.r * a.r;
  const float s = fma(a.r * z, poly(z, -1.0f / 6, 1.0f / 120, -1.0f / 5040, 1.0f / 362880), a.r);
  const float c = poly(z, 1.0f, -0.5f, 1.0f / 24, -1.0f / 720, 1.0f / 40320, -1.0f / 3628800);
  const float y = a.quarter & 1 ? c : s;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(y) ^ ((a.quarter & 2) << 30));
}
/// sin x and cos x for |x| <= kMaxAngle, 2 ulp.
TAPIR_HD inline float sin(float x) {
  const float y = sin_or_cos(reduce_angle(x));
  return x == 0 ? x : y;
}
TAPIR_HD inline float cos(float x) {
  Angle a = reduce_angle(x);
  ++a.quarter;
  return sin_or_cos(a);
}

/// 2^x, 1 ulp.
TAPIR_HD inline float exp2(float x) {
  const float t = x < -151.0f ? -151.0f : x > 129.0f ? 129.0f : x, shift = 12582912.0f;
  const float shifted = t + shift, r = t - (shifted - shift);  // exact
  const int32_t n = int32_t(std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(shift)), half = n >> 1;
  const float p = poly(r, 1.0f, 0.69314718056f, 0.24022650696f, 0.055504108665f, 0.0096181291076f, 0.0013333558147f,
                       1.5403530394e-4f, 1.5252733804e-5f);
  return p * power_of_two(half) * power_of_two(n - half);
}
/// 1 - erf x, with small relative error where it is tiny, 4 ulp.
TAPIR_HD inline float erfc(float x) {
  const float a = abs(x), t = a > 10.5f ? 10.5f : a, square = t * t, lost = square_rest(t, square);
  const float e0 = exp(-square), e = fma(e0, -lost, e0);
  const float upper = e * scaled_erfc(t);
  return a < 0.5f ? 1.0f - erf(x) : x < 0 ? 2.0f - upper : x != x ? x : upper;
}

/// x^y for 0 < x < inf and finite y, 1 ulp: by log2 and exp2 in double, where nothing overflows and denormals are ordinary.
TAPIR_HD inline float pow_positive(float x, float y) {
  // x = 2^e m, m in [sqrt(1/2), sqrt(2)), log2 m = 2 / ln 2 atanh(s), s = (m - 1) / (m + 1).
  constexpr uint64_t half_root = 0x3fe6a09e667f3bcd, fraction = 0x000fffffffffffff;
  const uint64_t from = std::bit_cast<uint64_t>(double(x)) - half_root + (uint64_t(1023) << 52);
  const double e = double(int32_t(from >> 52) - 1023), m = std::bit_cast<double>((from & fraction) + half_root);
  const double s = (m - 1) / (m + 1), z = s * s;
  const double series = poly_double(z, 1.0, 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15);
  const double t = double(y) * (e + s * series * 2.8853900817779268147);
  constexpr double shift = 6755399441055744.0;  // 1.5 2^52
  const double shifted = t + shift, r = (t - (shifted - shift)) * 0.69314718055994530942;
  const double p = poly_double(r, 1.0, 1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320,
                               1.0 / 362880, 1.0 / 3628800);
  const float power = float(p * std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023) << 52));
  return t > 200 ? kInf : t < -200 ? 0.0f : power;
}
/// x^y with the special cases of C, 1 ulp.
TAPIR_HD inline float pow(float x, float y) {
#ifdef __CUDA_ARCH__
  return ::powf(x, y);
#else
  const float a = abs(x);
  if (y == 0 || x == 1) return 1.0f;
  if (x != x || y != y) return x + y;
  const bool whole = abs(y) >= 16777216.0f || float(int32_t(y)) == y,
             odd = abs(y) < 16777216.0f && whole && int32_t(y) % 2;
  if (x < 0 && a < kInf && !whole) return std::numeric_limits<float>::quiet_NaN();
  float size;
  if (abs(y) == kInf) size = a == 1 ? 1.0f : (a > 1) == (y > 0) ? kInf : 0.0f;
  else if (a == 0 || a == kInf) size = (a > 0) == (y > 0) ? kInf : 0.0f;
  else size = pow_positive(a, y);
  return odd ? with_sign(size, x) : size;
#endif
}

// Inverse hyperbolic functions by log1p, which keeps small arguments exact; beyond 2^24 the square root is |x|.
/// 3 ulp.
TAPIR_HD inline float asinh(float x) {
  const float a = abs(x), t = a > 1.6e7f ? 1.0f : a;
  const float y = log1p(t + t * t / (1.0f + std::sqrt(fma(t, t, 1.0f))));
  return with_sign(a > 1.6e7f ? log(a) + 0.693147181f : y, x);
}
TAPIR_HD inline float acosh(float x) {
  const float t = (x > 1.6e7f ? 2.0f : x) - 1.0f;
  const float y = x > 1.6e7f ? log(x) + 0.693147181f : log1p(t + std::sqrt(fma(t, t, 2.0f * t)));
  return x >= 1 ? y : std::numeric_limits<float>::quiet_NaN();
}
TAPIR_HD inline float atanh(float x) {
  const float a = abs(x);
  return with_sign(0.5f * log1p(2.0f * a / (1.0f - a)), x);
}

TAPIR_HD inline double exp(double x) { return std::exp(x); }
TAPIR_HD inline double pow(double x, double y) { return std::pow(x, y); }
TAPIR_HD inline double exp2(double x) { return std::exp2(x); }
TAPIR_HD inline double erfc(double x) { return std::erfc(x); }
TAPIR_HD inline double asinh(double x) { return std::asinh(x); }
TAPIR_HD inline double acosh(double x) { return std::acosh(x); }
TAPIR_HD inline double atanh(double x) { return std::atanh(x); }
TAPIR_HD inline double abs(double x) { return std::abs(x); }
TAPIR_HD inline double expm1(double x) { return std::expm1(x); }
TAPIR_HD inline double log(double x) { return std::log(x); }
TAPIR_HD inline double log1p(double x) { return std::log1p(x); }
TAPIR_HD inline double log1p_unit(double x) { return std::log1p(x); }
TAPIR_HD inline double tanh(double x) { return std::tanh(x); }
TAPIR_HD inline double erf(double x) { return std::erf(x); }
TAPIR_HD inline double sigmoid(double x) {
  const double e = std::exp(-std::abs(x));
  return (x < 0 ? e : 1.0) / (1.0 + e);
}
struct GaussianDouble {
  double cdf, density;
};
TAPIR_HD inline GaussianDouble gaussian(double x) {
  return {0.5 * std::erfc(-x * 0.70710678118654752440), std::exp(-0.5 * x * x) * 0.39894228040143267794};
}

// Activations and their derivatives, for float and double.

/// x Phi(x).
template <class T> TAPIR_HD inline T gelu(T x) { return x * gaussian(x).cdf; }
template <class T> TAPIR_HD inline T gelu_slope(T x) {
  const auto [cdf, density] = gaussian(x);
  return cdf + x * density;
}
/// x (1 + tanh(u)) / 2 = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3).
template <class T> TAPIR_HD inline T gelu_tanh(T x) {
  return x * sigmoid(T(1.59576912160573071176) * (x + T(0.044715) * x * x * x));
}
template <class T> TAPIR_HD inline T gelu_tanh_slope(T x) {
  const T s = sigmoid(T(1.59576912160573071176) * (x + T(0.044715) * x * x * x));
  return s + x * s * (T(1) - s) * T(1.59576912160573071176) * (T(1) + T(3 * 0.044715) * x * x);
}
/// x sigmoid(x).
template <class T> TAPIR_HD inline T silu(T x) { return x * sigmoid(x); }
template <class T> TAPIR_HD inline T silu_slope(T x) {
  const T s = sigmoid(x);
  return s * (T(1) + x * (T(1) - s));
}

/// sqrt(a^2 + b^2) without overflow; an infinity wins over a NaN. The squares of floats are exact in double.
TAPIR_HD inline float hypot(float a, float b) {
  const float y = float(std::sqrt(double(a) * double(a) + double(b) * double(b)));
  return abs(a) == kInf || abs(b) == kInf ? kInf : y;
}
TAPIR_HD inline double hypot(double a, double b) { return std::hypot(a, b); }
/// ln(e^a + e^b) without overflow; equal infinities stay.
template <class T> TAPIR_HD inline T logaddexp(T a, T b) {
  const T high = a > b ? a : b, low = a > b ? b : a;
  const T y = high + log1p_unit(exp(low - high));
  return a == b && a - a != T(0) ? a : y;
}
/// ln(e^x + 1) without overflow.
template <class T> TAPIR_HD inline T softplus(T x) { return (x > T(0) ? x : T(0)) + log1p_unit(exp(-abs(x))); }
/// tanh(ln(1 + e^x)) = n / (n + 2), n = e^x (e^x + 2); 1 from 20 on.
template <class T> TAPIR_HD inline T tanh_softplus(T x) {
  const T e = exp(x > T(20) ? T(20) : x), n = e * (e + T(2));
  return n / (n + T(2));
}
template <class T> TAPIR_HD inline T mish_slope(T x) {
  const T t = tanh_softplus(x);
  return t + x * sigmoid(x) * (T(1) - t * t);
}

}  // namespace tapir::inline v0::math
