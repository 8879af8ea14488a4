#include "helpers.h"

TEST_CASE("activations: values") {
  const Tensor x = tensor({-2.0, -0.5, 0.0, 0.5, 2.0}, {.dtype = kFloat64});
  CHECK(values(relu(x)) == Values{0, 0, 0, 0.5, 2});
  CHECK(close(values(leaky_relu(x, 0.1)), {-0.2, -0.05, 0, 0.5, 2}, 1e-12));
  Values gelu_erf, gelu_tanh, swish;
  for (double v : values(x)) {
    gelu_erf.push_back(v * 0.5 * std::erfc(-v / std::sqrt(2.0)));
    gelu_tanh.push_back(0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))));
    swish.push_back(v / (1 + std::exp(-v)));
  }
  CHECK(close(values(gelu(x)), gelu_erf, 1e-12));
  CHECK(close(values(gelu(x, "tanh")), gelu_tanh, 1e-12));
  CHECK(close(values(silu(x)), swish, 1e-12));
  CHECK(values(relu(tensor({-1, 2}))) == Values{0, 2});
  CHECK(relu(tensor({-1, 2})).dtype() == kInt64);
}

TEST_CASE("activations: first and second derivatives") {
  const Tensor x = leaf({-2.1, -0.7, -0.2, 0.3, 0.9, 2.2}, {2, 3});
  CHECK(gradients_hold([](const Tensor& x) { return relu(x); }, {x}));
  CHECK(gradients_hold([](const Tensor& x) { return leaky_relu(x, 0.1); }, {x}));
  CHECK(gradients_hold([](const Tensor& x) { return gelu(x); }, {x}));
  CHECK(gradients_hold([](const Tensor& x) { return gelu(x, "tanh"); }, {x}));
  CHECK(gradients_hold([](const Tensor& x) { return silu(x); }, {x}));
  CHECK(gradients_hold([](const Tensor& x) { return tanh(x); }, {x}));
  CHECK(gradients_hold([](const Tensor& x) { return sigmoid(x); }, {x}));
}

TEST_CASE("activations in place, steep and negative slopes included") {
  const Tensor x = leaf({-2.1, -0.7, 0.3, 0.9});
  CHECK(gradients_hold(
      [](const Tensor& x) {
        Tensor y = x * 1.0;
        return relu_(y);
      },
      {x}));
  CHECK(gradients_hold(
      [](const Tensor& x) {
        Tensor y = x * 1.0;
        return silu_(y);
      },
      {x}));
  for (double slope : {0.1, 0.0, 3.0, -0.5})
    CHECK(gradients_hold(
        [slope](const Tensor& x) {
          Tensor y = x * 1.0;
          return leaky_relu_(y, slope);
        },
        {x}));
}

TEST_CASE("the gradient at the kink of relu is 0, third derivatives exist") {
  Tensor x = leaf({0.0, 1.0});
  sum(relu(x)).backward();
  CHECK(values(x.grad()) == Values{0, 1});
  const Tensor z = leaf({0.7});
  Tensor d = tanh(z);
  for (int i = 0; i < 3; ++i) d = grad({sum(d)}, {z}, {}, {.create_graph = true})[0];
  const double t = std::tanh(0.7);
  CHECK(d.item() == Approx((1 - t * t) * (6 * t * t - 2)));
}

TEST_CASE("activations refuse what they do not take") {
  CHECK(has(error_of([] { gelu(ones({2}), "fast"); }), "[gelu] approximate argument must be either none or tanh"));
  CHECK(has(error_of([] { gelu(tensor({1, 2})); }), "floating point"));
  CHECK(has(error_of([] { silu(tensor({1, 2})); }), "floating point"));
  CHECK(has(error_of([] { relu(tensor({true})); }), "[relu]"));
}
