#include "layout.h"

#include "../pack.h"

namespace tapir::inline v0::cpu::dnn {

bool canonical(Matrix& x, int64_t rows, int64_t columns) {
  if (rows > 1 && columns > 1) return (x.column == 1 && x.row >= columns) || (x.row == 1 && x.column >= rows);
  if ((columns > 1 && x.column != 1) || (rows > 1 && x.row != 1)) return false;
  x.row = columns, x.column = 1;
  return true;
}

bool suit(Context& ctx, Gemm& g) {
  if (!canonical(g.out, g.m, g.n) || g.out.column != 1 || (g.batch > 1 && g.out.batch == 0)) return false;
  if (!canonical(g.a, g.m, g.k)) g.a = dense(ctx, g.a, g.dtype, g.batch, g.m, g.k);
  if (!canonical(g.b, g.k, g.n)) g.b = dense(ctx, g.b, g.dtype, g.batch, g.k, g.n);
  return true;
}

}  // namespace tapir::inline v0::cpu::dnn
