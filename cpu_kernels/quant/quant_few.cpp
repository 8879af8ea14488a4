// A few rows of floats with weights of 8 or 4 bits, each of which is read once, at the speed of memory.
#include <bit>
#include <cmath>

#include "../../core/parallel.h"
#include "quant_dot.h"
#include "quant_product.h"

namespace tapir::inline v0::cpu {
namespace {

using Product = QuantProduct;
constexpr int kF = kLanes<float>;

/// Columns of the weights with R rows of x: sums(j, to) gives those of column j.
template <int R, class Sums> void each_column(const Product& p, int64_t i, Sums&& sums) {
  parallel_for(p.n, std::max<int64_t>(1, (1 << 17) / (p.k + 1)), [&](int64_t first, int64_t last) {
    float to[R];
    for (int64_t j = first; j < last; ++j) {
      sums(j, to);
      for (int r = 0; r < R; ++r) p.write(i + r, j, to[r]);
    }
  });
}

// ---- 8 bits ----

/// One column with R rows of x. Every row is summed in the same order whatever R is.
template <int R> void dot_int8(const Product& p, int64_t j, const float* x, float* sums) {
  const int8_t* w = reinterpret_cast<const int8_t*>(p.row_of(j));
  const float* scale = p.scale_of(j);
  Vec<float> total[R] = {};
  float rest[R] = {};
  for (int64_t first = 0; first < p.k; first += p.group, ++scale) {
    Vec<float> a[R] = {}, b[R] = {};
    const int64_t end = first + p.group;
    int64_t k = first;
    for (; k + 2 * kF <= end; k += 2 * kF) {
      const Vec<float> v = load_float(w + k), u = load_float(w + k + kF);
      for (int r = 0; r < R; ++r) a[r] += v * load(x + r * p.k + k), b[r] += u * load(x + r * p.k + k + kF);
    }
    for (int r = 0; r < R; ++r) {
      total[r] += (a[r] + b[r]) * *scale;
      for (int64_t i = k; i < end; ++i) rest[r] += x[r * p.k + i] * float(w[i]) * *scale;
    }
  }
  for (int r = 0; r < R; ++r) sums[r] = sum_lanes<float>(total[r]) + rest[r];
}
template <int R> void rows_int8(const Product& p, int64_t i) {
  each_column<R>(p, i, [&](int64_t j, float* sums) { dot_int8<R>(p, j, p.x + i * p.k, sums); });
}

// ---- 4 bits ----
// Weights are read as a vector of words, eight in each: a chunk. Groups are made of blocks of 32 weights, which are four words.
using Words = Vec<uint32_t>;
constexpr int64_t kChunk = 8 * kF, kBlocks = kChunk / 32;

/// Of `each` blocks the scale is one.
struct Groups {
  int64_t each;
  int shift = std::has_single_bit(uint64_t(each)) ? std::countr_zero(uint64_t(each)) : -1;  // spares a division
  int64_t of(int64_t block) const { return shift < 0 ? block / each : block >> shift; }
};
/// The scales of a chunk's words: `blocks` blocks from `block` on; 0 behind them.
inline Vec<float> scales_of(const float* scale, int64_t block, Groups groups, int64_t blocks) {
  if (groups.each % kBlocks == 0) return scale[groups.of(block)] - Vec<float>{};  // exact: x - 0 is x
  float s[kBlocks] = {};
  for (int64_t q = 0; q < blocks; ++q) s[q] = scale[groups.of(block + q)];
#if defined(__AVX512F__)
  const __m512i place = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  return _mm512_maskz_permutexvar_ps(0xffff, place, _mm512_castps128_ps512(_mm_setr_ps(s[0], s[1], s[2], s[3])));
#else
  Vec<float> v;
  for (int l = 0; l < kF; ++l) v[l] = s[l / 4];
  return v;
#endif
}
/// Column j in chunks: add(words, chunk, scale of each word); zeros behind the last weight.
template <class Add> [[gnu::always_inline]] inline void each_chunk(const Product& p, int64_t j, Add&& add) {
  const uint8_t* w = p.row_of(j);
  const float* scale = p.scale_of(j);
  const Groups groups{p.group / 32};
  Words words;
  int64_t chunk = 0;
  for (; (chunk + 1) * kChunk <= p.k; ++chunk) {
    std::memcpy(&words, w + chunk * kChunk / 2, sizeof(words));
    add(words, chunk, scales_of(scale, chunk * kBlocks, groups, kBlocks));
  }
  if (const int64_t rest = p.k - chunk * kChunk; rest > 0) {
    words = Words{};
    std::memcpy(&words, w + chunk * kChunk / 2, size_t(rest) / 2);
    add(words, chunk, scales_of(scale, chunk * kBlocks, groups, rest / 32));
  }
}

/// The weights e of the words.
template <int E> Vec<float> widen_4(Words words) {
  const Words top = (words ^ 0x88888888) << (28 - 4 * E);
  return __builtin_convertvector(reinterpret_cast<Vec<int32_t>>(top) >> 28, Vec<float>);
}
/// x in the order in which words give weights: in each chunk the first elements of all words, then the second ones, and so on. Zeros
/// behind the k-th element.
const float* parted(Context& ctx, const Product& p, int64_t i) {
  const float* x = p.x + i * p.k;
  float* const y = ctx.scratch_of<float>((p.k + kChunk - 1) / kChunk * kChunk);
  for (int64_t at = 0; at < p.k; at += kChunk) {
    const int64_t words = std::min<int64_t>(kF, (p.k - at) / 8);
    for (int64_t e = 0; e < 8; ++e)
      for (int64_t l = 0; l < kF; ++l) y[at + e * kF + l] = l < words ? x[at + 8 * l + e] : 0;
  }
  return y;
}
void row_int4(Context& ctx, const Product& p, int64_t i) {
  const float* const x = parted(ctx, p, i);
  each_column<1>(p, i, [&](int64_t j, float* sum) {
    Vec<float> total{};
    each_chunk(p, j, [&](Words words, int64_t chunk, Vec<float> scale) {
      const float* from = x + chunk * kChunk;
      Vec<float> even{}, odd{};
      const auto pair = [&]<int E>(std::integral_constant<int, E>) {
        even += widen_4<E>(words) * load(from + E * kF), odd += widen_4<E + 1>(words) * load(from + (E + 1) * kF);
      };
      pair(std::integral_constant<int, 0>{}), pair(std::integral_constant<int, 2>{});
      pair(std::integral_constant<int, 4>{}), pair(std::integral_constant<int, 6>{});
      total += (even + odd) * scale;
    });
    *sum = sum_lanes<float>(total);
  });
}

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
// Note [Digits]
// Widening weights of 4 bits to floats takes longer than memory takes to give them. As integers they are multiplied 64 at a time. So a block
// of 32 elements of x becomes integers of 24 bits with a scale of its own, written as three digits of 8 bits (from -128 to 127); sums of a word's
// eight products are exact. What is lost is some 2^-24 of the block's largest element, less than a sum of floats loses. A row that no such scale
// fits (NaN, infinity, blocks of numbers below 1e-15) goes the other way.
struct alignas(64) Digits {  // of a chunk
  int8_t digit[3][2][64];    // of even and of odd elements, as the two weights of a byte lie
  int32_t less[kF];          // 8 x, for weights are stored with 8 added: to be taken from each sum
  float scale[kF];           // of each word
};
/// Of each word the sum of its products.
[[gnu::always_inline]] inline __m512i products(const Digits& x, __m512i even, __m512i odd, __m512i less) {
  __m512i sum = _mm512_setzero_si512();
  for (int d = 2; d >= 0; --d) {
    dot_add(sum, even, _mm512_load_si512(x.digit[d][0])), dot_add(sum, odd, _mm512_load_si512(x.digit[d][1]));
    sum = d ? reinterpret_cast<__m512i>(reinterpret_cast<Words>(sum) << 8) : sum;
  }
  return _mm512_sub_epi32(sum, less);
}
/// 32 elements, or zeros; false where they have no scale.
bool to_digits(const float* x, Digits& to, int64_t block) {
  constexpr float most = 8'300'000;  // below 127 (2^16 + 2^8 + 1)
  constexpr __mmask16 all = 0xffff;
  const Vec<float> a = x ? load(x) : Vec<float>{}, b = x ? load(x + kF) : Vec<float>{};
  float largest = 0, not_finite = 0;
  for (int l = 0; l < kF; ++l)
    largest = std::max({largest, std::abs(a[l]), std::abs(b[l])}), not_finite += a[l] * 0 + b[l] * 0;
  if (not_finite != 0 || (largest != 0 && largest < 1e-15f)) return false;
  const float inverse = largest == 0 ? 0 : most / largest;
  std::fill_n(to.scale + 4 * block, 4, largest / most);
  __m512i q[2] = {_mm512_maskz_cvtps_epi32(all, a * inverse), _mm512_maskz_cvtps_epi32(all, b * inverse)};
  const __m512i first = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  for (int odd = 0; odd < 2; ++odd) {
    __m512i rest = _mm512_permutex2var_epi32(q[0], _mm512_add_epi32(first, _mm512_set1_epi32(odd)), q[1]);
    for (auto& digit : to.digit) {
      _mm_store_si128(reinterpret_cast<__m128i*>(digit[odd] + 16 * block), _mm512_maskz_cvtepi32_epi8(all, rest));
      rest = _mm512_maskz_srai_epi32(all, _mm512_add_epi32(rest, _mm512_set1_epi32(128)), 8);
    }
  }
  return true;
}
/// A row of x; false where a block has no scale.
bool to_digits(const Product& p, int64_t i, Digits* to) {
  const float* x = p.x + i * p.k;
  for (int64_t at = 0; at < p.k; at += kChunk, ++to) {
    for (int64_t block = 0; block < kBlocks; ++block)
      if (const int64_t k = at + 32 * block; !to_digits(k < p.k ? x + k : nullptr, *to, block)) return false;
    const __m512i eight = _mm512_set1_epi8(8);
    _mm512_store_si512(to->less, products(*to, eight, eight, _mm512_setzero_si512()));
  }
  return true;
}
template <int R> void rows_int4(const Product& p, int64_t i, const Digits* x, int64_t chunks) {
  each_column<R>(p, i, [&](int64_t j, float* sums) {
    Vec<float> total[R] = {};
    each_chunk(p, j, [&](Words words, int64_t chunk, Vec<float> scale) {
      const __m512i w = reinterpret_cast<__m512i>(words), low = _mm512_set1_epi8(15), even = _mm512_and_si512(w, low),
                    odd = _mm512_and_si512(reinterpret_cast<__m512i>(words >> 4), low);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const Digits& to = x[r * chunks + chunk];
        const __m512i sum = products(to, even, odd, _mm512_load_si512(to.less));
        total[r] += Vec<float>(_mm512_maskz_cvtepi32_ps(0xffff, sum)) * (scale * load(to.scale));
      }
    });
    for (int r = 0; r < R; ++r) sums[r] = sum_lanes<float>(total[r]);
  });
}
void rows_int4(Context& ctx, const Product& p) {
  const int64_t chunks = (p.k + kChunk - 1) / kChunk;
  Digits* const x = ctx.scratch_of<Digits>(p.m * chunks);
  bool fits[kQuantFew];
  for (int64_t i = 0; i < p.m; ++i) fits[i] = to_digits(p, i, x + i * chunks);
  for (int64_t i = 0; i < p.m;) {
    if (i + 4 <= p.m && fits[i] && fits[i + 1] && fits[i + 2] && fits[i + 3])
      rows_int4<4>(p, i, x + i * chunks, chunks), i += 4;
    else if (fits[i]) rows_int4<1>(p, i, x + i * chunks, chunks), ++i;
    else row_int4(ctx, p, i++);
  }
}
#else
void rows_int4(Context& ctx, const Product& p) {
  for (int64_t i = 0; i < p.m; ++i) row_int4(ctx, p, i);
}
#endif

}  // namespace

void few_rows(Context& ctx, const Product& p) {
  if (p.bits == 4) return rows_int4(ctx, p);
  int64_t i = 0;
  for (; i + 4 <= p.m; i += 4) rows_int8<4>(p, i);
  for (; i < p.m; ++i) rows_int8<1>(p, i);
}

}  // namespace tapir::inline v0::cpu
