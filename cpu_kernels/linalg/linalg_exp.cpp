#include "linalg.h"

#include <Eigen/LU>
#include <cmath>

#include "../../core/formulas/matrix_exp.h"

namespace tapir::inline v0::cpu {

/// core/formulas/matrix_exp.h
template <class T> static Matrix<T> exponential(Matrix<T> a) {
  const auto b = [](int k) { return T(kPade13[k]); };
  const Matrix<T> one = Matrix<T>::Identity(a.rows(), a.cols());
  const T norm = a.cwiseAbs().colwise().sum().maxCoeff();
  if (!std::isfinite(norm) || !a.allFinite()) return a.setConstant(std::numeric_limits<T>::quiet_NaN());
  const int halvings = halvings_for(double(norm));
  a *= std::ldexp(T(1), -halvings);
  const Matrix<T> a2 = a * a, a4 = a2 * a2, a6 = a4 * a2;
  Matrix<T> odd = b(13) * a6 + b(11) * a4 + b(9) * a2, even = b(12) * a6 + b(10) * a4 + b(8) * a2;
  odd = (a6 * odd + b(7) * a6 + b(5) * a4 + b(3) * a2 + b(1) * one).eval();
  odd = (a * odd).eval();
  even = (a6 * even + b(6) * a6 + b(4) * a4 + b(2) * a2 + b(0) * one).eval();
  Matrix<T> y = (even - odd).partialPivLu().solve(even + odd);
  for (int i = 0; i < halvings; ++i) y = (y * y).eval();
  return y;
}

void matrix_exp(V y, V a) {
  if (y.numel() == 0) return;
  for_each_matrix(a, 2, [&]<class T>(int64_t at) { matrix_at<T>(y, at) = exponential<T>(matrix_at<T>(a, at)); });
}

}  // namespace tapir::inline v0::cpu
