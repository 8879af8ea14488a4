// Products with quantized weights: float activations with weights that are widened on their way (a few rows: quant_few.cpp; many: the float
// product of widened panels), or 8-bit activations and an integer product (quant_integer.cpp).
#include "../matmul/gemm.h"
#include "../pack.h"
#include "../pieces.h"
#include "quant_dot.h"
#include "quant_product.h"

namespace tapir::inline v0::cpu {
namespace {

using Product = QuantProduct;
constexpr int kF = kLanes<float>;
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

TensorView contiguous(Context& ctx, V x, DType dtype) {
  return !x.defined() || (x.is_contiguous() && x.dtype == dtype) ? x : dense(ctx, x, dtype);
}

}  // namespace

void quant_matmul(Context& ctx, const entry::QuantMatmul& c) {
  if (c.y.numel() == 0) return;
  const TensorView xs = contiguous(ctx, c.x, kFloat32), ws = contiguous(ctx, c.w, c.w.dtype),
                   scales = contiguous(ctx, c.w_scale, kFloat32), add = contiguous(ctx, c.bias, kFloat32);
  TensorView y = c.y;
  if (y.dtype != kFloat32) {
    y.data = ctx.scratch_of<float>(y.numel()), y.dtype = kFloat32;
    y.strides[0] = y.sizes[1], y.strides[1] = 1;
  }
  const Product p{y.sizes[0],     y.sizes[1], c.x.sizes[1],       c.params.bits,   c.params.group,
                  xs.as<float>(), ws.data,    scales.as<float>(), add.as<float>(), y};
  if (p.k == 0) {
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) p.write(i, j, 0);
  } else if (c.params.op == QuantOp::Dynamic) {
    integer_product(ctx, p, nullptr);
  } else if (c.params.op == QuantOp::Static) {
    const formulas::QuantScale given = given_scale("quantized_linear", c.x_scale, c.x_zero);
    integer_product(ctx, p, &given);
  } else {
    p.m > kQuantFew ? many_rows(ctx, p) : few_rows(ctx, p);
  }
  if (c.params.finish == MatmulFinish::GeluTanh) unary(ctx, {y, y, {.op = UnaryOp::Gelu, .a = 1}});
  if (y.data != c.y.data) copy(ctx, {c.y, y});
}

}  // namespace tapir::inline v0::cpu
