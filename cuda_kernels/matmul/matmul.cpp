#include "matmul.h"

#include <utility>

#include "../kernels.h"

// Matrix products: operands brought into the form that BLAS takes, batches joined where one product does, then cuBLASLt; integers and
// what the library refuses by a kernel of our own (matmul.cu).
namespace tapir::inline v0::cuda_kernels {

using blas::Gelu;
using blas::Matrix;
using blas::Product;

TensorView dense_room(Context& ctx, V v) {
  TensorView y = v;
  for (int64_t d = v.rank, step = 1; d-- > 0; step *= v.sizes[d]) y.strides[d] = step;
  y.data = ctx.scratch(v.numel() * size_of(v.dtype));
  return y;
}
TensorView dense_copy(Context& ctx, V v) {
  const TensorView y = dense_room(ctx, v);
  copy(ctx, {y, v});
  return y;
}

TensorView view_of(const Product& p, const Matrix& x, int64_t rows, int64_t columns) {
  TensorView v(Scalar(0), p.dtype);
  v.is_scalar = false, v.data = x.data, v.device = Device(DeviceType::CUDA), v.rank = 3;
  v.sizes[0] = x.batch == 0 ? 1 : p.batch, v.sizes[1] = rows, v.sizes[2] = columns;
  v.strides[0] = x.batch, v.strides[1] = x.row, v.strides[2] = x.column;
  return v;
}

void transpose(Product& p) {
  std::swap(p.m, p.n), std::swap(p.a, p.b);
  p.sums_b = !p.sums_b;
  for (Matrix* x : {&p.a, &p.b, &p.c, &p.out, &p.before}) *x = transposed(*x);
}

namespace {

/// Strides of extents of 1 say nothing: chosen so that the matrix is a BLAS one where it can be.
void tidy(Matrix& x, int64_t rows, int64_t columns) {
  if (rows == 1) x.row = x.column == 1 ? columns : 1;
  if (columns == 1) x.column = x.row == 1 ? rows : 1;
}
bool is_row_major(const Matrix& x, int64_t columns) { return x.column == 1 && x.row >= columns; }

void to_blas(Context& ctx, const Product& p, Matrix& x, int64_t rows, int64_t columns) {
  tidy(x, rows, columns);
  if (blas::is_blas(x, rows, columns)) return;
  const bool shared = x.batch == 0;
  x = {dense_copy(ctx, view_of(p, x, rows, columns)).data, shared ? 0 : rows * columns, columns, 1};
}

/// out begins as x, to which the product is added.
void begin_with(Context& ctx, Product& p, const Matrix& x) {
  TensorView start = view_of(p, x, p.m, p.n), to = view_of(p, p.out, p.m, p.n);
  start.sizes[0] = to.sizes[0];
  copy(ctx, {to, start});
  p.c = p.out;
}
/// A row that is added to all rows, where the library's epilogue can read it.
const void* bias_of(Context& ctx, const Product& p, const Matrix& row) {
  return blas::is_aligned(row.data) ? row.data : dense_copy(ctx, view_of(p, row, 1, p.n)).data;
}

/// What a kernel beside the product has to do: what the library did not.
enum class Left { Nothing, Extra, All };

/// The library's GELU is the tanh form with a tanh of its own, near enough where the result has 16 bits.
bool library_has_gelu(const Product& p) {
  const auto fits = [&](const Matrix& x) { return x.column == 1 && x.row == p.n && blas::is_aligned(x.data); };
  return size_of(p.dtype) == 2 && p.batch == 1 && p.n % 8 == 0 && fits(p.out) && (!p.before.data || fits(p.before));
}

/// Few rows by a kernel of our own, else by the library. Sums of rows too where it has an epilogue for them; GELU in its epilogue, or nothing is done.
Left library_product(Context& ctx, Product p) {
  const bool gelu = p.gelu != Gelu::None;
  if (few_rows_product(ctx, p)) return gelu ? Left::Nothing : Left::Extra;
  if (gelu && !library_has_gelu(p)) return Left::All;
  tidy(p.out, p.m, p.n);
  const bool turned = p.out.column != 1 && p.out.row == 1;
  if (turned) transpose(p);
  const TensorView out = view_of(p, p.out, p.m, p.n);
  Matrix row;
  const bool direct = is_row_major(p.out, p.n) && (p.batch == 1 || p.out.batch != 0);
  if (!direct) {
    const bool added = p.beta != 0 && p.c.data == p.out.data;
    p.out = strided_matrix(added ? dense_copy(ctx, out) : dense_room(ctx, out));
    if (added) p.c = p.out;
  }
  to_blas(ctx, p, p.a, p.m, p.k), to_blas(ctx, p, p.b, p.k, p.n);
  if (p.c.data == p.out.data) {
    p.c = p.out;
  } else if (p.beta != 0) {
    tidy(p.c, p.m, p.n);
    const bool same_in_rows = p.c.batch == 0 && (p.c.row == 0 || p.m == 1) && p.c.column == 1;
    if (p.beta == 1 && same_in_rows && p.dtype != kFloat64) {
      row = std::exchange(p.c, {});
      p.bias = bias_of(ctx, p, row), p.beta = 0;
    } else if (!is_row_major(p.c, p.n)) {
      begin_with(ctx, p, p.c);
    }
  }
  const bool pieces = goes_by_pieces(p);
  const auto product = [&] { return pieces ? product_by_pieces(ctx, p) : blas::product(ctx, p); };
  if (p.sums || gelu) {
    if (!pieces && !(turned && gelu) && direct && p.batch == 1 && !p.c.data && blas::product(ctx, p))
      return Left::Nothing;
    if (gelu) return Left::All;
    p.sums = nullptr;
  }
  if (!product()) {
    if (!p.bias) return Left::All;
    begin_with(ctx, p, row);
    p.bias = nullptr, p.beta = 1;
    if (!blas::product(ctx, p)) return Left::All;
  }
  if (!direct) copy(ctx, {out, view_of(p, p.out, p.m, p.n)});
  return Left::Extra;
}

/// alpha a b + beta out + bias with what `extra` asks for; false where that is left to do: all of it (gelu), or the sums of rows.
bool run_product(Context& ctx, V out, V a, V b, V bias, const MatmulParams& params, const Product& extra = {}) {
  if (out.numel() == 0) return false;
  Product p = extra;
  p.dtype = out.dtype;
  p.batch = out.rank > 2 ? out.sizes[out.rank - 3] : 1;
  p.m = out.sizes[out.rank - 2], p.n = out.sizes[out.rank - 1], p.k = a.sizes[a.rank - 1];
  p.a = strided_matrix(a), p.b = strided_matrix(b), p.out = strided_matrix(out);
  p.alpha = params.alpha, p.beta = params.beta;
  if (p.beta != 0) p.c = p.out;
  const bool late_bias = bias.defined() && p.beta != 0;
  if (bias.defined() && !late_bias) p.c = strided_matrix(bias.expand(out.shape())), p.beta = 1;
  if (p.k == 0) p.a.data = p.b.data = nullptr;  // of no elements: nothing is read
  join_batch(p, p.c);
  const Left left = is_floating(p.dtype) && p.k > 0 ? library_product(ctx, p) : Left::All;
  if (left == Left::All && p.gelu != Gelu::None) return false;
  if (left == Left::All) strided_product(ctx, p);
  if (late_bias) binary(ctx, {out, out, bias.expand(out.shape()), {BinaryOp::Add}});
  return left == Left::Nothing;
}

/// aux is the sums of a's rows.
void sum_rows(Context& ctx, V aux, V a) {
  TensorView column = aux;
  column.rank = 2, column.sizes[1] = 1, column.strides[1] = 0;
  reduce(ctx, {column, a, {.op = ReduceOp::Sum, .dims = 2}});
}

/// A product of 16 bits that the library writes in float32, and the sums of a's rows. False, and nothing done, where it does not.
bool widening_product(Context& ctx, const entry::Matmul& c) {
  Product p;
  p.dtype = c.a.dtype, p.widens = true, p.alpha = c.params.alpha;
  p.m = c.out.sizes[0], p.n = c.out.sizes[1], p.k = c.a.sizes[1];
  p.a = strided_matrix(c.a), p.b = strided_matrix(c.b), p.out = strided_matrix(c.out);
  tidy(p.out, p.m, p.n);
  if (p.out.column != 1 && p.out.row == 1) transpose(p);
  if (std::min({p.m, p.n, p.k}) == 0 || !is_row_major(p.out, p.n)) return false;
  to_blas(ctx, p, p.a, p.m, p.k), to_blas(ctx, p, p.b, p.k, p.n);
  const bool pieces = goes_by_pieces(p);
  TensorView sums = c.aux;
  if (sums.defined() && sums.dtype == kFloat32 && !pieces) {
    if (!sums.is_contiguous() || !blas::is_aligned(sums.data)) sums = dense_room(ctx, sums);
    p.sums = sums.data;
    if (blas::product(ctx, p)) return sums.data == c.aux.data || (copy(ctx, {c.aux, sums}), true);
    p.sums = nullptr;
  }
  if (!(pieces ? product_by_pieces(ctx, p) : blas::product(ctx, p))) return false;
  if (c.aux.defined()) sum_rows(ctx, c.aux, c.a);
  return true;
}
/// The same by any way: rounded to 16 bits, then widened.
void widened_product(Context& ctx, const entry::Matmul& c) {
  if (widening_product(ctx, c)) return;
  const auto room = [&](V v) {
    TensorView narrow = v;
    narrow.dtype = c.a.dtype;
    return v.defined() ? dense_room(ctx, narrow) : narrow;
  };
  const TensorView out = room(c.out), aux = room(c.aux);
  matmul(ctx, {.out = out, .a = c.a, .b = c.b, .aux = aux, .params = c.params});
  copy(ctx, {c.out, out});
  if (aux.defined()) copy(ctx, {c.aux, aux});
}

}  // namespace

void matmul(Context& ctx, const entry::Matmul& c) {
  const TensorView &out = c.out, &a = c.a, &b = c.b, &bias = c.bias, &aux = c.aux;
  const MatmulParams& params = c.params;
  if (out.dtype != a.dtype) {
    check_internal(params.finish == MatmulFinish::None && params.beta == 0 && !bias.defined(),
                   "[matmul] expected a product from {} to {} without bias, beta and finish", a.dtype, out.dtype);
    return widened_product(ctx, c);
  }
  Product extra;
  if (params.finish == MatmulFinish::None) {
    const bool sums = aux.defined() && aux.dtype != kFloat64 && !bias.defined();
    const bool direct = aux.is_contiguous() && blas::is_aligned(aux.data);
    const TensorView place = sums && !direct ? dense_room(ctx, aux) : aux;
    if (sums) extra.sums = place.data;
    const bool summed = run_product(ctx, out, a, b, bias, params, extra);
    if (summed && place.data != aux.data) copy(ctx, {aux, place});
    if (summed || !aux.defined()) return;
    return sum_rows(ctx, aux, a);
  }
  if (params.finish == MatmulFinish::GeluTanhGrad) {
    extra.gelu = Gelu::Gradient, extra.before = strided_matrix(c.before);
    if (params.alpha == 1 && out.rank == 2 && run_product(ctx, out, a, b, {}, params, extra)) return;
    run_product(ctx, out, a, b, {}, params);
    return binary(ctx, {out, out, c.before, {BinaryOp::GeluGrad, 1}});
  }
  const bool relu = params.finish == MatmulFinish::Relu;  // not the library's own: that turns NaN into 0
  extra.gelu = Gelu::Forward, extra.before = strided_matrix(aux);
  if (!relu && params.alpha == 1 && params.beta == 0 && out.rank == 2 &&
      run_product(ctx, out, a, b, bias, params, extra))
    return;
  const TensorView before = aux.defined() ? aux : out;
  run_product(ctx, before, a, b, bias, params);
  if (relu) unary(ctx, {out, before, {UnaryOp::Relu}});
  else unary(ctx, {out, before, {UnaryOp::Gelu, 1}});
}

}  // namespace tapir::inline v0::cuda_kernels
