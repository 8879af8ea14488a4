#include "numbers.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE("BI-152 BI-153 binary_cross_entropy: what is no probability") {
  const Tensor half = full({2, 2}, 0.5, {.dtype = kFloat32});
  const auto with = [](double v) { return view(to(tensor(std::vector<double>{0.5, 0.25, v, 1}), kFloat32), {2, 2}); };
  CHECK(refuses([&] { binary_cross_entropy(with(1.5), half); }, "input", "1.5", "position 2"));
  CHECK(refuses([&] { binary_cross_entropy(with(-0.5), half); }, "input", "-0.5"));
  CHECK(refuses([&] { binary_cross_entropy(with(NAN), half); }, "input", "nan", "position 2"));
  CHECK(refuses([&] { binary_cross_entropy(half, with(2)); }, "target", "2", "position 2"));
  CHECK(refuses([&] { binary_cross_entropy(half, zeros({2, 1})); }, "(2, 1)", "(2, 2)"));
  CHECK(refuses([&] { binary_cross_entropy(half, zeros({2, 2}, {.dtype = kInt64})); }, "dtype"));
  CHECK(close(binary_cross_entropy(tensor({0., 1.}), tensor({0., 1.})), zeros({})));
  CHECK(binary_cross_entropy(tensor({0., 1.}), tensor({1., 0.})).item() == 100);  // logarithms end at -100
  CHECK(std::isnan(binary_cross_entropy(zeros(0), zeros(0)).item()));
}

TEST_CASE("gaussian_nll_loss: variances") {
  const Tensor x = zeros({2, 3}), t = ones({2, 3});
  CHECK(refuses([&] { gaussian_nll_loss(x, t, neg(ones({2, 3}))); }, "var", "-1"));
  CHECK(refuses([&] { gaussian_nll_loss(x, t, ones({4})); }, "var is of incorrect size", "(4,)"));
  CHECK(refuses([&] { gaussian_nll_loss(x, t, ones({1, 1})); }, "var"));
  const Tensor var = zeros({2, 3}, {.dtype = kFloat64}).requires_grad_();
  gaussian_nll_loss(x, t, var, {.eps = 0.5, .reduction = Reduction::Sum}).backward();
  CHECK(close(var.grad(), full({2, 3}, 0.5 * (1 / 0.5 - 1 / 0.25))));  // as if the variance were eps
}

TEST_CASE("kl_div: reductions, and nothing where the target is 0") {
  const Tensor x = numbers({3, 2}), t = tensor({{0., 1.}, {0.5, 0.5}, {1., 0.}});
  CHECK(close(kl_div(x, t, {.reduction = Reduction::BatchMean}), div(kl_div(x, t, {.reduction = Reduction::Sum}), 3)));
  CHECK(close(kl_div(x, log(t), {.reduction = Reduction::None, .log_target = true})[1],
              kl_div(x, t, {.reduction = Reduction::None})[1]));
  CHECK(kl_div(x, t, {.reduction = Reduction::None})[{0, 0}].item() == 0);
  CHECK(refuses([&] { mse_loss(x, t, {.reduction = Reduction::BatchMean}); }, "batchmean"));
}
