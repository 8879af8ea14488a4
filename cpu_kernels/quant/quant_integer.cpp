// Integer products of 8-bit rows. A few rows: dot products with the weights where they lie. Many: panels of columns are repacked, which
// costs a few rows' time, and multiplied without a sum across lanes. In both, the sums of the weights, which zero points need, come from
// products with ones.
#include "../../core/parallel.h"
#include "../pieces.h"
#include "quant_dot.h"
#include "quant_product.h"

namespace tapir::inline v0::cpu {
namespace {

constexpr int kF = kLanes<float>;

/// Activations in 8 bits: rows `stride` apart, zeros behind the k-th element.
struct Rows {
  int64_t stride;
  uint8_t* data;
  formulas::QuantScale* scale;  // of each
};

struct Range {
  float low = 0, high = 0;  // NaN where an element is not finite
};
Range range_of(const float* x, int64_t n) {
  Vec<float> low = {}, high = {}, bad = {};
  int64_t i = 0;
  for (; i + kF <= n; i += kF) {
    const Vec<float> v = load(x + i);
    low = v < low ? v : low, high = v > high ? v : high, bad += v * 0;
  }
  Range r;
  float not_finite = 0;
  for (; i < n; ++i) r.low = std::min(r.low, x[i]), r.high = std::max(r.high, x[i]), not_finite += x[i] * 0;
  for (int l = 0; l < kF; ++l)
    r.low = std::min(r.low, low[l]), r.high = std::max(r.high, high[l]), not_finite += bad[l];
  r.high += not_finite;
  return r;
}

Rows quantize_rows(Context& ctx, const QuantProduct& p, const formulas::QuantScale* given) {
  Rows a;
  a.stride = (p.k + 63) / 64 * 64;
  a.data = ctx.scratch_of<uint8_t>(p.m * a.stride), a.scale = ctx.scratch_of<formulas::QuantScale>(p.m);
  parallel_for(p.m, std::max<int64_t>(1, (1 << 16) / p.k), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      if (given) a.scale[i] = *given;
      else {
        const Range r = range_of(p.x + i * p.k, p.k);
        a.scale[i] = formulas::affine_scale(r.low, r.high);
        if (r.high != r.high) a.scale[i].scale = r.high;  // a row with NaN or infinity has no scale
      }
      uint8_t* to = a.data + i * a.stride;
      quantize_row(to, p.x + i * p.k, p.k, 1 / a.scale[i].scale, a.scale[i].zero_point);
      std::fill(to + p.k, to + a.stride, uint8_t(0));
    }
  });
  return a;
}

void write(const QuantProduct& p, const Rows& a, int64_t i, int64_t j, int32_t sum, int32_t of_weights) {
  p.write(i, j, float(sum - int32_t(a.scale[i].zero_point) * of_weights) * (a.scale[i].scale * p.scale[j]));
}

constexpr int64_t kBlock = 120;  // of columns: a multiple of 16 / 2, 16 / 3, ...

/// R rows and a block of columns from j on; behind the rows stands one of ones, for the sums of the weights.
template <int R>
void row_group(const QuantProduct& p, const Rows& a, const uint8_t* rows, int64_t i, int64_t j, int64_t columns) {
  constexpr int kAtOnce = 16 / (R + 1);
  const int64_t none = 0;
  const Stretches all{1, p.k, &none};
  const int8_t* w = static_cast<const int8_t*>(p.w) + j * p.k;
  int32_t sums[R + 1][kBlock], tile[16];
  for (int64_t c = 0; c < columns;) {
    const int n = columns - c >= kAtOnce ? kAtOnce : 1;
    if (n == kAtOnce) dot_tile<R + 1, kAtOnce>(all, rows, a.stride, w + c * p.k, p.k, tile);
    else dot_tile<R + 1, 1>(all, rows, a.stride, w + c * p.k, p.k, tile);
    for (int r = 0; r <= R; ++r)
      for (int q = 0; q < n; ++q) sums[r][c + q] = tile[n * r + q];
    c += n;
  }
  for (int r = 0; r < R; ++r) {
    const int32_t zero = int32_t(a.scale[i + r].zero_point);
    const float scale = a.scale[i + r].scale;
    if (p.y.strides[1] != 1) {
      for (int64_t c = 0; c < columns; ++c) write(p, a, i + r, j + c, sums[r][c], sums[R][c]);
      continue;
    }
    float* const y = p.place(i + r, j);
    for (int64_t c = 0; c < columns; ++c) y[c] = float(sums[r][c] - zero * sums[R][c]) * (scale * p.scale[j + c]);
    for (int64_t c = 0; p.bias && c < columns; ++c) y[c] += p.bias[j + c];
  }
}
void few_rows(Context& ctx, const QuantProduct& p, const Rows& a) {
  constexpr int64_t kRows = 4;
  uint8_t* groups = ctx.scratch_of<uint8_t>((p.m + kRows - 1) / kRows * (kRows + 1) * a.stride);
  for (int64_t i = 0; i < p.m; i += kRows) {
    const int64_t rows = std::min(kRows, p.m - i);
    uint8_t* to = groups + i / kRows * (kRows + 1) * a.stride;
    std::copy_n(a.data + i * a.stride, rows * a.stride, to);
    std::fill_n(to + rows * a.stride, a.stride, uint8_t(1));
  }
  const int64_t blocks = (p.n + kBlock - 1) / kBlock;
  parallel_for(blocks, std::max<int64_t>(1, (1 << 18) / (kBlock * p.k)), [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block)
      for (int64_t i = 0; i < p.m; i += kRows) {
        const int64_t j = block * kBlock, columns = std::min(kBlock, p.n - j);
        const uint8_t* from = groups + i / kRows * (kRows + 1) * a.stride;
        switch (std::min(kRows, p.m - i)) {
          case 1: row_group<1>(p, a, from, i, j, columns); break;
          case 2: row_group<2>(p, a, from, i, j, columns); break;
          case 3: row_group<3>(p, a, from, i, j, columns); break;
          default: row_group<4>(p, a, from, i, j, columns);
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
      transpose_dwords(rows);
      for (int64_t q = 0; q < 16; ++q) _mm512_storeu_si512(to + ((k / 4 + q) * kPanel + half) * 4, rows[q]);
    }
}

/// Writes a tile of sums.
template <int R> void write_tile(const QuantProduct& p, const Rows& a, int64_t i, int64_t j, const int32_t* sums,
                                 const int32_t* of_weights) {
  const int64_t columns = std::min<int64_t>(kPanel, p.n - j);
  if (columns < kPanel || p.y.strides[1] != 1) {
    for (int r = 0; r < R; ++r)
      for (int64_t c = 0; c < columns; ++c) write(p, a, i + r, j + c, sums[r * kPanel + c], of_weights[c]);
    return;
  }
  for (int64_t c = 0; c < kPanel; c += kF) {
    const __m512i weights = _mm512_loadu_si512(of_weights + c);
    const Vec<float> scale = load(p.scale + j + c), bias = p.bias ? load(p.bias + j + c) : Vec<float>{};
    for (int r = 0; r < R; ++r) {
      const __m512i zero = _mm512_mullo_epi32(weights, _mm512_set1_epi32(int32_t(a.scale[i + r].zero_point)));
      const __m512i sum = _mm512_sub_epi32(_mm512_loadu_si512(sums + r * kPanel + c), zero);
      const Vec<float> v = _mm512_cvtepi32_ps(sum) * (scale * a.scale[i + r].scale);
      store(p.place(i + r, j + c), p.bias ? v + bias : v);
    }
  }
}
template <int R> void panel_rows(const QuantProduct& p, const Rows& a, int64_t i, int64_t j, const int8_t* panel,
                                 const int32_t* of_weights) {
  alignas(64) int32_t sums[R * kPanel];
  panel_tile<R>((p.k + 3) / 4, a.data + i * a.stride, a.stride, panel, sums);
  write_tile<R>(p, a, i, j, sums, of_weights);
}

void many_rows(Context& ctx, const QuantProduct& p, const Rows& a) {
  constexpr int kRows = 12;
  const int64_t panels = (p.n + kPanel - 1) / kPanel, size = a.stride * kPanel;
  uint8_t* ones = ctx.scratch_of<uint8_t>(a.stride);
  std::fill_n(ones, a.stride, uint8_t(1));
  const int64_t grain = std::max<int64_t>(1, (1 << 18) / (kPanel * p.k * p.m));
  for_pieces<int8_t>(ctx, panels, grain, size, [&](int8_t* panel, int64_t first, int64_t last) {
    alignas(64) int32_t of_weights[kPanel];
    for (int64_t at = first; at < last; ++at) {
      const int64_t j = at * kPanel;
      pack_panel(p, j, panel);
      panel_tile<1>((p.k + 3) / 4, ones, 0, panel, of_weights);
      int64_t i = 0;
      for (; i + kRows <= p.m; i += kRows) panel_rows<kRows>(p, a, i, j, panel, of_weights);
      for (; i + 4 <= p.m; i += 4) panel_rows<4>(p, a, i, j, panel, of_weights);
      for (; i < p.m; ++i) panel_rows<1>(p, a, i, j, panel, of_weights);
    }
  });
}

#else

void many_rows(Context&, const QuantProduct& p, const Rows& a) {
  const int64_t none = 0;
  const Stretches s{1, p.k, &none};
  const int8_t* w = static_cast<const int8_t*>(p.w);
  parallel_for((p.n + 3) / 4, std::max<int64_t>(1, (1 << 16) / (p.k * p.m)), [&](int64_t first, int64_t last) {
    int32_t sums[16];
    for (int64_t j = 4 * first; j < std::min(4 * last, p.n); j += 4) {
      const int64_t columns = std::min<int64_t>(4, p.n - j);
      int32_t of_weights[4];
      for (int64_t c = 0; c < columns; ++c) of_weights[c] = sum_of(w + (j + c) * p.k, p.k);
      for (int64_t i = 0; i < p.m; i += 4) {
        const int64_t height = std::min<int64_t>(4, p.m - i);
        dot_block(height, columns, s, a.data + i * a.stride, a.stride, w + j * p.k, p.k, sums);
        for (int64_t r = 0; r < height; ++r)
          for (int64_t c = 0; c < columns; ++c) write(p, a, i + r, j + c, sums[4 * r + c], of_weights[c]);
      }
    }
  });
}

#endif

}  // namespace

void integer_product(Context& ctx, const QuantProduct& p, const formulas::QuantScale* given) {
  constexpr int64_t kFew = 8;
  const Rows a = quantize_rows(ctx, p, given);
  p.m <= kFew ? few_rows(ctx, p, a) : many_rows(ctx, p, a);
}

}  // namespace tapir::inline v0::cpu
