#include "layout.h"

#include <algorithm>

#include "../pack.h"

namespace tapir::inline v0::cpu::dnn {
namespace {

Matrix packed(Context& ctx, const Matrix& x, DType dtype, int64_t batch, int64_t rows, int64_t columns) {
  TensorView v;
  v.data = x.data, v.dtype = dtype, v.rank = 3;
  const int64_t sizes[] = {x.batch == 0 ? 1 : batch, rows, columns}, strides[] = {x.batch, x.row, x.column};
  std::copy_n(sizes, 3, v.sizes), std::copy_n(strides, 3, v.strides);
  return {dense(ctx, v, dtype).data, x.batch == 0 ? 0 : rows * columns, columns, 1};
}

}  // namespace

bool canonical(Matrix& x, int64_t rows, int64_t columns) {
  if (rows > 1 && columns > 1) return (x.column == 1 && x.row >= columns) || (x.row == 1 && x.column >= rows);
  if ((columns > 1 && x.column != 1) || (rows > 1 && x.row != 1)) return false;
  x.row = columns, x.column = 1;
  return true;
}

bool suit(Context& ctx, Gemm& g) {
  if (!canonical(g.out, g.m, g.n) || g.out.column != 1 || (g.batch > 1 && g.out.batch == 0)) return false;
  if (!canonical(g.a, g.m, g.k)) g.a = packed(ctx, g.a, g.dtype, g.batch, g.m, g.k);
  if (!canonical(g.b, g.k, g.n)) g.b = packed(ctx, g.b, g.dtype, g.batch, g.k, g.n);
  return true;
}

}  // namespace tapir::inline v0::cpu::dnn
