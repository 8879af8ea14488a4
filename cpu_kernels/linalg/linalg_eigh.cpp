#include "linalg.h"

#include <Eigen/Eigenvalues>

namespace tapir::inline v0::cpu {

void eigh(Context& ctx, Views outs, V a, bool upper) {
  const TensorView vectors = view_or_absent(outs, 1);
  for_each_matrix(a, 2, [&]<class T>(int64_t at) {
    Matrix<T> x = matrix_at<T>(a, at);
    if (x.rows() == 0) return;
    if (upper) x.transposeInPlace();
    x.template triangularView<Eigen::StrictlyUpper>().setZero();
    if (!x.allFinite()) return ctx.bad_value(at, 0, 0);
    const Eigen::SelfAdjointEigenSolver<Matrix<T>> solver(
        x, vectors.defined() ? Eigen::ComputeEigenvectors : Eigen::EigenvaluesOnly);
    if (solver.info() != Eigen::Success) return ctx.bad_value(at, 1, 0);
    vector_at<T>(outs[0], at) = solver.eigenvalues();
    if (vectors.defined()) matrix_at<T>(vectors, at) = solver.eigenvectors();
  });
}

}  // namespace tapir::inline v0::cpu
