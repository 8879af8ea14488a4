#include "helpers.h"

namespace {
Tensor matrix(std::initializer_list<double> v, const Shape& shape) { return view(tensor(Values(v)), shape); }
}  // namespace

TEST_CASE("BI-157 what is not positive definite or not regular is named") {
  const Tensor good = eye(3, 3, {.dtype = kFloat64}), bad = matrix({1, 2, 0, 2, 1, 0, 0, 0, 1}, {3, 3});
  CHECK(mentions(error_of([&] { linalg::cholesky(bad); }), {"[linalg.cholesky]", "batch element 0", "order 2"}));
  CHECK(mentions(error_of([&] { linalg::cholesky(stack({good, good, bad})); }), {"batch element 2", "order 2"}));
  CHECK(mentions(error_of([&] { linalg::cholesky(neg(good)); }), {"order 1"}));
  const auto [l, info] = linalg::cholesky_ex(stack({good, bad}));
  CHECK(info.dtype() == kInt32);
  CHECK(values(info) == Values{0, 2});
  const Tensor singular = matrix({1, 2, 2, 4}, {2, 2}), regular = eye(2, 2, {.dtype = kFloat64});
  CHECK(mentions(error_of([&] {
                   linalg::inv(stack({regular, singular}));
                 }),
                 {"[linalg.inv]", "batch element 1", "pivot 2"}));
  CHECK(
      mentions(error_of([&] { linalg::solve(singular, regular); }), {"[linalg.solve]", "batch element 0", "pivot 2"}));
  CHECK(mentions(error_of([&] { linalg::matrix_power(singular, -1); }), {"pivot 2"}));
}

TEST_CASE("shapes and dtypes of matrices are checked") {
  const Tensor a = ones({2, 3}), v = ones({3}), s = ones({3, 3});
  CHECK(mentions(error_of([&] { linalg::inv(a); }), {"[linalg.inv]", "square", "(2, 3)"}));
  CHECK(mentions(error_of([&] { linalg::det(v); }), {"[linalg.det]", "(3,)"}));
  CHECK(mentions(error_of([&] { linalg::det(to(s, kInt64)); }), {"int64"}));
  CHECK(mentions(error_of([&] { linalg::cholesky(to(s, kFloat16)); }), {"float16"}));
  CHECK(mentions(error_of([&] { linalg::solve(s, ones({2, 2})); }), {"[linalg.solve]", "(3, 3)", "(2, 2)"}));
  CHECK(mentions(error_of([&] { linalg::solve(s, to(s, kFloat64)); }), {"float32", "float64"}));
  CHECK(mentions(error_of([&] { linalg::solve(s, v, false); }), {"left = false"}));
  CHECK(mentions(error_of([&] { linalg::solve_triangular(s, v, {.upper = true}); }), {"[linalg.solve_triangular]"}));
  CHECK(mentions(error_of([&] { cholesky_solve(a, s); }), {"[cholesky_solve]"}));
  CHECK(mentions(error_of([&] { linalg::solve(ones({2, 3, 3}), ones({4, 3, 3})); }), {"[linalg.solve]"}));
}

TEST_CASE("a factor's other triangle is not read") {
  const Tensor a = matrix({2, kNan, 1, 3}, {2, 2}), b = matrix({4, 11}, {2, 1});
  CHECK(close(values(linalg::solve_triangular(a, b, {.upper = false})), {2, 3}));
  CHECK(
      close(values(linalg::solve_triangular(transpose(a, 0, 1), b, {.upper = true})), {(4 - 11.0 / 3) / 2, 11.0 / 3}));
  CHECK(close(values(linalg::solve_triangular(a, b, {.upper = false, .unitriangular = true})), {4, 7}));
  CHECK(close(values(linalg::cholesky(matrix({4, kNan, 2, 5}, {2, 2}))), {2, 0, 1, 2}));
}

TEST_CASE("BI-183 determinants of singular matrices have gradients, second ones are refused") {
  const Tensor a = leaf({1, 2, 2, 4}, {2, 2}), d = linalg::det(a);
  CHECK(d.item() == 0);
  CHECK(close(values(grad({d}, {a}, {}, {.retain_graph = true})[0]), {4, -2, -2, 1}));
  CHECK(mentions(error_of([&] { grad({d}, {a}, {}, {.create_graph = true}); }), {"[linalg.det]", "second derivative"}));
  const Tensor rank1 = leaf(Values(9, 1), {3, 3});
  CHECK(close(values(grad({linalg::det(rank1)}, {rank1})[0]), Values(9, 0)));
  const auto [sign, magnitude] = linalg::slogdet(a.detach());
  CHECK(sign.item() == 0);
  CHECK(magnitude.item() == -kInf);
  CHECK(std::isnan(logdet(matrix({1, 2, 2, 1}, {2, 2})).item()));
  CHECK(logdet(matrix({1, 2, 2, 4}, {2, 2})).item() == -kInf);
}

TEST_CASE("solve takes vectors and broadcasts") {
  const Tensor a = eye(3, 3, {.dtype = kFloat64}) * 2;
  const auto shape = [&](const Shape& batch, const Shape& b) {
    return linalg::solve(expand(a, batch), ones(b, {.dtype = kFloat64})).shape();
  };
  CHECK(shape({3, 3}, {3}) == Shape{3});
  CHECK(shape({2, 3, 3}, {3}) == Shape{2, 3});
  CHECK(shape({2, 3, 3}, {2, 3}) == Shape{2, 3});
  CHECK(shape({2, 3, 3}, {3, 4}) == Shape{2, 3, 4});
  CHECK(shape({5, 1, 3, 3}, {2, 3, 4}) == Shape{5, 2, 3, 4});
  CHECK(shape({3, 3}, {0, 3, 4}) == Shape{0, 3, 4});
}

TEST_CASE("powers and exponentials") {
  const Tensor a = matrix({1, 1, 0, 1}, {2, 2});
  CHECK(values(linalg::matrix_power(a, 1000)) == Values{1, 1000, 0, 1});
  CHECK(close(values(linalg::matrix_power(a, -3)), {1, -3, 0, 1}));
  CHECK(values(linalg::matrix_power(to(a, kInt32), 5)) == Values{1, 5, 0, 1});
  CHECK(close(values(matrix_exp(matrix({0, -1, 1, 0}, {2, 2}) * 100)),
              {std::cos(100), -std::sin(100), std::sin(100), std::cos(100)}));
  CHECK(close(values(matrix_exp(matrix({0, 1, 0, 0}, {2, 2}))), {1, 1, 0, 1}));
  CHECK(matrix_exp(ones({2, 2}, {.dtype = kBFloat16})).dtype() == kBFloat16);
}

TEST_CASE("LU factors of any shape, and systems solved by them") {
  manual_seed(3);
  for (const Shape& shape : {Shape{4, 4}, Shape{2, 5, 3}, Shape{2, 3, 5}, Shape{3, 0}, Shape{0, 3}}) {
    const Tensor a = randn(shape, {.dtype = kFloat64});
    const auto [p, l, u] = linalg::lu(a);
    CHECK(close(values(matmul(matmul(p, l), u)), values(a)));
    const auto [factors, order] = linalg::lu_factor(a);
    CHECK(factors.shape() == a.shape());
  }
  const Tensor a = randn({3, 3}, {.dtype = kFloat64}), b = randn({3, 2}, {.dtype = kFloat64});
  const auto [factors, order] = linalg::lu_factor(a);
  CHECK(close(values(matmul(a, linalg::lu_solve(factors, order, b))), values(b)));
  CHECK(gradients_hold([](const Tensor& x) { return std::get<1>(linalg::lu(x)); },
                       {randn({4, 3}, {.dtype = kFloat64}).requires_grad_()}));
  CHECK(gradients_hold([](const Tensor& x) { return std::get<2>(linalg::lu(x)); },
                       {randn({3, 4}, {.dtype = kFloat64}).requires_grad_()}));
}
