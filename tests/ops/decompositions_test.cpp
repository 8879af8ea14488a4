#include "helpers.h"

namespace {
Tensor random(const Shape& shape, DType dtype = kFloat64) { return randn(shape, {.dtype = dtype}); }
Tensor turned(const Tensor& x) { return transpose(x, -2, -1); }
double difference(const Tensor& a, const Tensor& b) { return a.numel() ? max(abs(a - b)).item() : 0; }
bool orthonormal(const Tensor& q) {
  const Tensor one = matmul(turned(q), q);
  return difference(one, expand(eye(q.size(-1), -1, {.dtype = q.dtype()}), one.shape())) <
         (q.dtype() == kFloat32 ? 1e-4 : 1e-12);
}
}  // namespace

TEST_CASE("BI-158 infinities and NaN have no decomposition") {
  Tensor a = eye(3, 3, {.dtype = kFloat64});
  for (double v : {kNan, kInf}) {
    a[{1, 0}] = v;
    const Tensor batch = stack({eye(3, 3, {.dtype = kFloat64}), a});
    CHECK(mentions(error_of([&] { linalg::svd(batch); }), {"[linalg.svd]", "finite", "batch element 1"}));
    CHECK(mentions(error_of([&] { linalg::svdvals(a); }), {"[linalg.svdvals]", "batch element 0"}));
    CHECK(mentions(error_of([&] { linalg::eigh(batch); }), {"[linalg.eigh]", "batch element 1"}));
    CHECK(mentions(error_of([&] { linalg::pinv(a); }), {"[linalg.pinv]"}));
  }
}

TEST_CASE("decompositions check their options") {
  const Tensor a = random({3, 2});
  CHECK(mentions(error_of([&] { linalg::qr(a, "full"); }), {"[linalg.qr]", "full"}));
  CHECK(mentions(error_of([&] { linalg::eigh(matmul(a, turned(a)), "X"); }), {"UPLO", "X"}));
  CHECK(mentions(error_of([&] { linalg::lstsq(a, a, {}, "best"); }), {"driver", "best"}));
  CHECK(mentions(error_of([&] { linalg::lstsq(a, random({2, 2})); }), {"(3, 2)", "(2, 2)"}));
  CHECK(mentions(error_of([&] { linalg::eigh(a); }), {"square"}));
  CHECK(mentions(error_of([&] { linalg::svd(to(a, kInt64)); }), {"int64"}));
  Tensor x = random({3, 2}).requires_grad_();
  CHECK(mentions(error_of([&] { linalg::qr(x, "complete").second.sum().backward(); }), {"[linalg.qr]", "complete"}));
}

TEST_CASE("matrices of equal, tiny, huge and missing singular values") {
  manual_seed(1);
  for (DType dtype : {kFloat32, kFloat64})
    for (const Tensor& a : {zeros({4, 3}), ones({3, 5}), eye(4, 4), random({20, 7}) * 1e-30, random({7, 20}) * 1e30,
                            matmul(random({9, 2}), random({2, 9})), random({2, 33, 33})}) {
      const Tensor x = to(a, dtype);
      const auto [u, s, vh] = linalg::svd(x, false);
      const double scale = std::max(1e-300, max(s).item());
      CHECK(difference(matmul(u * unsqueeze(s, -2), vh), x) / scale < (dtype == kFloat32 ? 1e-5 : 1e-13));
      CHECK(orthonormal(u));
      CHECK(orthonormal(turned(vh)));
      CHECK(difference(linalg::svdvals(x), s) / scale < (dtype == kFloat32 ? 1e-5 : 1e-13));
    }
}

TEST_CASE("eigenvalues ascend, of the triangle that is named") {
  const Tensor a = view(tensor(Values{1, 7, 2, -3}), {2, 2});  // lower: (1, 2; 2, -3), upper: (1, 7; 7, -3)
  CHECK(close(values(linalg::eigvalsh(a)), {-1 - std::sqrt(8), -1 + std::sqrt(8)}));
  CHECK(close(values(linalg::eigvalsh(a, "U")), {-1 - std::sqrt(53), -1 + std::sqrt(53)}));
  const Tensor s = random({2, 20, 20});
  const auto [l, v] = linalg::eigh(s + turned(s));
  CHECK(orthonormal(v));
  CHECK(difference(matmul(v * unsqueeze(l, -2), turned(v)), s + turned(s)) < 1e-12);
}

TEST_CASE("what tolerances do to rank and pseudo-inverse") {
  const Tensor a = view(tensor(Values{4, 0, 0, 0, 1, 0, 0, 0, 0.1}), {3, 3});
  CHECK(linalg::matrix_rank(a).item() == 3);
  CHECK(linalg::matrix_rank(a, {.atol = 0.5}).item() == 2);
  CHECK(linalg::matrix_rank(a, {.rtol = 0.5}).item() == 1);
  CHECK(values(linalg::matrix_rank(stack({a, a}), {.atol = floats({0.5, 2})})) == Values{2, 1});
  CHECK(linalg::matrix_rank(neg(a), {.atol = 0.5, .hermitian = true}).item() == 2);
  CHECK(linalg::matrix_rank(zeros({2, 0, 3})).shape() == Shape{2});
  CHECK(close(values(linalg::pinv(a, {.atol = 0.5})), {0.25, 0, 0, 0, 1, 0, 0, 0, 0}));
  CHECK(close(values(linalg::pinv(a, {.atol = 0.5, .hermitian = true})), {0.25, 0, 0, 0, 1, 0, 0, 0, 0}));
  CHECK(linalg::pinv(zeros({2, 0, 3})).shape() == Shape{2, 3, 0});
}

TEST_CASE("least squares: what each driver gives") {
  const Tensor a = random({5, 3}), b = random({5, 2});
  const auto gels = linalg::lstsq(a, b, {}, "gels"), gelsy = linalg::lstsq(a, b),
             gelsd = linalg::lstsq(a, b, {}, "gelsd");
  CHECK(gels.residuals.shape() == Shape{2});
  CHECK(gels.rank.numel() == 0);
  CHECK(gelsy.residuals.numel() == 0);
  CHECK(gelsy.rank.item() == 3);
  CHECK(gelsd.singular_values.shape() == Shape{3});
  CHECK(difference(matmul(turned(a), matmul(a, gels.solution) - b), zeros({3, 2}, {.dtype = kFloat64})) < 1e-12);
  CHECK(linalg::lstsq(a, random({5})).solution.shape() == Shape{3});
  CHECK(linalg::lstsq(random({2, 5, 3}), random({2, 5})).solution.shape() == Shape{2, 3});
  const auto poor = linalg::lstsq(zeros({4, 3}), ones({4, 1}), {}, "gelss");
  CHECK(poor.residuals.numel() == 0);  // not of full rank
  CHECK(values(poor.solution) == Values{0, 0, 0});
}

TEST_CASE("gradients of the full decomposition are those of the reduced one") {
  manual_seed(5);
  const Tensor a = random({4, 3}).requires_grad_();
  const auto partly = [](const Tensor& x, bool full) {
    const auto [u, s, vh] = linalg::svd(x, full);
    return sum(matmul(narrow(u, -1, 0, 3) * s, vh) * ones_like(x));
  };
  CHECK(difference(grad({partly(a, true)}, {a})[0], grad({partly(a, false)}, {a})[0]) < 1e-12);
  CHECK(gradients_hold([](const Tensor& x) { return abs(linalg::qr(x, "r").second); }, {a}));
}
