#include "helpers.h"

TEST_CASE("cdist: equal points have a gradient of 0") {
  for (const char* mode : {"use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"}) {
    const Tensor x = leaf({0, 0, 3, 4}, {2, 2});
    const Tensor y = cdist(x, x, {.compute_mode = mode});
    CHECK(close(values(y), {0, 5, 5, 0}));
    CHECK(close(values(grad({sum(y)}, {x})[0]), {-1.2, -1.6, 1.2, 1.6}));
  }
}

TEST_CASE("cdist: the product is taken from 26 points on, and agrees") {
  manual_seed(1);
  const Tensor a = randn({2, 30, 5}, {.dtype = kFloat64}), b = randn({40, 5}, {.dtype = kFloat64});
  CHECK(close(values(cdist(a, b)), values(cdist(a, b, {.compute_mode = "donot_use_mm_for_euclid_dist"})), 1e-12));
  CHECK(cdist(ones({3, 1, 4, 2}), ones({5, 6, 2})).shape() == Shape{3, 5, 4, 6});
  CHECK(cdist(ones({0, 2}), ones({3, 2})).shape() == Shape{0, 3});
}

TEST_CASE("cdist: many points are taken block by block") {
  manual_seed(2);
  const Tensor a = randn({2, 50, 64}, {.dtype = kFloat64}).requires_grad_(),
               b = randn({60, 64}, {.dtype = kFloat64}).requires_grad_();
  for (double p : {1.0, 3.0, kInf}) {
    const Tensor y = cdist(a, b, {.p = p}), all = norm(unsqueeze(a, -2) - unsqueeze(b, -3), p, -1);
    CHECK(close(values(y), values(all), 1e-12));
    const std::vector<Tensor> got = grad({sum(square(y))}, {a, b}), want = grad({sum(square(all))}, {a, b});
    CHECK(close(values(got[0]), values(want[0]), 1e-10));
    CHECK(close(values(got[1]), values(want[1]), 1e-10));
  }
}

TEST_CASE("distances check their operands") {
  const Tensor a = ones({2, 3});
  CHECK(mentions(error_of([&] { cdist(a, ones({2, 2})); }), {"[cdist]", "(2, 3)", "(2, 2)"}));
  CHECK(mentions(error_of([&] { cdist(a, a, {.p = -1}); }), {"[cdist]", "-1"}));
  CHECK(mentions(error_of([&] { cdist(a, a, {.compute_mode = "fast"}); }), {"compute_mode", "fast"}));
  CHECK(mentions(error_of([&] { cdist(a, to(a, kFloat64)); }), {"float32", "float64"}));
  CHECK(mentions(error_of([&] { pdist(ones({2, 2, 2})); }), {"[pdist]"}));
  CHECK(mentions(error_of([&] { pdist(a, -1); }), {"[pdist]", "-1"}));
  CHECK(mentions(error_of([&] { pdist(to(a, kInt64)); }), {"[pdist]", "int64"}));
  CHECK(mentions(error_of([&] { cosine_similarity(to(a, kInt64), to(a, kInt64)); }), {"[cosine_similarity]", "int64"}));
  CHECK(mentions(error_of([&] { cosine_similarity(a, a, {.dim = 2}); }), {"[cosine_similarity]", "2"}));
}

TEST_CASE("similarity and normalisation of zeros are finite") {
  const Tensor z = leaf({0, 0, 0}, {1, 3});
  const Tensor y = cosine_similarity(z, ones({1, 3}, {.dtype = kFloat64}));
  CHECK(values(y) == Values{0});
  for (double g : values(grad({y}, {z})[0])) CHECK(std::isfinite(g));
  CHECK(values(normalize(z)) == Values{0, 0, 0});
  CHECK(close(values(normalize(floats({3, 4}), {.dim = 0})), {0.6, 0.8}));
}
