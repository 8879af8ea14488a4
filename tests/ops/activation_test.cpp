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

TEST_CASE("activations: infinities, NaN, integers") {
  const Tensor x = floats({kInf, -kInf, kNan});
  CHECK(close(values(elu(x)), {kInf, -1, kNan}));
  CHECK(close(values(softplus(x)), {kInf, 0, kNan}));
  CHECK(close(values(logsigmoid(x)), {0, -kInf, kNan}));
  CHECK(close(values(mish(x)), {kInf, kNan, kNan}));
  CHECK(close(values(hardsigmoid(x)), {1, 0, kNan}));
  CHECK(close(values(hardswish(x)), {kInf, kNan, kNan}));
  CHECK(close(values(hardtanh(x)), {1, -1, kNan}));
  CHECK(close(values(softshrink(x)), {kInf, -kInf, kNan}));
  CHECK(close(values(hardshrink(x)), {kInf, -kInf, kNan}));
  CHECK(close(values(threshold(x, 0, 5)), {kInf, 5, kNan}));
  CHECK(close(values(softplus(floats({-100, 50, 1000}), 0.5)), {2 * std::exp(-50), 50, 1000}));
  const Tensor u = tensor({3, 0, 200}, {.dtype = kUInt8}), i = tensor({-3, 0, 4});
  CHECK(values(hardtanh(u)) == Values{1, 0, 1});
  CHECK(values(relu6(u)) == Values{3, 0, 6});
  CHECK(values(hardtanh(i, -0.5, 1.7)) == Values{0, 0, 1});
  CHECK(has(error_of([&] { threshold(u, -1, -5); }), "value -1 cannot be converted to type uint8"));
  CHECK(softsign(i).dtype() == kFloat32);
  for (auto f : std::vector<Tensor (*)(const Tensor&)>{selu, mish, logsigmoid, hardswish, hardsigmoid})
    CHECK(has(error_of([&] { f(i); }), "floating point dtype"));
}

TEST_CASE("activations: gradients at the bends are PyTorch's") {
  const Tensor x = leaf({-3, 3, -1, 1, 6, 0.5, -0.5, 0});
  const auto slope = [&](const std::function<Tensor(const Tensor&)>& f) { return values(grad({sum(f(x))}, {x})[0]); };
  CHECK(close(slope(hardswish), {0, 1, 1.0 / 6, 5.0 / 6, 1, 2.0 / 3, 1.0 / 3, 0.5}));
  CHECK(close(slope(hardsigmoid), {0, 0, 1.0 / 6, 1.0 / 6, 0, 1.0 / 6, 1.0 / 6, 1.0 / 6}));
  CHECK(slope([](const Tensor& x) { return hardtanh(x); }) == Values{0, 0, 0, 0, 0, 1, 1, 1});
  CHECK(slope(relu6) == Values{0, 1, 0, 1, 0, 1, 0, 0});
  CHECK(slope([](const Tensor& x) { return hardshrink(x); }) == Values{1, 1, 1, 1, 1, 0, 0, 0});
  CHECK(slope([](const Tensor& x) { return softshrink(x); }) == Values{1, 1, 1, 1, 1, 0, 0, 0});
  CHECK(slope([](const Tensor& x) { return threshold(x, 0.5, 9); }) == Values{0, 1, 0, 1, 1, 0, 0, 0});
  CHECK(values(softsign(tensor({-128, 127}, {.dtype = kInt8}))) ==
        values(div(tensor({128, -127}), tensor({127, 128}))));
  const Tensor none = leaf({kNan});
  CHECK(close(values(grad({sum(selu(none))}, {none})[0]), {1.0507009873554804934}));
  const Tensor kink = leaf({0, -2}), w = leaf({0.25});
  const Tensor dw = grad({sum(prelu(kink, w))}, {w}, {}, {.create_graph = true})[0];
  CHECK(values(grad({sum(dw)}, {kink})[0]) == Values{0, 1});
  CHECK(close(slope([](const Tensor& x) { return celu(x, 0.7); }),
              {std::exp(-3 / 0.7), 1, std::exp(-1 / 0.7), 1, 1, 1, std::exp(-0.5 / 0.7), 1}));
}

TEST_CASE("activations: refused options and shapes") {
  const Tensor x = ones({2, 3});
  CHECK(has(error_of([&] { celu(x, 0); }), "alpha cannot be 0"));
  CHECK(has(error_of([&] { hardtanh(x, 1, -1); }), "min_val <= max_val"));
  CHECK(has(error_of([&] { softshrink(x, -1); }), "lambd >= 0"));
  CHECK(has(error_of([&] { glu(x); }), "even size of dimension 1"));
  CHECK(has(error_of([&] { glu(full({}, 1.0)); }), "[glu]"));
  CHECK(has(error_of([&] { prelu(x, ones({2})); }), "1 or 3 elements"));
  CHECK(has(error_of([&] { prelu(x, ones({1, 3})); }), "one dimension"));
  CHECK(has(error_of([&] { prelu(x, to(ones({3}), kFloat64)); }), "dtype float32"));
  CHECK(values(prelu(full({}, -1.0), full({1}, 0.25))) == Values{-0.25});
  CHECK(glu(zeros({0, 2})).shape() == Shape{0, 1});
}
