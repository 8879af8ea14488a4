// Device arithmetic that the host's libraries do not already have under CUDA's name.
#pragma once
#include <math.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <type_traits>

using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

// ---- bits
template <class T> T __ldg(const T* p) { return *p; }
template <class T> T __ldcs(const T* p) { return *p; }
template <class T> T __ldcg(const T* p) { return *p; }
template <class T> void __stcs(T* p, T v) { *p = v; }
constexpr int __popc(unsigned v) { return std::popcount(v); }
constexpr int __popcll(unsigned long long v) { return std::popcount(v); }
constexpr int __clz(int v) { return std::countl_zero(unsigned(v)); }
constexpr int __clzll(long long v) { return std::countl_zero(static_cast<unsigned long long>(v)); }
constexpr int __ffs(int v) { return v ? std::countr_zero(unsigned(v)) + 1 : 0; }
constexpr int __ffsll(long long v) { return v ? std::countr_zero(static_cast<unsigned long long>(v)) + 1 : 0; }
constexpr unsigned __brev(unsigned v) {
  unsigned r = 0;
  for (int i = 0; i < 32; ++i) r |= (v >> i & 1) << (31 - i);
  return r;
}
constexpr unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
constexpr int __mulhi(int a, int b) { return int(int64_t(a) * b >> 32); }
constexpr unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
constexpr unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return unsigned((uint64_t(high) << 32 | low) << (shift & 31) >> 32);
}
constexpr unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return unsigned((uint64_t(high) << 32 | low) >> (shift & 31));
}
constexpr unsigned __float_as_uint(float v) { return std::bit_cast<unsigned>(v); }
constexpr int __float_as_int(float v) { return std::bit_cast<int>(v); }
constexpr float __uint_as_float(unsigned v) { return std::bit_cast<float>(v); }
constexpr float __int_as_float(int v) { return std::bit_cast<float>(v); }
constexpr long long __double_as_longlong(double v) { return std::bit_cast<long long>(v); }
constexpr double __longlong_as_double(long long v) { return std::bit_cast<double>(v); }

// ---- arithmetic: each correctly rounded, or as good as the host's library
inline float rsqrtf(float v) { return float(1 / std::sqrt(double(v))); }
inline double rsqrt(double v) { return 1 / std::sqrt(v); }
inline float rsqrt(float v) { return rsqrtf(v); }
inline float __frcp_rn(float v) { return 1 / v; }
inline float __fsqrt_rn(float v) { return std::sqrt(v); }
inline float __frsqrt_rn(float v) { return rsqrtf(v); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float fdividef(float a, float b) { return a / b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline float __expf(float v) { return std::exp(v); }
inline float __exp10f(float v) { return std::pow(10.f, v); }
inline float __logf(float v) { return std::log(v); }
inline float __log2f(float v) { return std::log2(v); }
inline float __log10f(float v) { return std::log10(v); }
inline float __powf(float a, float b) { return std::pow(a, b); }
inline float __sinf(float v) { return std::sin(v); }
inline float __cosf(float v) { return std::cos(v); }
inline float __tanf(float v) { return std::tan(v); }
inline float __saturatef(float v) { return v > 0 ? v < 1 ? v : 1 : 0; }  // 0 for NaN
inline int __float2int_rn(float v) { return int(std::nearbyint(v)); }
inline int __float2int_rz(float v) { return int(v); }
inline float __int2float_rn(int v) { return float(v); }

// CUDA's min and max of mixed integers meet in the common type; of floats they are fmin and fmax: a NaN loses.
#define TAPIR_MIN_MAX(name, less, of_floats)                                                                       \
  template <class A, class B>                                                                                      \
  requires(std::is_arithmetic_v<A> && std::is_arithmetic_v<B>) constexpr std::common_type_t<A, B> name(A a, B b) { \
    using T = std::common_type_t<A, B>;                                                                            \
    if constexpr (std::is_floating_point_v<T>) return of_floats(T(a), T(b));                                       \
    else return T(a) less T(b) ? T(a) : T(b);                                                                      \
  }
TAPIR_MIN_MAX(min, <, std::fmin)
TAPIR_MIN_MAX(max, >, std::fmax)
#undef TAPIR_MIN_MAX

inline long long clock64() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
