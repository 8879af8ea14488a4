#include "helpers.h"

TEST_CASE("matrix norms by name and number, over any two dimensions") {
  const Tensor a = view(tensor(Values{3, 0, -4, 1, 2, 2}), {2, 3});
  CHECK(close(values(linalg::matrix_norm(a)), {std::sqrt(34)}));
  CHECK(values(linalg::matrix_norm(a, 1)) == Values{6});
  CHECK(values(linalg::matrix_norm(a, -1)) == Values{2});
  CHECK(values(linalg::matrix_norm(a, kInf)) == Values{7});
  CHECK(values(linalg::matrix_norm(a, -kInf)) == Values{5});
  const Tensor d = view(tensor(Values{0, -2, 3, 0}), {2, 2});
  CHECK(close(values(linalg::matrix_norm(d, 2)), {3}));
  CHECK(close(values(linalg::matrix_norm(d, -2)), {2}));
  CHECK(close(values(linalg::matrix_norm(d, "nuc")), {5}));
  CHECK(linalg::matrix_norm(ones({2, 3, 4, 5}), 1, {0, -1}).shape() == Shape{3, 4});
  CHECK(linalg::matrix_norm(ones({2, 3, 4, 5}), "nuc", {-1, 1}, {.keepdim = true}).shape() == Shape{2, 1, 4, 1});
  CHECK(values(linalg::matrix_norm(ones({2, 0, 3}), kInf)) == Values{0, 0});
  CHECK(linalg::matrix_norm(ones({2, 2}, {.dtype = kFloat16})).dtype() == kFloat16);
  CHECK(linalg::matrix_norm(ones({2, 2}), 2, {0, 1}, {.dtype = kFloat64}).dtype() == kFloat64);
}

TEST_CASE("norms refuse what they do not know") {
  const Tensor a = ones({2, 2}), b = ones({2, 2, 2});
  CHECK(mentions(error_of([&] { linalg::matrix_norm(a, 3); }), {"[linalg.matrix_norm]", "3"}));
  CHECK(mentions(error_of([&] { linalg::matrix_norm(a, "max"); }), {"max"}));
  CHECK(mentions(error_of([&] { linalg::matrix_norm(a, 1, {0, 0}); }), {"dim 0"}));
  CHECK(mentions(error_of([&] { linalg::matrix_norm(a, 1, 0); }), {"two dimensions"}));
  CHECK(mentions(error_of([&] { linalg::matrix_norm(ones({2}), 1); }), {"at least 2"}));
  CHECK(mentions(error_of([&] { linalg::matrix_norm(to(a, kInt64)); }), {"int64"}));
  CHECK(mentions(error_of([&] { linalg::norm(b, 2); }), {"[linalg.norm]"}));
  CHECK(mentions(error_of([&] { linalg::norm(b, 2, {0, 1, 2}); }), {"[linalg.norm]"}));
  CHECK(mentions(error_of([&] { linalg::norm(b, "fro"); }), {"[linalg.norm]"}));
  CHECK(linalg::norm(b).item() == std::sqrt(8.f));
}

TEST_CASE("condition numbers of singular and empty matrices") {
  CHECK(linalg::cond(ones({2, 2}), 1).item() == kInf);
  CHECK(linalg::cond(ones({2, 2}), "fro").item() == kInf);
  CHECK(values(linalg::cond(ones({2, 0, 0}))) == Values{0, 0});
  CHECK(values(linalg::cond(ones({2, 0, 0}), 1)) == Values{0, 0});
  CHECK(close(values(linalg::cond(eye(3) * 2)), {1}));
  CHECK(close(values(linalg::cond(ones({3, 1}))), {1}));
  CHECK(mentions(error_of([&] { linalg::cond(ones({3, 1}), 1); }), {"square"}));
}
