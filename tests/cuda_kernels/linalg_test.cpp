// cuda_kernels/linalg/linalg.cpp: decompositions give back what they were made of.
#include "cuda.h"

using namespace tapir;

namespace {
bool close(const Tensor& a, const Tensor& b, double bound = 1e-9) {
  return allclose(a.cpu().to(kFloat64), b.cpu().to(kFloat64), {.rtol = bound, .atol = bound});
}
Tensor numbers(const Shape& shape) { return randn(shape, {.dtype = kFloat64}); }
Tensor positive(const Shape& shape) {
  const Tensor a = numbers(shape);
  return matmul(a, a.transpose(-1, -2)) + eye(shape.back(), shape.back(), {.dtype = kFloat64});
}
const Shape kSquares[] = {{1, 1}, {5, 5}, {3, 4, 4}, {2, 2, 3, 3}, {0, 3, 3}, {2, 0, 0}};
}  // namespace

TEST_CASE("cuda linalg: systems") {
  NEEDS_CUDA
  manual_seed(1);
  for (const Shape& shape : kSquares) {
    const Tensor host = positive(shape), a = host.to(kCUDA), b = numbers(shape).to(kCUDA);
    for (const bool upper : {false, true}) {
      const Tensor l = linalg::cholesky(a, {.upper = upper});
      CHECK(close(l, linalg::cholesky(host, {.upper = upper})));
    }
    CHECK(close(matmul(a, linalg::solve(a, b)), b));
    CHECK(close(linalg::det(a), linalg::det(host), 1e-7));
    CHECK(close(linalg::inv(a.transpose(-1, -2)), linalg::inv(host.transpose(-1, -2))));
    for (const bool upper : {false, true}) {
      const Tensor triangle = upper ? triu(b) + a : tril(b) + a, t = upper ? triu(triangle) : tril(triangle);
      CHECK(close(matmul(t, linalg::solve_triangular(triangle, b, {.upper = upper})), b));
    }
    CHECK(close(matrix_exp(a * 0.3), matrix_exp(host * 0.3), 1e-7));
  }
  CHECK(close(linalg::cholesky(positive({4, 4}).to(kFloat32).to(kCUDA) * 0 + eye(4).to(kCUDA)), eye(4), 1e-6));
}

TEST_CASE("cuda linalg: QR, eigenvalues, singular values") {
  NEEDS_CUDA
  manual_seed(2);
  for (const Shape& shape : {Shape{5, 3}, Shape{3, 5}, Shape{2, 4, 4}, Shape{2, 6, 2}, Shape{0, 3, 2}}) {
    const Tensor host = numbers(shape), a = host.to(kCUDA);
    for (const char* mode : {"reduced", "complete"}) {
      const auto [q, r] = linalg::qr(a, mode);
      CHECK(close(matmul(q, r), a));
      CHECK(close(triu(r), r));
    }
    for (const bool full : {false, true}) {
      const auto [u, s, vh] = linalg::svd(a, full);
      const int64_t k = s.shape().back();
      CHECK(close(matmul(u.narrow(-1, 0, k) * s.unsqueeze(-2), vh.narrow(-2, 0, k)), a));
      CHECK(close(s, linalg::svdvals(host)));
    }
  }
  for (const Shape& shape : kSquares) {
    const Tensor host = positive(shape), a = host.to(kCUDA);
    for (const char* triangle : {"L", "U"}) {
      const auto [w, v] = linalg::eigh(a, triangle);
      CHECK(close(matmul(v * w.unsqueeze(-2), v.transpose(-1, -2)), a));
      CHECK(close(w, linalg::eigvalsh(host, triangle)));
    }
  }
}

TEST_CASE("cuda linalg: on a stream of one's own, large batches and large matrices") {
  NEEDS_CUDA
  manual_seed(3);
  const cuda::Stream stream;
  const cuda::StreamGuard guard(stream);
  for (const Shape& shape : {Shape{4, 4}, Shape{70, 3, 3}, Shape{2, 260, 260}}) {
    const Tensor host = positive(shape), a = host.to(kCUDA);
    CHECK(close(linalg::cholesky(a), linalg::cholesky(host)));
    CHECK(close(linalg::inv(a), linalg::inv(host), 1e-7));
    if (shape.back() > 4) continue;
    CHECK(close(linalg::svdvals(a), linalg::svdvals(host)));
    CHECK(close(linalg::eigvalsh(a), linalg::eigvalsh(host)));
    const auto [q, r] = linalg::qr(a);
    CHECK(close(matmul(q, r), a));
  }
}

TEST_CASE("cuda linalg: bad matrices are errors of the call") {
  NEEDS_CUDA
  Tensor a = eye(3, 3, {.dtype = kFloat64});
  a[1][1] = -1;
  CHECK(contains(error_of([&] { (void)linalg::cholesky(a.to(kCUDA)); }), "2"));
  CHECK(linalg::cholesky_ex(a.to(kCUDA)).second.cpu().item<int64_t>() == 2);
  a[1][1] = 0;
  CHECK_FALSE(error_of([&] { (void)linalg::inv(a.to(kCUDA)); }).empty());
  a[1][1] = NAN;
  CHECK_FALSE(error_of([&] { (void)linalg::eigh(a.to(kCUDA)); }).empty());
  CHECK_FALSE(error_of([&] { (void)linalg::svdvals(a.to(kCUDA)); }).empty());
  CHECK(all(isnan(matrix_exp(a.to(kCUDA)))).item<bool>());
}
