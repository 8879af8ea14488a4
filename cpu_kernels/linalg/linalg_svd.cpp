// Singular values by Golub and Kahan: Householder reflections to a bidiagonal matrix, then implicit QR steps; Golub and Van Loan,
// "Matrix Computations", 4th edition, algorithms 5.4.2 and 8.6.2. (Eigen's own SVDs take minutes to compile.)
#include "linalg.h"

#include <Eigen/Householder>
#include <Eigen/Jacobi>
#include <cmath>

namespace tapir::inline v0::cpu {
namespace {

template <class T> struct Rotation {
  T c = 1, s = 0, r;
  /// (c s; -s c) (y, z)^T = (r, 0)^T
  Rotation(T y, T z) : r(std::hypot(y, z)) {
    if (r > 0) c = y / r, s = z / r;
  }
  void columns(Matrix<T>& x, int64_t i, int64_t j) const {
    if (x.size() > 0) x.applyOnTheRight(i, j, Eigen::JacobiRotation<T>(c, -s));
  }
};

/// A = U B V^T for rows >= columns, B upper bidiagonal with diagonal d and superdiagonal e. u and v come in as the first columns of
/// identities, or empty where nobody asked for them.
template <class T> class Svd {
 public:
  Matrix<T> u, v;
  Eigen::Array<T, Eigen::Dynamic, 1> d, e;

  Svd(Matrix<T>& a, int64_t u_columns, bool with_v) {
    const int64_t m = a.rows(), n = a.cols();
    d.setZero(n), e.setZero(n);
    Eigen::Matrix<T, Eigen::Dynamic, 1> left(n), right(n), work(std::max(m, n));
    for (int64_t k = 0; k < n; ++k) {
      a.col(k).tail(m - k).makeHouseholderInPlace(left[k], d[k]);
      a.bottomRightCorner(m - k, n - k - 1).applyHouseholderOnTheLeft(a.col(k).tail(m - k - 1), left[k], work.data());
      if (k + 1 == n) break;
      a.row(k).tail(n - k - 1).makeHouseholderInPlace(right[k], e[k]);
      a.bottomRightCorner(m - k - 1, n - k - 1)
          .applyHouseholderOnTheRight(a.row(k).tail(n - k - 2).transpose(), right[k], work.data());
    }
    if (u_columns) {
      u.setIdentity(m, u_columns);
      for (int64_t k = n; k-- > 0;)
        u.bottomRightCorner(m - k, u_columns - k)
            .applyHouseholderOnTheLeft(a.col(k).tail(m - k - 1), left[k], work.data());
    }
    if (with_v) {
      v.setIdentity(n, n);
      for (int64_t k = n - 1; k-- > 0;)
        v.bottomRightCorner(n - k - 1, n - k - 1)
            .applyHouseholderOnTheLeft(a.row(k).tail(n - k - 2).transpose(), right[k], work.data());
    }
  }

  /// Makes B diagonal; false where that does not converge.
  bool iterate() {
    const T eps = std::numeric_limits<T>::epsilon(), scale = std::max(d.abs().maxCoeff(), e.abs().maxCoeff());
    int64_t steps = 0;
    for (int64_t hi = d.size() - 1; hi > 0;) {
      for (int64_t i = 0; i < hi; ++i)
        if (std::abs(e[i]) <= eps * (std::abs(d[i]) + std::abs(d[i + 1])) || std::abs(e[i]) <= eps * eps * scale)
          e[i] = 0;
      if (e[hi - 1] == 0) {
        --hi;
        continue;
      }
      int64_t lo = hi - 1;
      while (lo > 0 && e[lo - 1] != 0) --lo;
      if (++steps > 60 * d.size()) return false;
      if (!drop_zero(lo, hi, eps * scale)) qr_step(lo, hi);
    }
    return true;
  }

  /// Positive values in descending order.
  void sort() {
    const int64_t n = d.size();
    for (int64_t i = 0; i < n; ++i)
      if (d[i] < 0) {
        d[i] = -d[i];
        if (v.size()) v.col(i) = -v.col(i);
      }
    for (int64_t i = 0; i < n; ++i) {
      int64_t at;
      d.tail(n - i).maxCoeff(&at);
      if (at == 0) continue;
      std::swap(d[i], d[i + at]);
      if (u.size()) u.col(i).swap(u.col(i + at));
      if (v.size()) v.col(i).swap(v.col(i + at));
    }
  }

 private:
  /// A 0 on the diagonal of block [lo, hi] splits it: what stands beside it is rotated away.
  bool drop_zero(int64_t lo, int64_t hi, T tiny) {
    for (int64_t i = lo; i < hi; ++i)
      if (std::abs(d[i]) <= tiny) {
        T beside = std::exchange(e[i], 0);
        d[i] = 0;
        for (int64_t k = i + 1; k <= hi && beside != 0; ++k) {
          const Rotation<T> g(d[k], beside);
          d[k] = g.r;
          if (k < hi) beside = -g.s * e[k], e[k] *= g.c;
          g.columns(u, k, i);
        }
        return true;
      }
    if (std::abs(d[hi]) > tiny) return false;
    T above = std::exchange(e[hi - 1], 0);
    d[hi] = 0;
    for (int64_t k = hi; k-- > lo && above != 0;) {
      const Rotation<T> g(d[k], above);
      d[k] = g.r;
      if (k > lo) above = -g.s * e[k - 1], e[k - 1] *= g.c;
      g.columns(v, k, hi);
    }
    return true;
  }

  /// One QR step on B^T B with Wilkinson's shift, without forming it.
  void qr_step(int64_t lo, int64_t hi) {
    const T a = d[hi - 1] * d[hi - 1] + (hi - 1 > lo ? e[hi - 2] * e[hi - 2] : T(0)), b = d[hi - 1] * e[hi - 1],
            c = d[hi] * d[hi] + e[hi - 1] * e[hi - 1], half = (a - c) / 2;
    const T shift = c - b * b / (half + std::copysign(std::hypot(half, b), half));
    T y = d[lo] * d[lo] - shift, z = d[lo] * e[lo];
    for (int64_t k = lo; k < hi; ++k) {
      const Rotation<T> right(y, z);
      if (k > lo) e[k - 1] = right.r;
      y = right.c * d[k] + right.s * e[k];
      e[k] = right.c * e[k] - right.s * d[k];
      z = right.s * d[k + 1];
      d[k + 1] *= right.c;
      right.columns(v, k, k + 1);
      const Rotation<T> left(y, z);
      d[k] = left.r;
      y = left.c * e[k] + left.s * d[k + 1];
      d[k + 1] = left.c * d[k + 1] - left.s * e[k];
      e[k] = y;
      if (k + 1 < hi) z = left.s * e[k + 1], e[k + 1] *= left.c;
      left.columns(u, k, k + 1);
    }
  }
};

}  // namespace

void svd(Context& ctx, Views outs, V a) {
  const TensorView s = outs[0], u = view_or_absent(outs, 1), vh = view_or_absent(outs, 2);
  const int64_t m = a.sizes[a.rank - 2], n = a.sizes[a.rank - 1];
  for_each_matrix(a, 2, [&]<class T>(int64_t at) {
    if (m == 0 || n == 0) {
      if (u.defined()) matrix_at<T>(u, at).setIdentity();
      if (vh.defined()) matrix_at<T>(vh, at).setIdentity();
      return;
    }
    Matrix<T> x;
    if (m < n) x = matrix_at<T>(a, at).transpose();
    else x = matrix_at<T>(a, at);
    if (!x.allFinite()) return ctx.bad_value(at, 0, 0);
    const T largest = x.cwiseAbs().maxCoeff(), scale = largest > 0 ? largest : T(1);
    x /= scale;  // squares must not overflow
    const int64_t columns = u.defined() ? m < n ? vh.sizes[vh.rank - 2] : u.sizes[u.rank - 1] : 0;
    Svd<T> svd(x, columns, u.defined());
    if (!svd.iterate()) return ctx.bad_value(at, 1, 0);
    svd.sort();
    vector_at<T>(s, at) = (svd.d * scale).matrix();
    if (!u.defined()) return;
    matrix_at<T>(u, at) = m < n ? svd.v : svd.u;
    matrix_at<T>(vh, at) = (m < n ? svd.u : svd.v).transpose();
  });
}

}  // namespace tapir::inline v0::cpu
