#include "linalg.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "../../core/error.h"
#include "../kernels.h"

// Linear algebra: matrices are copied into the column order of LAPACK, decomposed by cuSOLVER (vendor/solver.h) and copied to where they
// are wanted. These entries wait for the device: whether a matrix was bad is an error of the call itself.
namespace tapir::inline v0::cuda_kernels {

using solver::Matrices;

int64_t batch_of(V v) {
  int64_t n = 1;
  for (int64_t d = 0; d < v.rank - 2; ++d) n *= v.sizes[d];
  return n;
}
Matrices room_for(Context& ctx, V like, int64_t rows, int64_t columns) {
  Matrices m{nullptr, like.dtype, batch_of(like), rows, columns};
  m.data = ctx.scratch(m.batch * m.bytes());
  return m;
}
Matrices columns_of(Context& ctx, V like) {
  const Matrices m = room_for(ctx, like, like.sizes[like.rank - 2], like.sizes[like.rank - 1]);
  copy(ctx, {view_of(m, like), like});
  return m;
}
TensorView view_of(const Matrices& m, V like, bool transposed) {
  TensorView v = like;
  v.data = m.data;
  const int64_t r = v.rank;
  v.sizes[r - 2] = m.rows, v.sizes[r - 1] = m.columns, v.strides[r - 2] = 1, v.strides[r - 1] = m.rows;
  for (int64_t d = r - 2, step = m.rows * m.columns; d-- > 0; step *= v.sizes[d]) v.strides[d] = step;
  if (transposed) std::swap(v.sizes[r - 2], v.sizes[r - 1]), std::swap(v.strides[r - 2], v.strides[r - 1]);
  return v;
}

namespace {

TensorView view_or_absent(Views list, size_t i) { return i < list.size() ? list[i] : TensorView(); }

/// A vector or number per matrix, dense: `tail` dimensions follow the batches'.
TensorView per_matrix(void* data, V like) {
  TensorView v = like;
  v.data = data;
  for (int64_t d = v.rank, step = 1; d-- > 0; step *= v.sizes[d]) v.strides[d] = step;
  return v;
}

std::vector<int> numbers(Context& ctx, const int* there, int64_t n) {
  std::vector<int> here(size_t(n), 0);
  download(ctx, here.data(), there, n);
  return here;
}

TensorView transposed(TensorView v) {
  std::swap(v.sizes[v.rank - 2], v.sizes[v.rank - 1]), std::swap(v.strides[v.rank - 2], v.strides[v.rank - 1]);
  return v;
}
/// The square part's diagonal of each matrix.
TensorView diagonal(V m) {
  TensorView d = m;
  const int64_t r = m.rank;
  d.rank = r - 1;
  d.sizes[r - 2] = std::min(m.sizes[r - 2], m.sizes[r - 1]);
  d.strides[r - 2] = m.strides[r - 2] + m.strides[r - 1];
  return d;
}
void set_identity(Context& ctx, V m) {
  fill(ctx, {m, 0.0});
  fill(ctx, {diagonal(m), 1.0});
}

/// Elements that are not finite are an error of their own: the iteration might not end. False where there are some.
bool all_finite(Context& ctx, const Matrices& m, int triangle) {
  int* const flags = ctx.scratch_of<int>(m.batch);
  find_not_finite(ctx, flags, m, triangle);
  const std::vector<int> found = numbers(ctx, flags, m.batch);
  for (int64_t i = 0; i < m.batch; ++i)
    if (found[size_t(i)]) return ctx.bad_value(i, 0, 0), false;
  return true;
}
void check_converged(Context& ctx, const int* info, int64_t batch) {
  const std::vector<int> found = numbers(ctx, info, batch);
  for (int64_t i = 0; i < batch; ++i)
    if (found[size_t(i)]) return ctx.bad_value(i, 1, 0);
}

void cholesky(Context& ctx, Views outs, V a, bool upper) {
  const TensorView info = view_or_absent(outs, 1);
  if (a.numel() == 0) {
    if (info.defined() && info.numel()) fill(ctx, {info, 0});
    return;
  }
  const Matrices l = columns_of(ctx, a);
  int* const bad = ctx.scratch_of<int>(l.batch);
  solver::cholesky(ctx, l, upper, bad);
  keep_triangle(ctx, l, upper);
  copy(ctx, {outs[0], view_of(l, outs[0])});
  if (info.defined()) return copy(ctx, {info, per_matrix(bad, info)});
  const std::vector<int> found = numbers(ctx, bad, l.batch);
  for (int64_t i = 0; i < l.batch; ++i)
    if (found[size_t(i)]) return ctx.bad_value(i, found[size_t(i)], l.rows);
}

void lu(Context& ctx, Views outs, V a) {
  const int64_t batch = batch_of(a), n = a.sizes[a.rank - 1];
  if (batch == 0) return;
  const TensorView sign = view_or_absent(outs, 2);
  if (n == 0) return sign.defined() ? fill(ctx, {sign, 1.0}) : void();
  const Matrices x = columns_of(ctx, a);
  int *const pivots = ctx.scratch_of<int>(batch * n), *const info = ctx.scratch_of<int>(batch);
  solver::lu(ctx, x, pivots, info);
  copy(ctx, {outs[0], view_of(x, outs[0])});
  const std::vector<int> swaps = numbers(ctx, pivots, batch * n), zero = numbers(ctx, info, batch);
  std::vector<int> order(size_t(batch * n)), rows(size_t(n), 0);
  std::vector<float> signs(size_t(batch), 1.f);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t i = 0; i < n; ++i) rows[size_t(i)] = int(i);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t with = swaps[size_t(b * n + i)] - 1;
      if (with != i) std::swap(rows[size_t(i)], rows[size_t(with)]), signs[size_t(b)] = -signs[size_t(b)];
    }
    for (int64_t i = 0; i < n; ++i) order[size_t(b * n + rows[size_t(i)])] = int(i);
  }
  copy(ctx, {outs[1], per_matrix(upload(ctx, order.data(), batch * n), outs[1])});
  if (sign.defined()) {
    TensorView from = per_matrix(upload(ctx, signs.data(), batch), sign);
    from.dtype = kFloat32;
    return copy(ctx, {sign, from});
  }
  for (int64_t i = 0; i < batch; ++i)
    if (zero[size_t(i)] > 0) return ctx.bad_value(i, zero[size_t(i)], n);
}

void lu_solve(Context& ctx, V x, V lu, V order, V b, bool transpose) {
  if (x.numel() == 0) return;
  const Matrices f = columns_of(ctx, lu), from = columns_of(ctx, b), y = room_for(ctx, x, from.rows, from.columns);
  int* const rows = ctx.scratch_of<int>(f.batch * f.rows);
  copy(ctx, {per_matrix(rows, order), order});
  if (transpose) {  // A^T = U^T L^T P
    solver::solve_triangle(ctx, f, from, true, true, false);
    solver::solve_triangle(ctx, f, from, false, true, true);
    permute_rows(ctx, y, from, rows, false);
  } else {
    permute_rows(ctx, y, from, rows, true);
    solver::solve_triangle(ctx, f, y, false, false, true);
    solver::solve_triangle(ctx, f, y, true, false, false);
  }
  copy(ctx, {x, view_of(y, x)});
}

void triangular_solve(Context& ctx, V x, V a, V b, const LinalgParams& p) {
  if (x.numel() == 0) return;
  const Matrices y = columns_of(ctx, b);
  solver::solve_triangle(ctx, columns_of(ctx, a), y, p.upper, false, p.unit);
  copy(ctx, {x, view_of(y, x)});
}

void qr(Context& ctx, Views outs, V a) {
  const TensorView q = outs[0], r = outs[1];
  if (a.numel() == 0) {
    if (r.numel()) fill(ctx, {r, 0.0});
    if (q.defined() && q.numel()) set_identity(ctx, q);
    return;
  }
  const Matrices x = columns_of(ctx, a);
  Matrices columns;
  if (q.defined()) columns = room_for(ctx, q, x.rows, q.sizes[q.rank - 1]);
  solver::qr(ctx, x, columns);
  if (q.defined()) copy(ctx, {q, view_of(columns, q)});
  keep_triangle(ctx, x, true);
  TensorView top = view_of(x, r);
  top.sizes[r.rank - 2] = r.sizes[r.rank - 2];  // the first rows, reduced or all
  copy(ctx, {r, top});
}

void eigh(Context& ctx, Views outs, V a, bool upper) {
  const TensorView vectors = view_or_absent(outs, 1);
  if (a.numel() == 0) return;
  const Matrices x = columns_of(ctx, a);
  if (!all_finite(ctx, x, upper ? 1 : -1)) return;
  void* const values = ctx.scratch(x.batch * x.rows * size_of(x.dtype));
  int* const info = ctx.scratch_of<int>(x.batch);
  solver::eigh(ctx, x, upper, vectors.defined(), values, info);
  copy(ctx, {outs[0], per_matrix(values, outs[0])});
  if (vectors.defined()) copy(ctx, {vectors, view_of(x, vectors)});
  check_converged(ctx, info, x.batch);
}

/// The library wants rows >= columns: else A^T = U' S V'^T, so that U = V' and Vh = U'^T.
void svd(Context& ctx, Views outs, V a) {
  const TensorView u = view_or_absent(outs, 1), vh = view_or_absent(outs, 2);
  const int64_t m = a.sizes[a.rank - 2], n = a.sizes[a.rank - 1];
  if (a.numel() == 0) {
    for (const TensorView* v : {&u, &vh})
      if (v->defined() && v->numel()) set_identity(ctx, *v);
    return;
  }
  const bool wide = m < n;
  const Matrices x = columns_of(ctx, wide ? transposed(a) : a);
  if (!all_finite(ctx, x, 0)) return;
  void* const s = ctx.scratch(x.batch * x.columns * size_of(x.dtype));
  int* const info = ctx.scratch_of<int>(x.batch);
  Matrices left, right;
  if (u.defined()) {
    left = room_for(ctx, a, x.rows, wide ? vh.sizes[vh.rank - 2] : u.sizes[u.rank - 1]);
    right = room_for(ctx, a, x.columns, x.columns);
  }
  solver::svd(ctx, x, s, left, right, info);
  copy(ctx, {outs[0], per_matrix(s, outs[0])});
  if (u.defined()) {
    copy(ctx, {u, wide ? view_of(right, u, true) : view_of(left, u)});
    copy(ctx, {vh, wide ? view_of(left, vh, true) : view_of(right, vh)});
  }
  check_converged(ctx, info, x.batch);
}

}  // namespace

void linalg(Context& ctx, const entry::Linalg& c) {
  const Views outs = c.outs, ins = c.ins;
  const LinalgParams& p = c.params;
  switch (p.op) {
    case LinalgOp::Cholesky: return cholesky(ctx, outs, ins[0], p.upper);
    case LinalgOp::Lu: return lu(ctx, outs, ins[0]);
    case LinalgOp::LuSolve: return lu_solve(ctx, outs[0], ins[0], ins[1], ins[2], p.transpose);
    case LinalgOp::TriangularSolve: return triangular_solve(ctx, outs[0], ins[0], ins[1], p);
    case LinalgOp::Qr: return qr(ctx, outs, ins[0]);
    case LinalgOp::Eigh: return eigh(ctx, outs, ins[0], p.upper);
    case LinalgOp::Svd: return svd(ctx, outs, ins[0]);
    case LinalgOp::MatrixExp: return matrix_exp(ctx, outs[0], ins[0]);
  }
}

}  // namespace tapir::inline v0::cuda_kernels
