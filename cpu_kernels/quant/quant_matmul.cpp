// Products with quantized weights: float activations with weights that are widened on their way (a few rows: each weight is read once,
// at the speed of memory; many: the float product of widened panels), or 8-bit activations and an integer product (quant_integer.cpp).
#include <bit>

#include "../matmul/gemm.h"
#include "../pack.h"
#include "../pieces.h"
#include "quant_dot.h"
#include "quant_product.h"

namespace tapir::inline v0::cpu {
namespace {

using Product = QuantProduct;
constexpr int kF = kLanes<float>;
constexpr int64_t kFew = 8;  // rows

inline Vec<float> widen(const int8_t* p) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(__aarch64__)
  int32_t four;
  std::memcpy(&four, p, 4);
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four))))));
#else
  Vec<float> v;
  for (int i = 0; i < kF; ++i) v[i] = float(p[i]);
  return v;
#endif
}
// Weights of 4 bits are read as a vector of words, eight weights each: a chunk. x is reordered to meet them: in each chunk the first elements
// of all words, then the second ones, and so on.
using Words = Vec<uint32_t>;
constexpr int64_t kChunk = 8 * kF, kBlocks = kChunk / 32;  // groups are made of blocks of 32 weights
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
/// Of `each` blocks the scale is one: a division where that is no power of two.
struct Groups {
  int64_t each;
  int shift = std::has_single_bit(uint64_t(each)) ? std::countr_zero(uint64_t(each)) : -1;
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
      const Vec<float> v = widen(w + k), u = widen(w + k + kF);
      for (int r = 0; r < R; ++r) a[r] += v * load(x + r * p.k + k), b[r] += u * load(x + r * p.k + k + kF);
    }
    for (int r = 0; r < R; ++r) {
      total[r] += (a[r] + b[r]) * *scale;
      for (int64_t i = k; i < end; ++i) rest[r] += x[r * p.k + i] * float(w[i]) * *scale;
    }
  }
  for (int r = 0; r < R; ++r) sums[r] = sum_lanes<float>(total[r]) + rest[r];
}
/// The sums of a chunk of one column with R rows of x, ld apart, as parted() orders them.
template <int R> [[gnu::always_inline]] inline void add_chunk(Words words, const float* x, int64_t ld, Vec<float> scale,
                                                              Vec<float>* total) {
  Vec<float> a[R] = {}, b[R] = {};
  const auto pair = [&]<int E>(std::integral_constant<int, E>) {
    const Vec<float> even = widen_4<E>(words), odd = widen_4<E + 1>(words);
    for (int r = 0; r < R; ++r) a[r] += even * load(x + r * ld + E * kF), b[r] += odd * load(x + r * ld + (E + 1) * kF);
  };
  pair(std::integral_constant<int, 0>{}), pair(std::integral_constant<int, 2>{});
  pair(std::integral_constant<int, 4>{}), pair(std::integral_constant<int, 6>{});
  for (int r = 0; r < R; ++r) total[r] += (a[r] + b[r]) * scale;
}
template <int R> void dot_int4(const Product& p, int64_t j, const float* x, int64_t ld, float* sums) {
  const uint8_t* w = p.row_of(j);
  const float* scale = p.scale_of(j);
  const Groups groups{p.group / 32};
  Vec<float> total[R] = {};
  Words words;
  int64_t k = 0;
  for (; k + kChunk <= p.k; k += kChunk) {
    std::memcpy(&words, w + k / 2, sizeof(words));
    add_chunk<R>(words, x + k, ld, scales_of(scale, k / 32, groups, kBlocks), total);
  }
  if (k < p.k) {
    words = Words{};
    std::memcpy(&words, w + k / 2, (p.k - k) / 2);
    add_chunk<R>(words, x + k, ld, scales_of(scale, k / 32, groups, (p.k - k) / 32), total);
  }
  for (int r = 0; r < R; ++r) sums[r] = sum_lanes<float>(total[r]);
}

template <int R> void few_rows(const Product& p, int64_t i, const float* x, int64_t ld) {
  parallel_for(p.n, std::max<int64_t>(1, (1 << 17) / (p.k + 1)), [&](int64_t first, int64_t last) {
    float sums[R];
    for (int64_t j = first; j < last; ++j) {
      p.bits == 8 ? dot_int8<R>(p, j, x, sums) : dot_int4<R>(p, j, x, ld, sums);
      for (int r = 0; r < R; ++r) p.write(i + r, j, sums[r]);
    }
  });
}
/// The rows of x as weights of 4 bits meet them, ld apart; zeros behind the k-th element.
const float* parted(Context& ctx, const Product& p, int64_t ld) {
  float* const to = ctx.scratch_of<float>(p.m * ld);
  for (int64_t i = 0; i < p.m; ++i) {
    const float* x = p.x + i * p.k;
    float* y = to + i * ld;
    for (int64_t at = 0; at < p.k; at += kChunk) {
      const int64_t words = std::min<int64_t>(kF, (p.k - at) / 8);
      for (int64_t e = 0; e < 8; ++e)
        for (int64_t l = 0; l < kF; ++l) y[at + e * kF + l] = l < words ? x[at + 8 * l + e] : 0;
    }
  }
  return to;
}
void few_rows(Context& ctx, const Product& p) {
  const int64_t ld = p.bits == 8 ? p.k : (p.k + kChunk - 1) / kChunk * kChunk;
  const float* x = p.bits == 8 ? p.x : parted(ctx, p, ld);
  int64_t i = 0;
  for (; i + 4 <= p.m; i += 4) few_rows<4>(p, i, x + i * ld, ld);
  for (; i < p.m; ++i) few_rows<1>(p, i, x + i * ld, ld);
}

using P = Panel<float>;

#if defined(__AVX512BW__)
static_assert(P::kColumns == 2 * kF);
/// Columns j to j + kColumns of the weights as floats, k as the slow axis; zeros where there are fewer. Words of 32 bits change places,
/// and each then gives a row of 4 (or 8) elements.
template <int Bits> void widen_panel(const Product& p, int64_t j0, float* to) {
  using Ints = Vec<int32_t>;
  constexpr int64_t each = 32 / Bits, chunk = kF * each;
  for (int64_t half = 0; half < 2; ++half) {
    const int64_t j = j0 + half * kF, columns = std::clamp<int64_t>(p.n - j, 0, kF);
    Vec<float> scale = {};
    int64_t next = 0;  // where another scale begins
    for (int64_t k0 = 0; k0 < p.k; k0 += chunk) {
      const int64_t bytes = (p.k - k0) * Bits / 8;
      const __mmask64 here = bytes >= 64 ? ~uint64_t(0) : (uint64_t(1) << bytes) - 1;
      __m512i rows[kF];
      for (int64_t c = 0; c < kF; ++c)
        rows[c] = c < columns ? _mm512_maskz_loadu_epi8(here, p.row_of(j + c) + k0 * Bits / 8) : _mm512_setzero_si512();
      transpose_dwords(rows);
      int64_t k = k0;
      for (int64_t word = 0; word < kF; ++word)
#pragma GCC unroll 8
        for (int64_t e = 0; e < each; ++e, ++k) {
          if (k >= p.k) break;
          if (k == next) {
            alignas(64) float numbers[kF] = {};
            for (int64_t c = 0; c < columns; ++c) numbers[c] = p.scale_of(j + c)[k / p.group];
            scale = load(numbers), next += p.group;
          }
          const Ints up = reinterpret_cast<Ints>(rows[word]) << int((each - 1 - e) * Bits);
          const Ints value = Bits == 8 ? up >> 24 : (up >> 28 & 15) - 8;
          store(to + k * P::kColumns + half * kF, __builtin_convertvector(value, Vec<float>) * scale);
        }
    }
  }
}
void widen_panel(const Product& p, int64_t j, float* to) {
  p.bits == 8 ? widen_panel<8>(p, j, to) : widen_panel<4>(p, j, to);
}
#else
void widen_panel(const Product& p, int64_t j, float* to) {
  std::fill_n(to, p.k * P::kColumns, 0.f);
  for (int64_t c = 0; c < std::min<int64_t>(P::kColumns, p.n - j); ++c)
    for (int64_t k = 0; k < p.k; ++k) {
      const uint8_t byte = p.row_of(j + c)[k * p.bits / 8];
      const int value = p.bits == 8 ? int(int8_t(byte)) : int(k % 2 ? byte >> 4 : byte & 15) - 8;
      to[k * P::kColumns + c] = float(value) * p.scale_of(j + c)[k / p.group];
    }
}
#endif

/// R rows of x, `k` apart, times a panel.
template <int R> void panel_rows(const Product& p, int64_t i, int64_t j, const float* panel) {
  const float* x = p.x + i * p.k;
  Vec<float> sum[R][2] = {};
  for (int64_t k = 0; k < p.k; ++k, panel += P::kColumns) {
    const Vec<float> first = load(panel), second = load(panel + kF);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) sum[r][0] += first * x[r * p.k + k], sum[r][1] += second * x[r * p.k + k];
  }
  const int64_t columns = std::min<int64_t>(P::kColumns, p.n - j);
  float line[P::kColumns];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
    store(line, sum[r][0]), store(line + kF, sum[r][1]);
    if (p.y.strides[1] == 1 && !p.bias) std::copy_n(line, columns, p.place(i + r, j));
    else
      for (int64_t c = 0; c < columns; ++c) p.write(i + r, j + c, line[c]);
  }
}
/// Panels of columns, widened to floats once, times all rows.
void many_rows(Context& ctx, const Product& p) {
  constexpr int kRows = P::kRows;
  const int64_t panels = (p.n + P::kColumns - 1) / P::kColumns, size = P::kColumns * p.k;
  const int64_t grain = std::max<int64_t>(1, (1 << 18) / (size * p.m));
  for_pieces<float>(ctx, panels, grain, size, [&](float* panel, int64_t first, int64_t last) {
    for (int64_t at = first; at < last; ++at) {
      const int64_t j = at * P::kColumns;
      widen_panel(p, j, panel);
      int64_t i = 0;
      for (; i + kRows <= p.m; i += kRows) panel_rows<kRows>(p, i, j, panel);
      for (; i + 4 <= p.m; i += 4) panel_rows<4>(p, i, j, panel);
      for (; i < p.m; ++i) panel_rows<1>(p, i, j, panel);
    }
  });
}

TensorView contiguous(Context& ctx, V x) { return !x.defined() || x.is_contiguous() ? x : dense(ctx, x, x.dtype); }

}  // namespace

void quant_matmul(Context& ctx, const entry::QuantMatmul& c) {
  if (c.y.numel() == 0) return;
  const TensorView xs = contiguous(ctx, c.x), ws = contiguous(ctx, c.w), scales = contiguous(ctx, c.w_scale),
                   add = contiguous(ctx, c.bias);
  const Product p{c.y.sizes[0],   c.y.sizes[1], c.x.sizes[1],       c.params.bits,   c.params.group,
                  xs.as<float>(), ws.data,      scales.as<float>(), add.as<float>(), c.y};
  if (p.k == 0) {
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) p.write(i, j, 0);
  } else if (c.params.op == QuantOp::Dynamic) {
    integer_product(ctx, p, nullptr);
  } else if (c.params.op == QuantOp::Static) {
    const formulas::QuantScale given{*c.x_scale.as<float>(), float(*c.x_zero.as<int32_t>())};
    integer_product(ctx, p, &given);
  } else {
    if (p.m > kFew) return many_rows(ctx, p);
    few_rows(ctx, p);
  }
}

}  // namespace tapir::inline v0::cpu
