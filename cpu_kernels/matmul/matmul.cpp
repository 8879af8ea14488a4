// Matrix products: which kernel gets which problem. dnn::gemm has float32 and, where the CPU does, bfloat16; vectors times
// matrices and small products have loops of their own (gemv.h, small.h); all else is the packed GEMM (gemm.h).
#include <cmath>

#include "../dnn.h"
#include "../pack.h"
#include "gemm.h"
#include "gemv.h"
#include "small.h"

namespace tapir::inline v0::cpu {
namespace {

/// A product with its operands reduced to strides. bias has the extents of out, with stride 0 where it repeats.
struct Product {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  dnn::Matrix a, b, out, bias;
  double alpha = 1, beta = 0;
  bool relu = false;
};

/// C = A B as C^T = B^T A^T.
Product transposed(const Product& p) {
  Product t = p;
  std::swap(t.m, t.n);
  t.a = transposed(p.b), t.b = transposed(p.a), t.out = transposed(p.out), t.bias = transposed(p.bias);
  return t;
}

Product product(V out, V a, V b, V bias, const MatmulParams& params) {
  Product p;
  p.batch = out.rank > 2 ? out.sizes[out.rank - 3] : 1;
  p.m = out.sizes[out.rank - 2], p.n = out.sizes[out.rank - 1], p.k = a.sizes[a.rank - 1];
  p.a = strided_matrix(a), p.b = strided_matrix(b), p.out = strided_matrix(out);
  if (bias.defined()) p.bias = strided_matrix(bias.expand(out.shape()));
  p.alpha = params.alpha, p.beta = params.beta, p.relu = params.finish == MatmulFinish::Relu;
  return p;
}

template <class T> struct Sum { using type = uint32_t; };
template <> struct Sum<float> { using type = float; };
template <> struct Sum<double> { using type = double; };
template <> struct Sum<int64_t> { using type = uint64_t; };

/// What becomes of a sum: out = relu?(alpha sum + beta out + bias). Integers wrap.
template <class T> struct Finish {
  using Acc = typename Sum<T>::type;
  const Product& p;
  const Acc alpha{std::is_floating_point_v<Acc> ? Acc(p.alpha) : Acc(int64_t(p.alpha))};
  const Acc beta{std::is_floating_point_v<Acc> ? Acc(p.beta) : Acc(int64_t(p.beta))};
  T* const out = static_cast<T*>(p.out.data);
  const T* const bias = static_cast<const T*>(p.bias.data);

  void row(int64_t at, int64_t i, int64_t j0, int64_t n, const Acc* sums) const {
    T* o = out + at * p.out.batch + i * p.out.row + j0 * p.out.column;
    const T* add = bias ? bias + at * p.bias.batch + i * p.bias.row + j0 * p.bias.column : nullptr;
    const bool dense = p.out.column == 1 && (!add || p.bias.column == 1),
               whole = alpha == Acc(1) && beta == Acc(0) && !p.relu;
    if (dense && whole && !add)
      for (int64_t j = 0; j < n; ++j) o[j] = narrow(sums[j]);
    else if (dense && whole)
      for (int64_t j = 0; j < n; ++j) o[j] = narrow(sums[j] + Acc(add[j]));
    else
      for (int64_t j = 0; j < n; ++j) {
        Acc v = alpha * sums[j];
        if (beta != Acc(0)) v += beta * Acc(o[j * p.out.column]);
        if (add) v += Acc(add[j * p.bias.column]);
        T result = narrow(v);
        if (p.relu && result < T(0)) result = T(0);
        o[j * p.out.column] = result;
      }
  }
  static T narrow(Acc v) {
    if constexpr (std::is_same_v<T, bool>) return v != 0;
    else return T(v);
  }
};

/// Few operations: no packing, no threads.
template <class T> void tiny_product(const Product& p) {
  using Acc = typename Sum<T>::type;
  constexpr int64_t kWidth = 64;
  const Finish<T> finish{p};
  for (int64_t at = 0; at < p.batch; ++at)
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j0 = 0; j0 < p.n; j0 += kWidth) {
        const int64_t n = std::min(kWidth, p.n - j0);
        const T* a = static_cast<const T*>(p.a.data) + at * p.a.batch + i * p.a.row;
        const T* b = static_cast<const T*>(p.b.data) + at * p.b.batch + j0 * p.b.column;
        ColumnSums<Acc, kWidth> sums(n, p.k);
        for (int64_t k = 0; k < p.k; ++k, a += p.a.column, b += p.b.row) {
          const Acc x = Acc(*a);
          if (p.b.column == 1)
            for (int64_t j = 0; j < n; ++j) sums.sum[j] += x * Acc(b[j]);
          else
            for (int64_t j = 0; j < n; ++j) sums.sum[j] += x * Acc(b[j * p.b.column]);
          sums.end_row(k);
        }
        finish.row(at, i, j0, n, sums.sum);
      }
}

template <class T> void own_product(Context& ctx, const Product& p) {
  using Acc = typename Sum<T>::type;
  using P = Panel<Acc>;
  const Finish<T> finish{p};
  packed_gemm<Acc>(
      ctx, p.batch, p.m, p.n, p.k,
      [&](Acc* to, int64_t at, int64_t i0, int64_t rows, int64_t k0, int64_t depth) {
        const T* a = static_cast<const T*>(p.a.data) + at * p.a.batch + i0 * p.a.row + k0 * p.a.column;
        pack_matrix<P::kRows>(to, a, p.a.row, p.a.column, rows, depth);
      },
      [&](Acc* to, int64_t at, int64_t j0, int64_t columns, int64_t k0, int64_t depth) {
        const T* b = static_cast<const T*>(p.b.data) + at * p.b.batch + j0 * p.b.column + k0 * p.b.row;
        pack_matrix<P::kColumns>(to, b, p.b.column, p.b.row, columns, depth);
      },
      [&](int64_t at, int64_t i0, int64_t rows, int64_t j0, int64_t columns, const Acc* tile, int64_t ld) {
        for (int64_t i = 0; i < rows; ++i) finish.row(at, i0 + i, j0, columns, tile + i * ld);
      });
}

template <class T> void compute(Context& ctx, const Product& p) {
  constexpr int64_t kTiny = 1 << 12;
  if (p.k == 0 || p.batch * p.m * p.n * p.k <= kTiny) tiny_product<T>(p);
  else own_product<T>(ctx, p);
}

/// out = beta out + bias, so that only beta = 1 is left for the product.
template <class T> void add_bias_first(Product& p) {
  Product q = p;
  q.k = 0, q.relu = false;
  tiny_product<T>(q);
  p.bias = {}, p.beta = 1;
}

/// m = 1: the matrix is read once, at the speed of memory. A matrix with no unit stride is copied to
/// dense rows first, and so is a single column, which is then summed in lanes.
template <class T> void vector_product(Context& ctx, Product p, DType dtype) {
  if (p.b.row != 1 && (p.b.column != 1 || p.n == 1)) p.b = dense(ctx, p.b, dtype, p.batch, p.k, p.n);
  float* x = ctx.scratch_of<float>(p.batch * p.k);
  for (int64_t at = 0; at < p.batch; ++at)
    for (int64_t k = 0; k < p.k; ++k)
      x[at * p.k + k] = float(static_cast<const T*>(p.a.data)[at * p.a.batch + k * p.a.column]);
  const float alpha = float(p.alpha), beta = float(p.beta);
  gemv(ctx, p.batch, p.n, p.k, static_cast<const T*>(p.b.data), p.b.batch, p.b.row, p.b.column, x,
       [&](int64_t at, int64_t j, float sum) {
         T* o = static_cast<T*>(p.out.data) + at * p.out.batch + j * p.out.column;
         float v = alpha * sum;
         if (beta != 0) v += beta * float(*o);
         if (p.bias.data) v += float(static_cast<const T*>(p.bias.data)[at * p.bias.batch + j * p.bias.column]);
         *o = T(p.relu && v < 0 ? 0.f : v);
       });
}

/// Keeps NaN, as the library's own relu does not.
template <class T> void relu_rows(const Product& p) {
  parallel_for(p.batch * p.m, std::max<int64_t>(1, 32768 / p.n), [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      T* out = static_cast<T*>(p.out.data) + row / p.m * p.out.batch + row % p.m * p.out.row;
      for (int64_t j = 0; j < p.n; ++j) out[j] = float(out[j]) < 0 ? T(0) : out[j];
    }
  });
}

/// By the library. False: p still says what there is to do.
bool library_product(Context& ctx, Product& p, DType dtype) {
  if (p.out.column != 1 && p.out.row == 1) p = transposed(p);
  const bool vector_bias =
      p.bias.data && p.bias.batch == 0 && (p.bias.row == 0 || p.m == 1) && p.bias.column == 1 && p.alpha == 1;
  if (dtype == kBFloat16 && (p.beta != 0 || (p.bias.data && !vector_bias))) return false;  // rounded once
  dnn::Gemm g{.dtype = dtype, .batch = p.batch, .m = p.m, .n = p.n, .k = p.k, .a = p.a, .b = p.b, .out = p.out};
  g.alpha = float(p.alpha), g.by_shape = ctx.deterministic;
  if (vector_bias && dtype == kBFloat16) {
    float* bias = ctx.scratch_of<float>(p.n);
    for (int64_t j = 0; j < p.n; ++j) bias[j] = float(static_cast<const BFloat16*>(p.bias.data)[j]);
    g.bias = bias;
  } else if (vector_bias) {
    g.bias = static_cast<const float*>(p.bias.data);
  } else if (p.bias.data) {
    add_bias_first<float>(p);
  }
  g.beta = float(p.beta);
  if (!dnn::gemm(ctx, g)) return false;
  if (p.relu) dtype == kBFloat16 ? relu_rows<BFloat16>(p) : relu_rows<float>(p);
  return true;
}

TensorView as_column(V x) {
  TensorView v = x;
  v.rank = 2, v.sizes[1] = 1, v.strides[1] = 0;
  return v;
}

void float_product(Context& ctx, Product p) {
  constexpr int64_t kSmall = 1 << 15, kTiny = 1 << 11;  // multiplications
  const int64_t work = p.batch * p.m * p.n * p.k, small = p.m == 1 || p.n == 1 ? kTiny : kSmall;
  if (work <= small && p.k > 0 && p.k <= kSmallDepth) return small_products(p, Finish<float>{p});
  if (work <= kTiny) return tiny_product<float>(p);
  if (p.m == 1) return vector_product<float>(ctx, p, kFloat32);
  if (p.n == 1) return vector_product<float>(ctx, transposed(p), kFloat32);
  if (!library_product(ctx, p, kFloat32)) own_product<float>(ctx, p);
}

/// sums += beta x, both dense, in one rounding each, as PyTorch rounds (alpha times a sum has one before).
void add_fused(V sums, V x, float beta) {
  float* s = static_cast<float*>(sums.data);
  const float* from = static_cast<const float*>(x.data);
  parallel_for(sums.numel(), 1 << 15, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) s[i] = std::fma(beta, from[i], s[i]);
  });
}

/// 16-bit floats: in their own instructions where there are any, else through float32; rounded once.
template <class T> void half_product(Context& ctx, V out, V a, V b, V bias, const MatmulParams& params, DType dtype) {
  Product p = product(out, a, b, bias, params);
  join_batch(p, p.bias);
  if (p.k > 0 && p.m == 1) return vector_product<T>(ctx, p, dtype);
  if (p.k > 0 && p.n == 1) return vector_product<T>(ctx, transposed(p), dtype);
  if (p.k > 0 && dtype == kBFloat16 && dnn::has_bfloat16() && library_product(ctx, p, dtype)) return;
  const bool adds = params.beta != 0 && !bias.defined() && params.finish == MatmulFinish::None;
  const TensorView wide_out = params.beta != 0 && !adds ? dense(ctx, out, kFloat32) : scratch_like(ctx, out, kFloat32);
  const TensorView wide_bias = bias.defined() ? packed(ctx, bias, kFloat32) : TensorView();
  Product wide = product(wide_out, packed(ctx, a, kFloat32), packed(ctx, b, kFloat32), wide_bias,
                         adds ? MatmulParams{.alpha = params.alpha} : params);
  join_batch(wide, wide.bias);
  float_product(ctx, wide);
  if (adds) add_fused(wide_out, dense(ctx, out, kFloat32), float(params.beta));
  copy(ctx, {out, wide_out});
}

/// finish(alpha a b + beta out + bias), the finish being None or Relu.
void plain_product(Context& ctx, V out, V a, V b, V bias, const MatmulParams& params) {
  if (out.numel() == 0) return;
  if (out.dtype == kFloat16) return half_product<Half>(ctx, out, a, b, bias, params, kFloat16);
  if (out.dtype == kBFloat16) return half_product<BFloat16>(ctx, out, a, b, bias, params, kBFloat16);
  Product p = product(out, a, b, bias, params);
  join_batch(p, p.bias);
  switch (out.dtype) {
    case kFloat32: return float_product(ctx, p);
    case kFloat64: return compute<double>(ctx, p);
    case kInt64: return compute<int64_t>(ctx, p);
    case kInt32: return compute<int32_t>(ctx, p);
    case kInt16: return compute<int16_t>(ctx, p);
    case kInt8: return compute<int8_t>(ctx, p);
    case kUInt8: return compute<uint8_t>(ctx, p);
    default: return compute<bool>(ctx, p);
  }
}

}  // namespace

void matmul(Context& ctx, const entry::Matmul& c) {
  const MatmulParams& params = c.params;
  const bool finished = params.finish != MatmulFinish::None;
  if (!finished || (params.finish == MatmulFinish::Relu && !c.aux.defined())) {
    plain_product(ctx, c.out, c.a, c.b, c.bias, params);
    if (c.aux.defined()) reduce(ctx, {as_column(c.aux), c.a, {.op = ReduceOp::Sum, .dims = 2}});
    return;
  }
  const TensorView before = c.aux.defined() ? c.aux : c.out;
  plain_product(ctx, before, c.a, c.b, c.bias, {.alpha = params.alpha, .beta = params.beta});
  if (params.finish == MatmulFinish::GeluTanhGrad)
    return binary(ctx, {c.out, c.out, c.before, {BinaryOp::GeluGrad, 1}});
  if (params.finish == MatmulFinish::Relu) unary(ctx, {c.out, before, {UnaryOp::Relu}});
  else unary(ctx, {c.out, before, {UnaryOp::Gelu, 1}});
}

}  // namespace tapir::inline v0::cpu
