#include "helpers.h"

TEST_CASE("cumsum: values, dtypes, in place") {
  const Tensor x = reshape(tensor({1, 2, 3, 4, 5, 6}), {2, 3});
  CHECK(values(cumsum(x, 1)) == Values{1, 3, 6, 4, 9, 15});
  CHECK(values(cumsum(x, 0)) == Values{1, 2, 3, 5, 7, 9});
  CHECK(cumsum(to(x, kInt32), 0).dtype() == kInt64);
  CHECK(cumsum(x, 0, {.dtype = kFloat32}).dtype() == kFloat32);
  CHECK(cumsum(zeros({0, 3}), 0).shape() == Shape{0, 3});
  CHECK(cumsum(full({}, 2.5), 0).item() == 2.5);
  Tensor y = to(clone(x), kInt32);
  CHECK(values(cumsum_(y, -1)) == Values{1, 3, 6, 4, 9, 15});
  CHECK(y.dtype() == kInt32);
  CHECK_THROWS_AS(cumsum(x, 2), ValueError);
}

TEST_CASE("cumsum: gradients") {
  const Tensor a = leaf({1, 5, -2, 0.5, -4, 3}, {2, 3});
  CHECK(gradients_hold([](const Tensor& a) { return square(cumsum(a, 1)); }, {a}));
  CHECK(gradients_hold([](const Tensor& a) { return cumsum(a, 0); }, {a}));
  CHECK(gradients_hold(
      [](const Tensor& a) {
        Tensor b = a * 2.0;
        return cumsum_(b, 1);
      },
      {a}));
  CHECK(gradients_hold([](const Tensor& a) { return sum(cumsum(a, 1)); }, {a}));  // its incoming gradient is expanded
}
