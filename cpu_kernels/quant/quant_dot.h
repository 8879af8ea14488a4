#pragma once
#include <algorithm>
#include <cstring>

#include "../../core/formulas/quantize.h"
#include "../vec.h"

namespace tapir::inline v0::cpu {

/// Where the two operands of a sum over k lie: `count` stretches of `length` neighbouring elements, the i-th at a + a_offset[i] and at
/// b + i length.
struct Stretches {
  int64_t count, length;
  const int64_t* a_offset;
};

#if defined(__AVX512F__)
// (Masks of ones: the plain forms of these make g++ 12 warn.)
/// 16 x 16 numbers of 32 bits.
inline void transpose_dwords(__m512i* rows) {
  constexpr __mmask16 all = 0xffff;
  __m512i t[16], u[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2)
    t[i] = _mm512_maskz_unpacklo_epi32(all, rows[i], rows[i + 1]),
    t[i + 1] = _mm512_maskz_unpackhi_epi32(all, rows[i], rows[i + 1]);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h)  // u[i + j]: elements 4 q + j, q = 0 to 3, of rows i to i + 3
      u[i + 2 * h] = _mm512_maskz_unpacklo_epi64(0xff, t[i + h], t[i + 2 + h]),
                u[i + 2 * h + 1] = _mm512_maskz_unpackhi_epi64(0xff, t[i + h], t[i + 2 + h]);
  const auto even = [](__m512i a, __m512i b) { return _mm512_maskz_shuffle_i32x4(all, a, b, 0x88); };
  const auto odd = [](__m512i a, __m512i b) { return _mm512_maskz_shuffle_i32x4(all, a, b, 0xdd); };
#pragma GCC unroll 8
  for (int j = 0; j < 4; ++j) {
    const __m512i first = even(u[j], u[4 + j]), second = odd(u[j], u[4 + j]), third = even(u[8 + j], u[12 + j]),
                  fourth = odd(u[8 + j], u[12 + j]);
    rows[j] = even(first, third), rows[4 + j] = even(second, fourth);
    rows[8 + j] = odd(first, third), rows[12 + j] = odd(second, fourth);
  }
}
#endif

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
/// The lane sums of four vectors.
inline __m128i sum_each_of_4(__m512i a, __m512i b, __m512i c, __m512i d) {
  const auto join = [](__m512i x, __m512i y) {
    return _mm512_add_epi32(_mm512_maskz_unpacklo_epi32(0xffff, x, y), _mm512_maskz_unpackhi_epi32(0xffff, x, y));
  };
  const __m512i ab = join(a, b), cd = join(c, d);
  const __m512i e =
      _mm512_add_epi32(_mm512_maskz_unpacklo_epi64(0xff, ab, cd), _mm512_maskz_unpackhi_epi64(0xff, ab, cd));
  const __m256i f =
      _mm256_add_epi32(_mm512_maskz_extracti64x4_epi64(0xf, e, 0), _mm512_maskz_extracti64x4_epi64(0xf, e, 1));
  return _mm_add_epi32(_mm256_castsi256_si128(f), _mm256_extracti128_si256(f, 1));
}
/// sum += a b, by fours. (Around the intrinsic g++ 12 copies the accumulators.)
inline void dot_add(__m512i& sum, __m512i a, __m512i b) { asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b)); }

/// sums[ld r + c] = sum over k of a[r] b[c], 4 columns or 1; rows of a are lda apart, columns of b ldb. Six rows by four columns keep 24
/// sums, 4 columns and a row in the 32 registers.
template <int Rows, int Columns> [[gnu::noinline]] void dot_tile(const Stretches& s, const uint8_t* a, int64_t lda,
                                                                 const int8_t* b, int64_t ldb, int32_t* sums,
                                                                 int64_t ld) {
  __m512i sum[4 * Rows] = {};
  const __mmask64 rest = (uint64_t(1) << (s.length % 64)) - 1;
  const auto step = [&](const uint8_t* from_a, const int8_t* from_b, __mmask64 here) __attribute__((always_inline)) {
    __m512i column[Columns];
#pragma GCC unroll 8
    for (int c = 0; c < Columns; ++c) column[c] = _mm512_maskz_loadu_epi8(here, from_b + c * ldb);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const __m512i row = _mm512_maskz_loadu_epi8(here, from_a + r * lda);
#pragma GCC unroll 8
      for (int c = 0; c < Columns; ++c) dot_add(sum[4 * r + c], row, column[c]);
    }
  };
  for (int64_t i = 0; i < s.count; ++i) {
    const uint8_t* from_a = a + s.a_offset[i];
    const int8_t* from_b = b + i * s.length;
    int64_t k = 0;
    for (; k + 64 <= s.length; k += 64) step(from_a + k, from_b + k, ~uint64_t(0));
    if (rest) step(from_a + k, from_b + k, rest);
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
    const __m128i four = sum_each_of_4(sum[4 * r], sum[4 * r + 1], sum[4 * r + 2], sum[4 * r + 3]);
    if constexpr (Columns == 4) _mm_storeu_si128(reinterpret_cast<__m128i*>(sums + ld * r), four);
    else sums[ld * r] = _mm_cvtsi128_si32(four);
  }
}

// Panels: kPanel columns side by side, four elements of each after the other, so that a sum stays in its lane.
#define TAPIR_QUANT_PANELS
inline constexpr int64_t kPanel = 32;

/// sums[kPanel r + c] = the sum over `quads` times four k of a[r] and column c of a panel.
template <int Rows>
[[gnu::noinline]] void panel_tile(int64_t quads, const uint8_t* a, int64_t lda, const int8_t* panel, int32_t* sums) {
  __m512i sum[Rows][2] = {};
  for (int64_t q = 0; q < quads; ++q, a += 4, panel += 4 * kPanel) {
    const __m512i first = _mm512_loadu_si512(panel), second = _mm512_loadu_si512(panel + 64);
#pragma GCC unroll 12
    for (int r = 0; r < Rows; ++r) {
      int32_t four;
      std::memcpy(&four, a + r * lda, 4);
      const __m512i row = _mm512_set1_epi32(four);
      dot_add(sum[r][0], row, first), dot_add(sum[r][1], row, second);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < Rows; ++r)
    _mm512_storeu_si512(sums + kPanel * r, sum[r][0]), _mm512_storeu_si512(sums + kPanel * r + 16, sum[r][1]);
}
inline constexpr int64_t kDotRows = 6;
#elif defined(__aarch64__)
/// sum += a b, by fours.
inline void dot_add(int32x4_t& sum, int8x16_t a, int8x16_t b) {
#if defined(__ARM_FEATURE_DOTPROD)
  sum = vdotq_s32(sum, a, b);
#else
  sum = vpadalq_s16(vpadalq_s16(sum, vmull_s8(vget_low_s8(a), vget_low_s8(b))), vmull_high_s8(a, b));
#endif
}
/// n bytes, zeros behind them.
inline int8x16_t load_bytes(const void* p, int64_t n) {
  int8_t part[16] = {};
  std::memcpy(part, p, size_t(n));
  return vld1q_s8(part);
}
/// The products are those of signed numbers: sum of a b = sum of (a - 128) b + 128 times the sum of b. Five rows by four columns keep 20 sums,
/// the sums of the columns, 4 columns, a row and what makes it signed in the 32 registers.
template <int Rows, int Columns> [[gnu::noinline]] void dot_tile(const Stretches& s, const uint8_t* a, int64_t lda,
                                                                 const int8_t* b, int64_t ldb, int32_t* sums,
                                                                 int64_t ld) {
  int32x4_t sum[Rows][Columns] = {}, of_column[Columns] = {};
  const auto step = [&](const uint8_t* from_a, const int8_t* from_b, auto load) __attribute__((always_inline)) {
    int8x16_t column[Columns];
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c)
      column[c] = load(from_b + c * ldb), dot_add(of_column[c], vdupq_n_s8(1), column[c]);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      const int8x16_t row = load(from_a + r * lda) ^ vdupq_n_s8(-128);
#pragma GCC unroll 4
      for (int c = 0; c < Columns; ++c) dot_add(sum[r][c], row, column[c]);
    }
  };
  const int64_t rest = s.length % 16;
  for (int64_t i = 0; i < s.count; ++i) {
    const uint8_t* from_a = a + s.a_offset[i];
    const int8_t* from_b = b + i * s.length;
    int64_t k = 0;
    for (; k + 16 <= s.length; k += 16)
      step(from_a + k, from_b + k, [](const void* p) { return vld1q_s8(static_cast<const int8_t*>(p)); });
    if (rest) step(from_a + k, from_b + k, [rest](const void* p) { return load_bytes(p, rest); });
  }
#pragma GCC unroll 4
  for (int c = 0; c < Columns; ++c)
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) sums[ld * r + c] = vaddvq_s32(sum[r][c] + (of_column[c] << 7));
}
inline constexpr int64_t kDotRows = 5;
#elif defined(__SSE4_1__)
#if defined(__AVX2__)
constexpr int64_t kWords = 16;
inline __m256i widen(const uint8_t* a) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a)));
}
inline __m256i widen(const int8_t* b) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b)));
}
/// sum += a b, by pairs. (Of the intrinsics g++ 12 multiplies all first, for which there are too few registers.)
inline void dot_add(__m256i& sum, __m256i a, __m256i b) {
  __m256i pairs;
  asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(pairs) : "x"(a), "x"(b));
}
#else
constexpr int64_t kWords = 8;
inline __m128i widen(const uint8_t* a) {
  return _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(a)));
}
inline __m128i widen(const int8_t* b) {
  return _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(b)));
}
inline void dot_add(__m128i& sum, __m128i a, __m128i b) {
  sum = _mm_add_epi32(sum, _mm_madd_epi16(a, b));
  asm("" : "+x"(sum));  // see above
}
#endif
/// n elements, zeros behind them.
template <class T> auto widen(const T* p, int64_t n) {
  T part[kWords] = {};
  std::memcpy(part, p, size_t(n));
  return widen(part);
}
/// Words of 16 bits are multiplied, whose sums of two are exact. Two rows by four columns keep 8 sums, 4 columns and a row in the 16 registers.
template <int Rows, int Columns> [[gnu::noinline]] void dot_tile(const Stretches& s, const uint8_t* a, int64_t lda,
                                                                 const int8_t* b, int64_t ldb, int32_t* sums,
                                                                 int64_t ld) {
  using Sums = decltype(widen(a));
  Sums sum[Rows][Columns] = {};
  const auto step = [&](const uint8_t* from_a, const int8_t* from_b, auto... n) __attribute__((always_inline)) {
    Sums column[Columns];
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) column[c] = widen(from_b + c * ldb, n...);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      const Sums row = widen(from_a + r * lda, n...);
#pragma GCC unroll 4
      for (int c = 0; c < Columns; ++c) dot_add(sum[r][c], row, column[c]);
    }
  };
  const int64_t rest = s.length % kWords;
  for (int64_t i = 0; i < s.count; ++i) {
    const uint8_t* from_a = a + s.a_offset[i];
    const int8_t* from_b = b + i * s.length;
    int64_t k = 0;
    for (; k + kWords <= s.length; k += kWords) step(from_a + k, from_b + k);
    if (rest) step(from_a + k, from_b + k, rest);
  }
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c)
      sums[ld * r + c] = sum_lanes<int32_t, int(sizeof(Sums))>(reinterpret_cast<Vec<int32_t, sizeof(Sums)>>(sum[r][c]));
}
inline constexpr int64_t kDotRows = 2;

// Rows of a linear layer are stored as words, less their zero point.
#define TAPIR_QUANT_WORDS
using WordSums = decltype(widen(static_cast<const int8_t*>(nullptr)));
#if defined(__AVX2__)
inline __m256i load_words(const int16_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline __m256i add_neighbours(__m256i a, __m256i b) { return _mm256_hadd_epi32(a, b); }
inline __m128i add_halves(__m256i v) {
  return _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}
#else
inline __m128i load_words(const int16_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
inline __m128i add_neighbours(__m128i a, __m128i b) { return _mm_hadd_epi32(a, b); }
inline __m128i add_halves(__m128i v) { return v; }
#endif
/// Words as they are, with zeros behind them.
inline WordSums widen(const int16_t* p, int64_t = 0) { return load_words(p); }

/// sums[ld r + c] = sum over k of a[r] b[c], 2 columns or 1, which may be words too. kWords words are read at a time: rows end with zeros. Six
/// rows by two columns keep 12 sums, 2 columns, a row and a product in the 16 registers.
template <int Rows, int Columns, class B> [[gnu::noinline]] void word_tile(int64_t length, const int16_t* a,
                                                                           int64_t lda, const B* b, int64_t ldb,
                                                                           int32_t* sums, int64_t ld) {
  WordSums sum[Rows][Columns] = {};
  int64_t k = 0;
  const auto step = [&](auto... n) __attribute__((always_inline)) {
    WordSums column[Columns];
    for (int c = 0; c < Columns; ++c) column[c] = widen(b + c * ldb + k, n...);
#pragma GCC unroll 6
    for (int r = 0; r < Rows; ++r) {
      const WordSums row = load_words(a + r * lda + k);
      for (int c = 0; c < Columns; ++c) dot_add(sum[r][c], row, column[c]);
    }
  };
  for (; k + kWords <= length; k += kWords) step();
  if (k < length) step(length - k);
  const auto pair_of = [&](int r) {
    const WordSums none = {};
    return r < Rows ? add_neighbours(sum[r][0], Columns == 2 ? sum[r][Columns - 1] : none) : none;
  };
#pragma GCC unroll 3
  for (int r = 0; r < Rows; r += 2) {
    alignas(16) int32_t four[4];
    _mm_store_si128(reinterpret_cast<__m128i*>(four), add_halves(add_neighbours(pair_of(r), pair_of(r + 1))));
    for (int i = r; i < std::min(r + 2, Rows); ++i) std::memcpy(sums + ld * i, four + 2 * (i - r), 4 * Columns);
  }
}
inline constexpr int64_t kTileRows = 6;
/// Up to kTileRows rows and any number of columns.
template <class B, int Most = kTileRows> void row_block(int64_t rows, int64_t columns, int64_t k, const int16_t* a,
                                                        int64_t lda, const B* b, int64_t ldb, int32_t* sums,
                                                        int64_t ld) {
  if constexpr (Most > 1)
    if (rows < Most) return row_block<B, Most - 1>(rows, columns, k, a, lda, b, ldb, sums, ld);
  int64_t c = 0;
  for (; c + 2 <= columns; c += 2) word_tile<Most, 2>(k, a, lda, b + c * ldb, ldb, sums + c, ld);
  if (c < columns) word_tile<Most, 1>(k, a, lda, b + c * ldb, ldb, sums + c, ld);
}
#else
template <int Rows, int Columns> [[gnu::noinline]] void dot_tile(const Stretches& s, const uint8_t* a, int64_t lda,
                                                                 const int8_t* b, int64_t ldb, int32_t* sums,
                                                                 int64_t ld) {
  for (int r = 0; r < Rows; ++r)
    for (int c = 0; c < Columns; ++c) {
      int32_t sum = 0;
      for (int64_t i = 0; i < s.count; ++i)
        for (int64_t k = 0; k < s.length; ++k)
          sum += int32_t(a[r * lda + s.a_offset[i] + k]) * int32_t(b[c * ldb + i * s.length + k]);
      sums[ld * r + c] = sum;
    }
}
inline constexpr int64_t kDotRows = 2;
#endif

inline constexpr int64_t kDotColumns = 4;

/// Up to kDotRows rows and kDotColumns columns.
template <int Most = kDotRows> void dot_block(int64_t rows, int64_t columns, const Stretches& s, const uint8_t* a,
                                              int64_t lda, const int8_t* b, int64_t ldb, int32_t* sums, int64_t ld) {
  if constexpr (Most > 1)
    if (rows < Most) return dot_block<Most - 1>(rows, columns, s, a, lda, b, ldb, sums, ld);
  if (columns == kDotColumns) return dot_tile<Most, kDotColumns>(s, a, lda, b, ldb, sums, ld);
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = 0; r < rows; ++r) dot_tile<1, 1>(s, a + r * lda, lda, b + c * ldb, ldb, sums + ld * r + c, ld);
}

#if defined(TAPIR_QUANT_WORDS)
using RowElement = int16_t;
#else
using RowElement = uint8_t;
inline constexpr int64_t kTileRows = kDotRows;
inline void row_block(int64_t rows, int64_t columns, int64_t k, const uint8_t* a, int64_t lda, const int8_t* b,
                      int64_t ldb, int32_t* sums, int64_t ld) {
  const int64_t none = 0;
  dot_block(rows, columns, {1, k, &none}, a, lda, b, ldb, sums, ld);
}
#endif

/// sum of n elements
inline int32_t sum_of(const int8_t* w, int64_t n) {
  int32_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += w[i];
  return sum;
}
/// Quantizes n floats.
inline void quantize_row(uint8_t* to, const float* x, int64_t n, float inverse, float zero_point) {
  int64_t i = 0;
#if defined(__AVX512F__)  // formulas::quantize_uint8, 16 at a time
  constexpr __mmask16 all = 0xffff;
  const __m512 scale = _mm512_set1_ps(inverse), zero = _mm512_set1_ps(zero_point), top = _mm512_set1_ps(255);
  for (; i + 16 <= n; i += 16) {
    const __m512 whole = _mm512_maskz_roundscale_ps(all, _mm512_mul_ps(_mm512_loadu_ps(x + i), scale), 8);
    const __m512 q = _mm512_maskz_max_ps(all, _mm512_add_ps(whole, zero), _mm512_setzero_ps());  // the 0 for NaN
    const __m512i bytes = _mm512_maskz_cvttps_epi32(all, _mm512_maskz_min_ps(all, q, top));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm512_maskz_cvtepi32_epi8(all, bytes));
  }
#endif
  for (; i < n; ++i) to[i] = formulas::quantize_uint8(x[i], inverse, zero_point);
}

}  // namespace tapir::inline v0::cpu
