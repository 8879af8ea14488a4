#include "convert.h"

#include <algorithm>
#include <cstring>

#include "../core/dispatch.h"
#if defined(__F16C__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace tapir::inline v0::cpu {
namespace {

template <class To, class From> void convert(int64_t n, void* to, const void* from) {
  To* out = static_cast<To*>(to);
  const Stored<From>* x = static_cast<const Stored<From>*>(from);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::same_as<From, bool> && std::is_arithmetic_v<To>) out[i] = x[i] != 0 ? To(1) : To(0);
    else out[i] = cast<To>(from_stored<From>(x[i]));
  }
}

template <class T> void same(int64_t n, void* to, const void* from) { std::memcpy(to, from, size_t(n) * sizeof(T)); }

#if defined(__F16C__)
void eight(float* to, const Half* from) {
  _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}
void eight(Half* to, const float* from) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(__aarch64__)
void eight(float* to, const Half* from) {
  const float16x8_t x = vreinterpretq_f16_u16(vld1q_u16(&from->bits));
  vst1q_f32(to, vcvt_f32_f16(vget_low_f16(x))), vst1q_f32(to + 4, vcvt_high_f32_f16(x));
}
void eight(Half* to, const float* from) {
  const float16x8_t x = vcvt_high_f16_f32(vcvt_f16_f32(vld1q_f32(from)), vld1q_f32(from + 4));
  vst1q_u16(&to->bits, vreinterpretq_u16_f16(x));
}
#endif
/// The exact conversions of core/dtype.h have branches; the CPU has an instruction with the same results.
template <class To, class From> void by_eights(int64_t n, void* to, const void* from) {
  int64_t i = 0;
  const From* x = static_cast<const From*>(from);
  To* out = static_cast<To*>(to);
#if defined(__F16C__) || defined(__aarch64__)
  for (; i + 8 <= n; i += 8) eight(out + i, x + i);
#endif
  for (; i < n; ++i) out[i] = To(x[i]);
}

template <class F> Converter from_float() {
  if constexpr (std::same_as<F, Half>) return by_eights<Half, float>;
  else return convert<F, float>;
}
template <class F> Converter to_float() {
  if constexpr (std::same_as<F, Half>) return by_eights<float, Half>;
  else return convert<float, F>;
}

constexpr int64_t kBlock = 256;

/// A 16-bit float to or from anything else goes through float32, a block at a time.
template <class To, class From> void convert_through_float(int64_t n, void* to, const void* from) {
  float block[kBlock];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t m = std::min(kBlock, n - i);
    const void* x = static_cast<const From*>(from) + i;
    void* out = static_cast<To*>(to) + i;
    if constexpr (is_half<From>) to_float<From>()(m, block, x);
    else convert<float, From>(m, block, x);
    if constexpr (is_half<To>) from_float<To>()(m, out, block);
    else convert<To, float>(m, out, block);
  }
}

template <class To, class From> Converter pick() {
  if constexpr (std::same_as<To, From>) return same<To>;
  else if constexpr (std::same_as<From, float> && is_half<To>) return from_float<To>();
  else if constexpr (std::same_as<To, float> && is_half<From>) return to_float<From>();
  else if constexpr (is_half<To> || is_half<From>) return convert_through_float<To, From>;
  else return convert<To, From>;
}

}  // namespace

Converter converter(DType to, DType from) {
  return for_all("copy", to, [&]<class To>() {
    return for_all("copy", from, [&]<class From>() -> Converter { return pick<To, From>(); });
  });
}

void store_scalar(void* to, DType dtype, Scalar value) {
  for_all("fill", dtype, [&]<class T>() { *static_cast<T*>(to) = cast<T>(value); });
}

}  // namespace tapir::inline v0::cpu
