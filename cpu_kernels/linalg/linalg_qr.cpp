#include "linalg.h"

#include <Eigen/Householder>
#include <Eigen/QR>

namespace tapir::inline v0::cpu {

void qr(Views outs, V a) {
  const TensorView q = outs[0], r = outs[1];
  for_each_matrix(a, 2, [&]<class T>(int64_t at) {
    Matrix<T> x = matrix_at<T>(a, at);
    Strided<T> to = matrix_at<T>(r, at);
    if (x.size() == 0) {
      to.setZero();
      if (q.defined()) matrix_at<T>(q, at).setIdentity();
      return;
    }
    const Eigen::HouseholderQR<Eigen::Ref<Matrix<T>>> qr(x);
    if (q.defined()) matrix_at<T>(q, at) = qr.householderQ() * Matrix<T>::Identity(x.rows(), q.sizes[q.rank - 1]);
    const int64_t k = std::min(x.rows(), x.cols());
    to.setZero();
    to.topRows(k).template triangularView<Eigen::Upper>() = x.topRows(k);
  });
}

}  // namespace tapir::inline v0::cpu
