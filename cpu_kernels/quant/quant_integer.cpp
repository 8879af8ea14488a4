// Integer products of 8-bit rows. A few rows: dot products with the weights where they lie. Many: panels of columns are repacked, which
// costs a few rows' time, and multiplied without a sum across lanes. Rows of bytes keep their zero point, so they need the sums of the
// weights: a row of ones gives them. Rows of words are stored less their zero point and need no sums.
#include "../../core/convert.h"
#include "../../core/parallel.h"
#include "../pieces.h"
#include "quant_dot.h"
#include "quant_product.h"

namespace tapir::inline v0::cpu {
namespace {

constexpr int kF = kLanes<float>;
constexpr bool kBytes = sizeof(RowElement) == 1;
constexpr int64_t kBlock = 64, kMostRows = 42 / kTileRows * kTileRows;  // of columns; of rows

/// Activations of 8 bits: rows `stride` apart, zeros behind the k-th element. A row of ones stands before those of bytes.
struct Rows {
  int64_t stride;
  RowElement* data;
  formulas::QuantScale* scale;  // of each
};

struct Range {
  float low = 0, high = 0;  // NaN where an element is not finite
};
Range range_of(const float* x, int64_t n) {
  constexpr int kAtOnce = 4;  // an operation waits for the one before it
  Vec<float> low[kAtOnce] = {}, high[kAtOnce] = {}, bad[kAtOnce] = {};
  int64_t i = 0;
  for (; i + kAtOnce * kF <= n; i += kAtOnce * kF)
#pragma GCC unroll 4
    for (int q = 0; q < kAtOnce; ++q) {
      const Vec<float> v = load(x + i + q * kF);
      low[q] = v < low[q] ? v : low[q], high[q] = v > high[q] ? v : high[q], bad[q] += v * 0;
    }
  Range r;
  float not_finite = 0;
  for (; i < n; ++i) r.low = std::min(r.low, x[i]), r.high = std::max(r.high, x[i]), not_finite += x[i] * 0;
  for (int q = 1; q < kAtOnce; ++q)
    low[0] = low[q] < low[0] ? low[q] : low[0], high[0] = high[q] > high[0] ? high[q] : high[0], bad[0] += bad[q];
  for (int l = 0; l < kF; ++l)
    r.low = std::min(r.low, low[0][l]), r.high = std::max(r.high, high[0][l]), not_finite += bad[0][l];
  r.high += not_finite;
  return r;
}

/// The n elements of a row: bytes, or words less their zero point.
template <class T> void quantize_to(T* to, const float* x, int64_t n, const formulas::QuantScale& s) {
  if constexpr (sizeof(T) == 1) return quantize_row(to, x, n, 1 / s.scale, s.zero_point);
  constexpr int64_t kPart = 256;
  uint8_t bytes[kPart];
  const int zero = cast<uint8_t>(s.zero_point);  // 0 for a row that has NaN
  for (int64_t i = 0; i < n; i += kPart) {
    const int64_t count = std::min(kPart, n - i);
    quantize_row(bytes, x + i, count, 1 / s.scale, s.zero_point);
    for (int64_t j = 0; j < count; ++j) to[i + j] = T(bytes[j] - zero);
  }
}

Rows quantize_rows(Context& ctx, const QuantProduct& p, const formulas::QuantScale* given) {
  Rows a;
  // An odd number of cache lines apart, so that rows do not meet in one set of the cache.
  constexpr int64_t kLine = 64 / sizeof(RowElement);
  a.stride = ((p.k + kLine - 1) / kLine | 1) * kLine;
  a.data = ctx.scratch_of<RowElement>((p.m + kBytes) * a.stride) + kBytes * a.stride;
  a.scale = ctx.scratch_of<formulas::QuantScale>(p.m);
  if (kBytes) std::fill_n(a.data - a.stride, a.stride, RowElement(1));
  parallel_for(p.m, std::max<int64_t>(1, (1 << 16) / p.k), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      if (given) a.scale[i] = *given;
      else {
        const Range r = range_of(p.x + i * p.k, p.k);
        a.scale[i] = formulas::affine_scale(r.low, r.high);
        if (r.high != r.high) a.scale[i].scale = r.high;  // a row with NaN or infinity has no scale
      }
      RowElement* to = a.data + i * a.stride;
      quantize_to(to, p.x + i * p.k, p.k, a.scale[i]);
      std::fill(to + p.k, to + a.stride, RowElement(0));
    }
  });
  return a;
}

/// Sums, `ld` apart, of rows i to `last` and columns from j on. Bias is added in a loop of its own, so that no compiler makes one rounding
/// of two.
void write_rows(const QuantProduct& p, const Rows& a, int64_t i, int64_t last, int64_t j, int64_t columns,
                const int32_t* sums, int64_t ld, const int32_t* of_weights) {
  const float *const scales = p.scale + j, *const bias = p.bias ? p.bias + j : nullptr;
  for (; i < last; ++i, sums += ld) {
    const int32_t zero = cast<uint8_t>(a.scale[i].zero_point);
    const float scale = a.scale[i].scale;
    float line[kBlock], *__restrict const y = p.y.strides[1] == 1 ? p.place(i, j) : line;
    for (int64_t c = 0; c < columns; ++c)
      y[c] = float(kBytes ? sums[c] - zero * of_weights[c] : sums[c]) * (scale * scales[c]);
    for (int64_t c = 0; bias && c < columns; ++c) y[c] += bias[c];
    for (int64_t c = 0; y == line && c < columns; ++c) *p.place(i, j + c) = line[c];
  }
}

/// Asks for lines of the result that nobody has touched for long: they come while the product runs.
void fetch_rows(const QuantProduct& p, int64_t i, int64_t last, int64_t j, int64_t columns) {
  for (; p.y.strides[1] == 1 && i < last; ++i)
    for (int64_t c = 0; c < columns; c += kF) __builtin_prefetch(p.place(i, j + c), 1);
}

/// Blocks of columns, four at a time, by groups of rows, both while they are in the cache. The first row of the first group of bytes is the
/// one of ones. Columns that many rows of words (T) are multiplied with become words once, where they are short.
template <class T> void few_rows(Context& ctx, const QuantProduct& p, const Rows& a) {
  constexpr bool kWide = sizeof(T) == 2;
  const int64_t fit = (24 << 10) / (a.stride * int64_t(sizeof(T))) / kTileRows * kTileRows;
  const int64_t group = kWide ? std::clamp(fit, kTileRows, kMostRows) : kMostRows;
  const int64_t blocks = (p.n + kBlock - 1) / kBlock, grain = std::max<int64_t>(1, (1 << 18) / (kBlock * p.k * p.m));
  const int8_t* const w = static_cast<const int8_t*>(p.w);
  for_pieces<T>(ctx, blocks, grain, kWide && p.m >= 48 && p.k <= 2048 ? kBlock * a.stride : 0,
                [&](T* wide, int64_t begin, int64_t end) {
                  int32_t sums[kMostRows][kBlock], of_weights[kBlock];
                  for (int64_t j = begin * kBlock; j < std::min(end * kBlock, p.n); j += kBlock) {
                    const int64_t columns = std::min(kBlock, p.n - j);
                    for (int64_t c = 0; wide && c < columns; ++c)
                      std::fill(std::copy_n(w + (j + c) * p.k, p.k, wide + c * a.stride), wide + (c + 1) * a.stride,
                                T(0));
                    for (int64_t first = kWide ? 0 : -1; first < p.m; first += group) {
                      const int64_t last = std::min(first + group, p.m);
                      if (kWide) fetch_rows(p, first, last, j, columns);
                      for (int64_t c = 0; c < columns; c += kDotColumns)
                        for (int64_t i = first; i < last; i += kTileRows) {
                          const auto multiply = [&](const auto* b, int64_t ldb) {
                            row_block(std::min(kTileRows, last - i), std::min(kDotColumns, columns - c), p.k,
                                      a.data + i * a.stride, a.stride, b + c * ldb, ldb, &sums[i - first][c], kBlock);
                          };
                          if constexpr (kWide)
                            if (wide) {
                              multiply(wide, a.stride);
                              continue;
                            }
                          multiply(w + j * p.k, p.k);
                        }
                      if (first < 0) std::copy_n(sums[0], columns, of_weights);
                      const int64_t row = std::max<int64_t>(first, 0);
                      write_rows(p, a, row, last, j, columns, sums[row - first], kBlock, of_weights);
                    }
                  }
                });
}

#if defined(TAPIR_QUANT_PANELS)

/// Columns j to j + kPanel of the weights, four elements of each column after the other: [k / 4][kPanel][4].
void pack_panel(const QuantProduct& p, int64_t j, int8_t* to) {
  for (int64_t half = 0; half < kPanel; half += 16)
    for (int64_t k = 0; k < p.k; k += 64) {
      const __mmask64 here = p.k - k >= 64 ? ~uint64_t(0) : (uint64_t(1) << (p.k - k)) - 1;
      __m512i rows[16];
      for (int64_t c = 0; c < 16; ++c)
        rows[c] =
            j + half + c < p.n ? _mm512_maskz_loadu_epi8(here, p.row_of(j + half + c) + k) : _mm512_setzero_si512();
      for (int64_t c = 16; c < 32; ++c) __builtin_prefetch(p.row_of(j + half + c) + k);
      transpose_dwords(rows);
      for (int64_t q = 0; q < 16; ++q) _mm512_storeu_si512(to + ((k / 4 + q) * kPanel + half) * 4, rows[q]);
    }
}

template <int R> void panel_rows(const QuantProduct& p, const Rows& a, int64_t i, int64_t j, const int8_t* panel,
                                 const int32_t* of_weights) {
  alignas(64) int32_t sums[R * kPanel];
  fetch_rows(p, i, i + R, j, kPanel);
  panel_tile<R>((p.k + 3) / 4, a.data + i * a.stride, a.stride, panel, sums);
  write_rows(p, a, i, i + R, j, std::min(kPanel, p.n - j), sums, kPanel, of_weights);
}

void many_rows(Context& ctx, const QuantProduct& p, const Rows& a) {
  constexpr int kRows = 12;
  const int64_t panels = (p.n + kPanel - 1) / kPanel, size = a.stride * kPanel;
  const int64_t grain = std::max<int64_t>(1, (1 << 18) / (kPanel * p.k * p.m));
  for_pieces<int8_t>(ctx, panels, grain, size, [&](int8_t* panel, int64_t first, int64_t last) {
    alignas(64) int32_t of_weights[kPanel];
    for (int64_t at = first; at < last; ++at) {
      const int64_t j = at * kPanel;
      pack_panel(p, j, panel);
      panel_tile<1>((p.k + 3) / 4, a.data - a.stride, 0, panel, of_weights);
      int64_t i = 0;
      for (; i + kRows <= p.m; i += kRows) panel_rows<kRows>(p, a, i, j, panel, of_weights);
      for (; i + 4 <= p.m; i += 4) panel_rows<4>(p, a, i, j, panel, of_weights);
      for (; i < p.m; ++i) panel_rows<1>(p, a, i, j, panel, of_weights);
    }
  });
}

#endif

}  // namespace

void integer_product(Context& ctx, const QuantProduct& p, const formulas::QuantScale* given) {
  const Rows a = quantize_rows(ctx, p, given);
  // Sums across lanes cost as much for any k, and as often as there are rows; repacking costs as much as a few rows.
#if defined(TAPIR_QUANT_PANELS)
  if (p.m > 4 && 20 * p.m > p.k) return many_rows(ctx, p, a);
#endif
  few_rows<RowElement>(ctx, p, a);
}

}  // namespace tapir::inline v0::cpu
