#pragma once
#include <algorithm>

#include "../core/formulas/quantize.h"
#include "vec.h"

namespace tapir::inline v0::cpu {

/// Where the two operands of a sum over k lie: `count` stretches of `length` neighbouring elements, the i-th at a + a_offset[i] and at
/// b + i length.
struct Stretches {
  int64_t count, length;
  const int64_t* a_offset;
};

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
/// The lane sums of 16 vectors. (Masks of ones: the plain forms make g++ 12 warn.)
inline __m512i sum_each_of_16(const __m512i* v) {
  constexpr __mmask16 all = 0xffff;
  __m512i a[8], b[4], c[2];
  for (int i = 0; i < 8; ++i)
    a[i] = _mm512_add_epi32(_mm512_maskz_unpacklo_epi32(all, v[2 * i], v[2 * i + 1]),
                            _mm512_maskz_unpackhi_epi32(all, v[2 * i], v[2 * i + 1]));
  for (int i = 0; i < 4; ++i)
    b[i] = _mm512_add_epi32(_mm512_maskz_unpacklo_epi64(0xff, a[2 * i], a[2 * i + 1]),
                            _mm512_maskz_unpackhi_epi64(0xff, a[2 * i], a[2 * i + 1]));
  const auto fold = [](__m512i x, __m512i y) {  // sums of quarters
    return _mm512_add_epi32(_mm512_maskz_shuffle_i32x4(all, x, y, 0x88), _mm512_maskz_shuffle_i32x4(all, x, y, 0xdd));
  };
  for (int i = 0; i < 2; ++i) c[i] = fold(b[2 * i], b[2 * i + 1]);
  return fold(c[0], c[1]);
}
/// sums[4 r + c] = sum over k of a[r] b[c]; rows of a are lda apart, columns of b ldb.
template <int Rows, int Columns>
inline void dot_tile(const Stretches& s, const uint8_t* a, int64_t lda, const int8_t* b, int64_t ldb, int32_t* sums) {
  static_assert(Rows <= 4 && Columns <= 4);
  __m512i sum[16] = {};
  const __mmask64 rest = (uint64_t(1) << (s.length % 64)) - 1;
  for (int64_t i = 0; i < s.count; ++i) {
    const uint8_t* from_a = a + s.a_offset[i];
    const int8_t* from_b = b + i * s.length;
    int64_t k = 0;
    for (; k + 64 <= s.length; k += 64) {
      __m512i row[Rows];
      for (int r = 0; r < Rows; ++r) row[r] = _mm512_loadu_si512(from_a + r * lda + k);
      for (int c = 0; c < Columns; ++c) {
        const __m512i column = _mm512_loadu_si512(from_b + c * ldb + k);
        for (int r = 0; r < Rows; ++r) sum[4 * r + c] = _mm512_dpbusd_epi32(sum[4 * r + c], row[r], column);
      }
    }
    if (!rest) continue;
    for (int c = 0; c < Columns; ++c) {
      const __m512i column = _mm512_maskz_loadu_epi8(rest, from_b + c * ldb + k);
      for (int r = 0; r < Rows; ++r)
        sum[4 * r + c] =
            _mm512_dpbusd_epi32(sum[4 * r + c], _mm512_maskz_loadu_epi8(rest, from_a + r * lda + k), column);
    }
  }
  _mm512_storeu_si512(sums, sum_each_of_16(sum));
}
#else
template <int Rows, int Columns>
inline void dot_tile(const Stretches& s, const uint8_t* a, int64_t lda, const int8_t* b, int64_t ldb, int32_t* sums) {
  for (int r = 0; r < Rows; ++r)
    for (int c = 0; c < Columns; ++c) {
      int32_t sum = 0;
      for (int64_t i = 0; i < s.count; ++i) {
        const uint8_t* from_a = a + r * lda + s.a_offset[i];
        const int8_t* from_b = b + c * ldb + i * s.length;
        for (int64_t k = 0; k < s.length; ++k) sum += int32_t(from_a[k]) * int32_t(from_b[k]);
      }
      sums[4 * r + c] = sum;
    }
}
#endif

/// Up to 4 rows and 4 columns.
inline void dot_block(int64_t rows, int64_t columns, const Stretches& s, const uint8_t* a, int64_t lda, const int8_t* b,
                      int64_t ldb, int32_t* sums) {
  if (columns == 4) {
    if (rows == 4) return dot_tile<4, 4>(s, a, lda, b, ldb, sums);
    if (rows == 3) return dot_tile<3, 4>(s, a, lda, b, ldb, sums);
    if (rows == 2) return dot_tile<2, 4>(s, a, lda, b, ldb, sums);
    return dot_tile<1, 4>(s, a, lda, b, ldb, sums);
  }
  int32_t one[16];
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = 0; r < rows; ++r) {
      dot_tile<1, 1>(s, a + r * lda, lda, b + c * ldb, ldb, one);
      sums[4 * r + c] = one[0];
    }
}

/// sum of n elements
inline int32_t sum_of(const int8_t* w, int64_t n) {
  int32_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += w[i];
  return sum;
}
/// Quantizes n floats.
inline void quantize_row(uint8_t* to, const float* x, int64_t n, float inverse, float zero_point) {
  for (int64_t i = 0; i < n; ++i) to[i] = formulas::quantize_uint8(x[i], inverse, zero_point);
}

}  // namespace tapir::inline v0::cpu
