// A few rows of floats with weights of 8 or 4 bits, each of which is read once, at the speed of memory.
#include <bit>
#include <type_traits>

#include "../../core/parallel.h"
#include "quant_dot.h"
#include "quant_product.h"

namespace tapir::inline v0::cpu {
namespace {

using Product = QuantProduct;
constexpr int kF = kLanes<float>;

/// Writes R results of each column from row i on: sums(j, to) computes those of column j.
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

/// So many blocks share a scale.
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
    // What is done with a line takes longer than processors look ahead.
    __builtin_prefetch(w + chunk * kChunk / 2 + 2048);
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
#if defined(__AVX512F__)
  const __m512 numbers = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  const __m512i index = reinterpret_cast<__m512i>(words >> 4 * E);  // whose lower four bits count
  return _mm512_maskz_permutexvar_ps(0xffff, index, numbers);
#else
  const Words top = (words ^ 0x88888888) << (28 - 4 * E);
  return __builtin_convertvector(reinterpret_cast<Vec<int32_t>>(top) >> 28, Vec<float>);
#endif
}
/// x in the order in which words give weights, rows ld apart: in each chunk the first elements of all words, then the second ones, and so
/// on. Zeros behind the k-th element.
const float* parted(Context& ctx, const Product& p, int64_t ld) {
  float* const to = ctx.scratch_of<float>(p.m * ld);
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t at = 0; at < p.k; at += kChunk) {
      const int64_t words = std::min<int64_t>(kF, (p.k - at) / 8);
      const float* x = p.x + i * p.k + at;
      float* y = to + i * ld + at;
      for (int64_t e = 0; e < 8; ++e)
        for (int64_t l = 0; l < kF; ++l) y[e * kF + l] = l < words ? x[8 * l + e] : 0;
    }
  return to;
}
template <int R> void rows_int4(const Product& p, int64_t i, const float* x, int64_t ld) {
  each_column<R>(p, i, [&](int64_t j, float* sums) {
    Vec<float> total[R] = {};
    each_chunk(
        p, j, [&](Words words, int64_t chunk, Vec<float> scale) __attribute__((always_inline)) {
          const float* const from = x + chunk * kChunk;
          Vec<float> even[R] = {}, odd[R] = {};
          const auto pair = [&]<int E>(std::integral_constant<int, E>) __attribute__((always_inline)) {
            const Vec<float> first = widen_4<E>(words), second = widen_4<E + 1>(words);
            for (int r = 0; r < R; ++r)
              even[r] += first * load(from + r * ld + E * kF), odd[r] += second * load(from + r * ld + (E + 1) * kF);
          };
          pair(std::integral_constant<int, 0>{}), pair(std::integral_constant<int, 2>{});
          pair(std::integral_constant<int, 4>{}), pair(std::integral_constant<int, 6>{});
          for (int r = 0; r < R; ++r) total[r] += (even[r] + odd[r]) * scale;
        });
    for (int r = 0; r < R; ++r) sums[r] = sum_lanes<float>(total[r]);
  });
}

}  // namespace

void few_rows(Context& ctx, const Product& p) {
  const int64_t ld = (p.k + kChunk - 1) / kChunk * kChunk;
  const float* const x = p.bits == 4 ? parted(ctx, p, ld) : nullptr;
  int64_t i = 0;
  for (; i + 4 <= p.m; i += 4) x ? rows_int4<4>(p, i, x + i * ld, ld) : rows_int8<4>(p, i);
  for (; i < p.m; ++i) x ? rows_int4<1>(p, i, x + i * ld, ld) : rows_int8<1>(p, i);
}

}  // namespace tapir::inline v0::cpu
