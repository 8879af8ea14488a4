#include "helpers.h"

TEST_CASE("amax, amin, max, min: values") {
  const Tensor x = reshape(floats({3, 1, 2, 9, -4, 9}), {2, 3});
  CHECK(values(amax(x, 1)) == Values{3, 9});
  CHECK(values(amin(x, {0})) == Values{3, -4, 2});
  CHECK(amax(x, {0, 1}, {.keepdim = true}).shape() == Shape{1, 1});
  CHECK(max(x).item() == 9);
  CHECK(min(x).item() == -4);
  CHECK(max(x).dim() == 0);
  CHECK(values(amax(transpose(x, 0, 1), 0)) == Values{3, 9});
  CHECK(max(tensor({true, false})).dtype() == kBool);
  CHECK(std::isnan(max(floats({1, kNan, 2})).item()));
  CHECK(values(max(x, floats({2, 2, 2}))) == Values{3, 2, 2, 9, 2, 9});
}

TEST_CASE("max and min along a dimension give values and first positions") {
  const Tensor x = reshape(floats({3, 1, 3, 9, -4, 9}), {2, 3});
  auto [values_1, indices] = max(x, 1);
  CHECK(values(values_1) == Values{3, 9});
  CHECK(values(indices) == Values{0, 0});
  CHECK(indices.dtype() == kInt64);
  auto [low, at] = min(x, -2, {.keepdim = true});
  CHECK(low.shape() == Shape{1, 3});
  CHECK(values(low) == Values{3, -4, 3});
  CHECK(values(at) == Values{0, 1, 0});
  CHECK(max(ones({}), 0).first.dim() == 0);
  CHECK(max(zeros({0, 3}), 1).first.shape() == Shape{0});
  CHECK(values(max(floats({1, kNan, kNan}), 0).second) == Values{1});
}

TEST_CASE("argmax and argmin") {
  const Tensor x = reshape(floats({3, 1, 3, 9, -4, 9}), {2, 3});
  CHECK(argmax(x).item<int64_t>() == 3);
  CHECK(argmin(x).item<int64_t>() == 4);
  CHECK(values(argmax(x, 0)) == Values{1, 0, 1});
  CHECK(argmax(x, 1, {.keepdim = true}).shape() == Shape{2, 1});
  CHECK(argmax(x, {}, {.keepdim = true}).shape() == Shape{1, 1});
  CHECK(argmax(transpose(x, 0, 1)).item<int64_t>() == 1);
  CHECK(argmax(ones({})).item<int64_t>() == 0);
}

TEST_CASE("BI-112 the extremum of nothing") {
  CHECK(has(error_of([] { max(zeros({0})); }), "numel() == 0"));
  CHECK(has(error_of([] { amax(zeros({0, 3}), 0); }), "dim 0 to have non-zero size, got shape (0, 3)"));
  CHECK(has(error_of([] { max(zeros({0, 3}), 0); }), "dim 0"));
  CHECK(has(error_of([] { argmax(zeros({0})); }), "[argmax]"));
  CHECK(amax(zeros({0, 3}), 1).shape() == Shape{0});
  CHECK(argmax(zeros({0, 3}), 1).shape() == Shape{0});
}

TEST_CASE("extremes: equal ones share the gradient, max along a dimension gives it to the first") {
  Tensor x = leaf({1, 3, 3, 2}), y = leaf({1, 3, 3, 2});
  max(x).backward();
  CHECK(values(x.grad()) == Values{0, 0.5, 0.5, 0});
  max(y, 0).first.backward();
  CHECK(values(y.grad()) == Values{0, 1, 0, 0});
  const Tensor a = leaf({1, 5, -2, 0.5, 4, 3}, {2, 3});
  CHECK(gradients_hold([](const Tensor& a) { return amax(a, 1); }, {a}));
  CHECK(gradients_hold([](const Tensor& a) { return amin(a, {0, 1}, {.keepdim = true}); }, {a}));
  CHECK(gradients_hold([](const Tensor& a) { return min(a, 0).first; }, {a}));
  CHECK(gradients_hold([](const Tensor& a) { return square(max(a)); }, {a}));
}
