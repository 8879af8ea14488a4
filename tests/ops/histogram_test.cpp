#include "helpers.h"

TEST_CASE("bincount: lengths, weights, refused inputs") {
  const Tensor x = tensor({3, 1, 3, 0});
  CHECK(values(bincount(x)) == Values{1, 1, 0, 2});
  CHECK(values(bincount(x, {}, 6)) == Values{1, 1, 0, 2, 0, 0});
  CHECK(values(bincount(to(x, kUInt8), tensor({1, 2, 3, 4}))) == Values{4, 2, 0, 4});
  CHECK(bincount(x, ones({4})).dtype() == kFloat32);
  CHECK(bincount(x, to(ones({4}), kFloat16)).dtype() == kFloat64);
  CHECK(bincount(empty(0, {.dtype = kInt64})).shape() == Shape{0});
  CHECK(values(bincount(empty(0, {.dtype = kInt64}), {}, 2)) == Values{0, 0});
  CHECK(has(error_of([] { bincount(tensor({1, -1})); }), "not negative, got -1"));
  CHECK(has(error_of([] { bincount(tensor({1.0})); }), "expected a vector of integers"));
  CHECK(has(error_of([&] { bincount(x, {}, -1); }), "minlength"));
  CHECK(has(error_of([&] { bincount(x, ones({3})); }), "weights of shape (4,)"));
  CHECK_THROWS(bincount(tensor({std::numeric_limits<int64_t>::max()})));
  const Tensor many = randint(0, 1000, {300000});
  CHECK(values(sum(bincount(many))) == Values{300000});
}

TEST_CASE("histc: ranges") {
  CHECK(values(histc(floats({1, 2, 1}), 4)) == Values{2, 0, 0, 1});
  CHECK(values(histc(floats({1, 2, kNan, 5, -1}), 4, {.min = 0, .max = 3})) == Values{0, 1, 1, 0});
  CHECK(values(histc(floats({0.5, 4, -1, 3}), 3, {.min = 0, .max = 3})) == Values{1, 0, 1});
  CHECK(values(histc(floats({1, 1}), 4)) == Values{0, 0, 2, 0});
  CHECK(values(histc(empty({0}), 3)) == Values{0, 0, 0});
  CHECK(has(error_of([] { histc(floats({1, kNan}), 4); }), "is not finite"));
  CHECK(has(error_of([] { histc(floats({1}), 0); }), "bins > 0"));
  CHECK(has(error_of([] { histc(floats({1}), 4, {.min = -3e38, .max = 3e38}); }), "width"));
  CHECK(has(error_of([] { histc(floats({1}), 2048, {.min = -1e37, .max = 1e37}); }), "width"));
  CHECK(values(histc(floats({-1e37f, 1e37f}), 4, {.min = -1e37, .max = 1e37})) == Values{1, 0, 0, 1});
  CHECK(has(error_of([] { histc(floats({1}), 4, {.min = 3, .max = 2}); }), "max must be larger than min"));
  CHECK(has(error_of([] { histc(tensor({1}), 4); }), "floating point"));
}
