#pragma once
#include <bit>
#include <cstdint>
#include <cstring>

#include "../core/dtype.h"
#if defined(__SSE4_1__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace tapir::inline v0::cpu {

/// Bytes of the widest vectors that the compiler may use, and how many of them a loop can keep in registers.
#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64, kVectorRegisters = 32;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32, kVectorRegisters = 16;
#elif defined(__aarch64__)
inline constexpr int kVectorBytes = 16, kVectorRegisters = 32;
#else
inline constexpr int kVectorBytes = 16, kVectorRegisters = 16;
#endif

/// A vector of T that may lie at any address: *reinterpret_cast<const Vec<float>*>(p) loads and stores.
template <class T, int Bytes = kVectorBytes> struct VecOf {
  typedef T type __attribute__((vector_size(Bytes), may_alias, aligned(alignof(T))));
};
template <class T, int Bytes = kVectorBytes> using Vec = typename VecOf<T, Bytes>::type;
template <class T> inline constexpr int kLanes = kVectorBytes / int(sizeof(T));

template <class T> inline Vec<T> load(const T* p) { return *reinterpret_cast<const Vec<T>*>(p); }
template <class T> inline void store(T* p, Vec<T> v) { *reinterpret_cast<Vec<T>*>(p) = v; }

/// kLanes<int32_t> elements as int32: g++ 12 makes one move for each byte of a conversion between vectors.
inline Vec<int32_t> load_int(const int8_t* p) {
#if defined(__AVX512F__)
  return Vec<int32_t>(_mm512_maskz_cvtepi8_epi32(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(__AVX2__)
  return Vec<int32_t>(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#elif (defined(__SSE4_1__) && !defined(__AVX__)) || defined(__aarch64__)
  int32_t four;
  std::memcpy(&four, p, 4);
#if defined(__aarch64__)
  return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)))));
#else
  return Vec<int32_t>(_mm_cvtepi8_epi32(_mm_cvtsi32_si128(four)));
#endif
#else
  Vec<int32_t> v;
  for (int i = 0; i < kLanes<int32_t>; ++i) v[i] = p[i];
  return v;
#endif
}
/// kLanes<float> elements as float32.
inline Vec<float> load_float(const float* p) { return load(p); }
inline Vec<float> load_float(const BFloat16* p) {
#if defined(__AVX512F__)  // the portable form is widened in halves by GCC 12, which warns of the plain conversion
  const __m512i bits = _mm512_maskz_cvtepu16_epi32(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, bits, 16));
#elif defined(__aarch64__)
  return Vec<float>(vshll_n_u16(vld1_u16(&p->bits), 16));
#else
  using Bits = Vec<uint16_t, kVectorBytes / 2>;
  Bits bits;
  std::memcpy(&bits, p, sizeof bits);
  return reinterpret_cast<Vec<float>>(__builtin_convertvector(bits, Vec<uint32_t>) << 16);
#endif
}
inline Vec<float> load_float(const Half* p) {
#if defined(__AVX512F__)
  return _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__F16C__)
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(__aarch64__)
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(&p->bits)));
#else
  Vec<float> v;
  for (int i = 0; i < kLanes<float>; ++i) v[i] = float(p[i]);
  return v;
#endif
}
inline Vec<float> load_float(const int8_t* p) { return __builtin_convertvector(load_int(p), Vec<float>); }
/// kLanes<float> elements; bfloat16: rounded to nearest, ties to even; a NaN may become any number.
inline void store_float(float* p, Vec<float> v) { store(p, v); }
inline void store_float(BFloat16* p, Vec<float> v) {
  const Vec<uint32_t> bits = reinterpret_cast<Vec<uint32_t>>(v);
  const Vec<uint32_t> rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_maskz_cvtepi32_epi16(0xffff, reinterpret_cast<__m512i>(rounded)));
#elif defined(__aarch64__)
  vst1_u16(&p->bits, vmovn_u32(uint32x4_t(rounded)));
#else
  const auto half = __builtin_convertvector(rounded, Vec<uint16_t, kVectorBytes / 2>);
  std::memcpy(&p->bits, &half, sizeof half);
#endif
}
/// The lanes' sum, always in the same order: halves are added, then their halves, ...
template <class T, int Bytes = kVectorBytes> [[gnu::always_inline]] inline T sum_lanes(Vec<T, Bytes> v) {
  if constexpr (Bytes == 2 * sizeof(T)) {
    return v[0] + v[1];
  } else {
    Vec<T, Bytes / 2> low, high;
#if defined(__AVX512F__)  // the portable form goes by memory
    if constexpr (Bytes == 64) {
      const __m512d both = reinterpret_cast<__m512d>(v);
      low = reinterpret_cast<decltype(low)>(_mm512_maskz_extractf64x4_pd(0xff, both, 0));
      high = reinterpret_cast<decltype(low)>(_mm512_maskz_extractf64x4_pd(0xff, both, 1));
      return sum_lanes<T, Bytes / 2>(low + high);
    }
#endif
    std::memcpy(&low, &v, sizeof low), std::memcpy(&high, reinterpret_cast<const char*>(&v) + sizeof low, sizeof high);
    return sum_lanes<T, Bytes / 2>(low + high);
  }
}

}  // namespace tapir::inline v0::cpu
