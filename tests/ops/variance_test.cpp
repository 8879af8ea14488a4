#include "helpers.h"

TEST_CASE("var and std: values, corrections") {
  const Tensor x = reshape(floats({1, 2, 4, 7, 7, 7}), {2, 3});
  CHECK(close(values(var(x, 1)), {7.0 / 3, 0}));
  CHECK(close(values(var(x, 1, {.correction = 0})), {14.0 / 9, 0}));
  CHECK(close(values(tapir::std(x, 1)), {std::sqrt(7.0 / 3), 0}));
  CHECK(var(x, {0, 1}, {.keepdim = true}).shape() == Shape{1, 1});
  CHECK(std::isnan(var(zeros({0})).item()));  // BI-111
  CHECK(std::isnan(var(ones({1})).item()));
  CHECK(var(floats({1, 2, 3}), {}, {.correction = 3}).item() == kInf);
  CHECK(has(error_of([] { var(tensor({1, 2})); }), "[var] expected a tensor of floating point dtype"));
  auto [v, m] = var_mean(x, 1);
  CHECK(close(values(m), {7.0 / 3, 7}));
  CHECK(close(values(v), {7.0 / 3, 0}));
  CHECK(close(values(std_mean(x, 1).first), {std::sqrt(7.0 / 3), 0}));
  CHECK(var(add(rand({1000}, {.dtype = kFloat32}), 1e4)).item() < 0.2);  // no cancellation
}

TEST_CASE("var and std: gradients") {
  const Tensor a = leaf({1, 5, -2, 0.5, 4, 3}, {2, 3});
  CHECK(gradients_hold([](const Tensor& a) { return var(a, 1); }, {a}));
  CHECK(gradients_hold([](const Tensor& a) { return var(a, {0, 1}, {.correction = 0, .keepdim = true}); }, {a}));
  CHECK(gradients_hold([](const Tensor& a) { return tapir::std(a, 0); }, {a}));
  CHECK(gradients_hold(
      [](const Tensor& a) {
        auto [s, m] = std_mean(a, 1);
        return std::vector<Tensor>{s, m};
      },
      {a}));
  Tensor flat = leaf({2, 2, 2});
  tapir::std(flat).backward();
  CHECK(values(flat.grad()) == Values{0, 0, 0});
}
