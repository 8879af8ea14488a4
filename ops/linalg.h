#pragma once
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "../core/tensor.h"

namespace tapir::inline v0 {

// Matrices (..., M, N) of float32 or float64; leading dimensions are batches and broadcast. ValueError for other dtypes, for shapes
// that do not fit, and naming the batch element where a matrix has no such decomposition or inverse.

/// A tolerance: a number, or a tensor that broadcasts over the batch.
class Tolerance {
 public:
  Tolerance() = default;
  Tolerance(double number) : number_(number) {}
  Tolerance(const Tensor& tensor) : tensor_(tensor) {}
  bool defined() const { return number_ || tensor_.defined(); }
  /// Zeros of the batch's rank at least, or the tensor itself.
  Tensor like(const Tensor& x) const;

 private:
  std::optional<double> number_;
  Tensor tensor_;
};
/// Singular values up to max(atol, rtol times the largest) count as 0; default: rtol = max(M, N) eps, or 0 where atol is given.
struct ToleranceOptions {
  Tolerance atol = {}, rtol = {};
  bool hermitian = false;  // symmetric: of the lower triangle, by eigenvalues
};
struct UpperOptions {
  bool upper = false;
};
struct TriangularOptions {
  bool upper, left = true, unitriangular = false;
};

/// X of A X = B from A's Cholesky factor: A = L L^T, or U^T U (upper).
Tensor cholesky_solve(const Tensor& b, const Tensor& factor, const UpperOptions& options = {});
/// The inverse of A from A's Cholesky factor.
Tensor cholesky_inverse(const Tensor& factor, const UpperOptions& options = {});
/// ln of the determinant; NaN where that is negative.
Tensor logdet(const Tensor& a);
/// The matrix exponential. Higham 2005.
Tensor matrix_exp(const Tensor& a);

namespace linalg {

/// L, lower triangular, of A = L L^T; U of A = U^T U (upper). ValueError where A is not positive definite.
Tensor cholesky(const Tensor& a, const UpperOptions& options = {});
/// L and, instead of an error, int32 0 or the order of the first leading minor that is not positive.
std::pair<Tensor, Tensor> cholesky_ex(const Tensor& a, const UpperOptions& options = {});
/// The determinant; its gradient exists for singular matrices too.
Tensor det(const Tensor& a);
/// The determinant's sign and the ln of its magnitude: 0 and -inf for a singular matrix.
std::pair<Tensor, Tensor> slogdet(const Tensor& a);
/// ValueError for a singular matrix, as for solve.
Tensor inv(const Tensor& a);
/// X of A X = B, or of X A = B (left = false). B: (..., N, K), or (..., N) where the rest is A's batch exactly.
Tensor solve(const Tensor& a, const Tensor& b, bool left = true);
/// The same for the triangle of A that `upper` names; unitriangular: with ones on its diagonal. The rest of A is not read.
Tensor solve_triangular(const Tensor& a, const Tensor& b, const TriangularOptions& options);
/// P (a permutation), L (unit diagonal) and U of A = P L U: (..., M, M), (..., M, K) and (..., K, N) with K = min(M, N).
std::tuple<Tensor, Tensor, Tensor> lu(const Tensor& a);
/// L and U in one matrix, L's diagonal left out, and the order (int32): row i of A is row order[i] of L U.
std::pair<Tensor, Tensor> lu_factor(const Tensor& a);
/// X of A X = B from what lu_factor gives. ValueError for another order of a tensor on the CPU; a device is not waited for.
Tensor lu_solve(const Tensor& lu, const Tensor& order, const Tensor& b);
/// The inverse of the linear map that a is from its last dimensions to its first `ind`: both products of sizes are equal.
Tensor tensorinv(const Tensor& a, int64_t ind = 2);
/// x of tensordot(a, x, x.dim()) = b; `dims` of a are moved to the end first.
Tensor tensorsolve(const Tensor& a, const Tensor& b, const Dims& dims = {});
/// 1, x, x^2, ... x^(N-1) in a last dimension; N: the last size of x.
Tensor vander(const Tensor& x, std::optional<int64_t> n = {});
/// A^n, of the inverse where n is negative.
Tensor matrix_power(const Tensor& a, int64_t n);

/// Q and R of A = Q R, Q with orthonormal columns: "reduced" (M, K) and (K, N) with K = min(M, N), "complete" (M, M) and (M, N), or "r":
/// R alone, Q empty. The gradient wants the first K columns of A independent.
std::pair<Tensor, Tensor> qr(const Tensor& a, std::string_view mode = "reduced");
/// Eigenvalues, ascending, and eigenvectors (columns) of a symmetric matrix, of which the triangle that uplo names ("L", "U") is read.
std::pair<Tensor, Tensor> eigh(const Tensor& a, std::string_view uplo = "L");
Tensor eigvalsh(const Tensor& a, std::string_view uplo = "L");
/// U, S (descending) and Vh of A = U diag(S) Vh; reduced: (M, K), (K), (K, N) with K = min(M, N).
std::tuple<Tensor, Tensor, Tensor> svd(const Tensor& a, bool full_matrices = true);
Tensor svdvals(const Tensor& a);

/// The Moore-Penrose inverse.
Tensor pinv(const Tensor& a, const ToleranceOptions& options = {});
/// How many singular values are above the tolerance; int64.
Tensor matrix_rank(const Tensor& a, const ToleranceOptions& options = {});
/// lstsq(): the solution of least norm; the sums of squared residuals (M > N and full rank, not for "gelsy", else empty); the rank
/// (not for "gels"); singular values ("gelsd", "gelss").
struct Lstsq {
  Tensor solution, residuals, rank, singular_values;
};
Lstsq lstsq(const Tensor& a, const Tensor& b, std::optional<double> rcond = {}, std::string_view driver = "gelsy");

/// Norms of the matrices in dimensions `dims`: "fro", "nuc"; 1 and -1: largest and smallest column sum of |x|; inf, -inf: row sum;
/// 2, -2: singular value.
Tensor matrix_norm(const Tensor& x, std::string_view ord = "fro", const Dims& dims = {-2, -1},
                   const ReduceOptions& options = {});
Tensor matrix_norm(const Tensor& x, Scalar ord, const Dims& dims = {-2, -1}, const ReduceOptions& options = {});
/// A vector norm over one dimension or (no ord) over all, a matrix norm over two.
Tensor norm(const Tensor& x, std::optional<Scalar> ord = {}, const Dims& dims = {}, const ReduceOptions& options = {});
Tensor norm(const Tensor& x, std::string_view ord, const Dims& dims = {}, const ReduceOptions& options = {});
/// The condition number |A| |A^-1| in that norm; inf for a singular matrix.
Tensor cond(const Tensor& a, Scalar p = 2);
Tensor cond(const Tensor& a, std::string_view p);

}  // namespace linalg

inline Tensor det(const Tensor& a) { return linalg::det(a); }
inline Tensor inverse(const Tensor& a) { return linalg::inv(a); }

}  // namespace tapir::inline v0
