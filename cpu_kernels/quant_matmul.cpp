// Products with quantized weights: float activations with weights that are widened on their way (a few rows: each weight is read once,
// at the speed of memory; many: the float product of widened blocks), or 8-bit activations and an integer product.
#include "../core/parallel.h"
#include "pack.h"
#include "quant_dot.h"

namespace tapir::inline v0::cpu {
namespace {

struct Product {
  int64_t m, n, k, bits, group;
  const float* x;  // rows of k
  const void* w;
  const float* scale;  // (n, k / group)
  const float* bias;   // (n) or null
  V y;

  const uint8_t* row_of(int64_t j) const { return static_cast<const uint8_t*>(w) + j * (k * bits / 8); }
  const float* scale_of(int64_t j) const { return scale + j * (k / group); }
  void write(int64_t i, int64_t j, float sum) const {
    y.as<float>()[i * y.strides[0] + j * y.strides[1]] = bias ? sum + bias[j] : sum;
  }
};

constexpr int kF = kLanes<float>;

inline Vec<float> widen(const int8_t* p) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#else
  Vec<float> v;
  for (int i = 0; i < kF; ++i) v[i] = float(p[i]);
  return v;
#endif
}
/// 2 kF weights of 4 bits: the even ones, then the odd ones.
inline void widen_4(const uint8_t* p, Vec<float>& even, Vec<float>& odd) {
#if defined(__AVX512F__)
  const __m512 numbers = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  even = _mm512_permutexvar_ps(bytes, numbers);  // looks at the lower four bits of an index alone
  odd = _mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), numbers);
#else
  for (int i = 0; i < kF; ++i) even[i] = float(int(p[i] & 15) - 8), odd[i] = float(int(p[i] >> 4) - 8);
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
/// x: as parted() orders it.
template <int R> void dot_int4(const Product& p, int64_t j, const float* x, float* sums) {
  const uint8_t* w = p.row_of(j);
  const float* scale = p.scale_of(j);
  Vec<float> total[R] = {};
  for (int64_t first = 0; first < p.k; first += p.group, ++scale) {
    Vec<float> a[R] = {}, b[R] = {};
    for (int64_t k = first; k < first + p.group; k += 2 * kF) {
      Vec<float> even, odd;
      widen_4(w + k / 2, even, odd);
      for (int r = 0; r < R; ++r) a[r] += even * load(x + r * p.k + k), b[r] += odd * load(x + r * p.k + k + kF);
    }
    for (int r = 0; r < R; ++r) total[r] += (a[r] + b[r]) * *scale;
  }
  for (int r = 0; r < R; ++r) sums[r] = sum_lanes<float>(total[r]);
}

template <int R> void few_rows(const Product& p, int64_t i, const float* x) {
  parallel_for(p.n, std::max<int64_t>(1, (1 << 17) / (p.k + 1)), [&](int64_t first, int64_t last) {
    float sums[R];
    for (int64_t j = first; j < last; ++j) {
      p.bits == 8 ? dot_int8<R>(p, j, x, sums) : dot_int4<R>(p, j, x, sums);
      for (int r = 0; r < R; ++r) p.write(i + r, j, sums[r]);
    }
  });
}
/// x as weights of 4 bits meet it: in each piece of 2 kF the even elements before the odd ones.
const float* parted(Context& ctx, const Product& p) {
  float* to = ctx.scratch_of<float>(p.m * p.k);
  for (int64_t at = 0; at < p.m * p.k; at += 2 * kF)
    for (int64_t i = 0; i < kF; ++i) to[at + i] = p.x[at + 2 * i], to[at + kF + i] = p.x[at + 2 * i + 1];
  return to;
}
void few_rows(const Product& p) {
  int64_t i = 0;
  for (; i + 4 <= p.m; i += 4) few_rows<4>(p, i, p.x + i * p.k);
  for (; i < p.m; ++i) few_rows<1>(p, i, p.x + i * p.k);
}

void widen_row(const Product& p, int64_t j, float* to) {
  const float* scale = p.scale_of(j);
  for (int64_t first = 0; first < p.k; first += p.group, ++scale) {
    const int64_t end = first + p.group;
    int64_t k = first;
    if (p.bits == 8) {
      const int8_t* w = reinterpret_cast<const int8_t*>(p.row_of(j));
      for (; k + kF <= end; k += kF) store(to + k, widen(w + k) * *scale);
      for (; k < end; ++k) to[k] = float(w[k]) * *scale;
    } else {  // in the order of parted()
      for (; k < end; k += 2 * kF) {
        Vec<float> even, odd;
        widen_4(p.row_of(j) + k / 2, even, odd);
        store(to + k, even * *scale), store(to + k + kF, odd * *scale);
      }
    }
  }
}
/// A view of a matrix of floats.
TensorView matrix(V like, void* data, int64_t rows, int64_t columns, int64_t row, int64_t column) {
  TensorView v = like;
  v.data = data, v.dtype = kFloat32, v.rank = 2;
  v.sizes[0] = rows, v.sizes[1] = columns, v.strides[0] = row, v.strides[1] = column;
  return v;
}
/// Blocks of columns, widened to floats.
void many_rows(Context& ctx, const Product& p, V bias) {
  const TensorView x = matrix(p.y, const_cast<float*>(p.x), p.m, p.k, p.k, 1);
  const int64_t block = std::clamp<int64_t>((1 << 22) / p.k / 64 * 64, 64, 4096);
  float* wide = ctx.scratch_of<float>(std::min(block, p.n) * p.k);
  for (int64_t j = 0; j < p.n; j += block) {
    const int64_t columns = std::min(block, p.n - j);
    parallel_for(columns, std::max<int64_t>(1, (1 << 16) / p.k), [&](int64_t first, int64_t last) {
      for (int64_t c = first; c < last; ++c) widen_row(p, j + c, wide + c * p.k);
    });
    Context inner;  // its scratch memory ends with the block
    inner.device = ctx.device, inner.deterministic = ctx.deterministic, inner.table = ctx.table;
    TensorView of_block;
    if (bias.defined()) of_block = bias, of_block.sizes[0] = columns, of_block.data = bias.as<float>() + j;
    matmul(inner, matrix(p.y, p.y.as<float>() + j * p.y.strides[1], p.m, columns, p.y.strides[0], p.y.strides[1]), x,
           matrix(p.y, wide, p.k, columns, 1, p.k), of_block, {}, {});
  }
}

struct Range {
  float low = 0, high = 0;  // NaN where an element is not finite
};
Range range_of(const float* x, int64_t n) {
  float low[kF] = {}, high[kF] = {}, bad[kF] = {};
  int64_t i = 0;
  for (; i + kF <= n; i += kF)
    for (int l = 0; l < kF; ++l) {
      low[l] = x[i + l] < low[l] ? x[i + l] : low[l];
      high[l] = x[i + l] > high[l] ? x[i + l] : high[l];
      bad[l] += x[i + l] * 0;
    }
  for (; i < n; ++i) low[0] = std::min(low[0], x[i]), high[0] = std::max(high[0], x[i]), bad[0] += x[i] * 0;
  Range r;
  float not_finite = 0;
  for (int l = 0; l < kF; ++l)
    r.low = std::min(r.low, low[l]), r.high = std::max(r.high, high[l]), not_finite += bad[l];
  r.high += not_finite;
  return r;
}

/// Integer products of 8-bit rows. In each block of columns the sums of the weights come first.
void integer_product(Context& ctx, const Product& p, const formulas::QuantScale* given) {
  uint8_t* a = ctx.scratch_of<uint8_t>(p.m * p.k);
  formulas::QuantScale* rows = ctx.scratch_of<formulas::QuantScale>(p.m);
  parallel_for(p.m, std::max<int64_t>(1, (1 << 15) / p.k), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      if (given) rows[i] = *given;
      else {
        const Range r = range_of(p.x + i * p.k, p.k);
        rows[i] = formulas::affine_scale(r.low, r.high);
        if (r.high != r.high) rows[i].scale = r.high;  // a row with NaN or infinity has no scale
      }
      quantize_row(a + i * p.k, p.x + i * p.k, p.k, 1 / rows[i].scale, rows[i].zero_point);
    }
  });
  constexpr int64_t kRows = 64;
  const int64_t none = 0;
  const Stretches s{1, p.k, &none};
  const int8_t* w = static_cast<const int8_t*>(p.w);
  parallel_for((p.n + 3) / 4, std::max<int64_t>(1, (1 << 16) / (p.k * p.m + 1)), [&](int64_t first, int64_t last) {
    int32_t sums[16];
    for (int64_t i0 = 0; i0 < p.m; i0 += kRows)
      for (int64_t j = 4 * first; j < std::min(4 * last, p.n); j += 4) {
        const int64_t columns = std::min<int64_t>(4, p.n - j);
        int32_t of_weights[4];
        for (int64_t c = 0; c < columns; ++c) of_weights[c] = sum_of(w + (j + c) * p.k, p.k);
        for (int64_t i = i0; i < std::min(i0 + kRows, p.m); i += 4) {
          const int64_t height = std::min<int64_t>(4, p.m - i);
          dot_block(height, columns, s, a + i * p.k, p.k, w + j * p.k, p.k, sums);
          for (int64_t r = 0; r < height; ++r)
            for (int64_t c = 0; c < columns; ++c)
              p.write(i + r, j + c,
                      float(sums[4 * r + c] - int32_t(rows[i + r].zero_point) * of_weights[c]) *
                          (rows[i + r].scale * p.scale[j + c]));
        }
      }
  });
}

TensorView contiguous(Context& ctx, V x) { return !x.defined() || x.is_contiguous() ? x : dense(ctx, x, x.dtype); }

}  // namespace

void quant_matmul(Context& ctx, V y, V x, V x_scale, V x_zero, V w, V w_scale, V bias,
                  const QuantMatmulParams& params) {
  if (y.numel() == 0) return;
  const TensorView xs = contiguous(ctx, x), ws = contiguous(ctx, w), scales = contiguous(ctx, w_scale),
                   add = contiguous(ctx, bias);
  Product p{y.sizes[0],     y.sizes[1], x.sizes[1],         params.bits,     params.group,
            xs.as<float>(), ws.data,    scales.as<float>(), add.as<float>(), y};
  if (p.k == 0) {
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) p.write(i, j, 0);
  } else if (params.op == QuantOp::Dynamic) {
    integer_product(ctx, p, nullptr);
  } else if (params.op == QuantOp::Static) {
    const formulas::QuantScale given{*x_scale.as<float>(), float(*x_zero.as<int32_t>())};
    integer_product(ctx, p, &given);
  } else {
    if (p.bits == 4) p.x = parted(ctx, p);
    p.m <= 16 ? few_rows(p) : many_rows(ctx, p, add);
  }
}

}  // namespace tapir::inline v0::cpu
