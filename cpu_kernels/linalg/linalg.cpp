// Linear algebra by Eigen, matrix by matrix, the batch shared out to the threads. What solves systems is here, each other
// decomposition in a file of its own.
#include "linalg.h"

#include <Eigen/Cholesky>
#include <Eigen/LU>

#include "../kernels.h"

namespace tapir::inline v0::cpu {
namespace {

/// The order of the first leading minor that is not positive; the lower triangle is read.
template <class T> int64_t first_bad_minor(Matrix<T> a) {
  for (int64_t j = 0; j < a.rows(); ++j) {
    const T pivot = a(j, j) - a.row(j).head(j).squaredNorm();
    if (!(pivot > 0)) return j + 1;
    a(j, j) = std::sqrt(pivot);
    for (int64_t i = j + 1; i < a.rows(); ++i) a(i, j) = (a(i, j) - a.row(i).head(j).dot(a.row(j).head(j))) / a(j, j);
  }
  return 0;
}

void cholesky(Context& ctx, Views outs, V a, bool upper) {
  const TensorView info = view_or_absent(outs, 1);
  for_each_matrix(a, 2, [&]<class T>(int64_t at) {
    const Strided<T> from = matrix_at<T>(a, at);
    Matrix<T> l;
    if (upper) l = from.transpose();
    else l = from;
    int64_t bad = 0;
    if (l.rows() > 0) {
      Eigen::LLT<Eigen::Ref<Matrix<T>>> llt(l);
      if (llt.info() != Eigen::Success || !(l.diagonal().array() > 0).all())
        bad = first_bad_minor<T>(upper ? Matrix<T>(from.transpose()) : Matrix<T>(from));
    }
    l.template triangularView<Eigen::StrictlyUpper>().setZero();
    Strided<T> to = matrix_at<T>(outs[0], at);
    if (upper) to = l.transpose();
    else to = l;
    if (info.defined()) *element<int32_t>(info, at, 0) = int32_t(bad);
    else if (bad) ctx.bad_value(at, bad, l.rows());
  });
}

void lu(Context& ctx, Views outs, V a) {
  const TensorView sign = view_or_absent(outs, 2);
  for_each_matrix(a, 2, [&]<class T>(int64_t at) {
    Matrix<T> x = matrix_at<T>(a, at);
    if (sign.defined()) *element<T>(sign, at, 0) = 1;
    if (x.rows() == 0) return;
    const Eigen::PartialPivLU<Eigen::Ref<Matrix<T>>> lu(x);
    matrix_at<T>(outs[0], at) = x;
    vector_at<int32_t>(outs[1], at) = lu.permutationP().indices();
    if (sign.defined()) return void(*element<T>(sign, at, 0) = T(lu.permutationP().determinant()));
    for (int64_t i = 0; i < x.rows(); ++i)
      if (x(i, i) == 0) return ctx.bad_value(at, i + 1, x.rows());
  });
}

void lu_solve(V x, V lu, V order, V b, bool transpose) {
  if (x.numel() == 0) return;
  for_each_matrix(x, 2, [&]<class T>(int64_t at) {
    const RowMatrix<T> f = matrix_at<T>(lu, at);
    const Strided<T> from = matrix_at<T>(b, at);
    const Strided<int32_t> to_row = vector_at<int32_t>(order, at);
    const int64_t n = f.rows();
    RowMatrix<T> y(n, from.cols());
    if (transpose) {  // A^T = U^T L^T P
      y = from;
      f.transpose().template triangularView<Eigen::Lower>().solveInPlace(y);
      f.transpose().template triangularView<Eigen::UnitUpper>().solveInPlace(y);
    } else {
      for (int64_t i = 0; i < n; ++i) y.row(to_row(i, 0)) = from.row(i);
      f.template triangularView<Eigen::UnitLower>().solveInPlace(y);
      f.template triangularView<Eigen::Upper>().solveInPlace(y);
    }
    Strided<T> to = matrix_at<T>(x, at);
    if (!transpose) to = y;
    else
      for (int64_t i = 0; i < n; ++i) to.row(i) = y.row(to_row(i, 0));
  });
}

void triangular_solve(V x, V a, V b, const LinalgParams& p) {
  if (x.numel() == 0) return;
  for_each_matrix(x, 2, [&]<class T>(int64_t at) {
    const RowMatrix<T> f = matrix_at<T>(a, at);
    RowMatrix<T> y = matrix_at<T>(b, at);
    if (p.upper && p.unit) f.template triangularView<Eigen::UnitUpper>().solveInPlace(y);
    else if (p.upper) f.template triangularView<Eigen::Upper>().solveInPlace(y);
    else if (p.unit) f.template triangularView<Eigen::UnitLower>().solveInPlace(y);
    else f.template triangularView<Eigen::Lower>().solveInPlace(y);
    matrix_at<T>(x, at) = y;
  });
}

}  // namespace

void linalg(Context& ctx, const entry::Linalg& c) {
  const Views outs = c.outs, ins = c.ins;
  const LinalgParams& p = c.params;
  switch (p.op) {
    case LinalgOp::Cholesky: return cholesky(ctx, outs, ins[0], p.upper);
    case LinalgOp::Lu: return lu(ctx, outs, ins[0]);
    case LinalgOp::LuSolve: return lu_solve(outs[0], ins[0], ins[1], ins[2], p.transpose);
    case LinalgOp::TriangularSolve: return triangular_solve(outs[0], ins[0], ins[1], p);
    case LinalgOp::Qr: return qr(outs, ins[0]);
    case LinalgOp::Eigh: return eigh(ctx, outs, ins[0], p.upper);
    case LinalgOp::Svd: return svd(ctx, outs, ins[0]);
    case LinalgOp::MatrixExp: return matrix_exp(outs[0], ins[0]);
  }
}

}  // namespace tapir::inline v0::cpu
