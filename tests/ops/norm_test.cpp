#include <cmath>
#include <limits>

#include "numbers.h"

using namespace tapir;
using namespace tapir_tests;

static Tensor normalized(const Tensor& x, const Dims& over, double eps) {
  const Tensor d = sub(x, mean(x, over, {.keepdim = true}));
  return div(d, sqrt(add(mean(mul(d, d), over, {.keepdim = true}), eps)));
}

TEST_CASE("batch_norm: values, running statistics, layouts") {
  const Tensor x = numbers({3, 2, 4, 5}), w = numbers(2), b = numbers(2, 0.8);
  Tensor running_mean = zeros(2, {.dtype = kFloat64}), running_var = ones(2, {.dtype = kFloat64});
  const Tensor expected = add(mul(normalized(x, {0, 2, 3}, 1e-5), view(w, {1, 2, 1, 1})), view(b, {1, 2, 1, 1}));
  const uint32_t version = running_mean.version();
  CHECK(close(batch_norm(x, running_mean, running_var, w, b, {.training = true, .momentum = 0.2}), expected));
  CHECK(running_mean.version() > version);
  CHECK(close(running_mean, mul(mean(x, {0, 2, 3}), 0.2)));
  const Tensor d = sub(x, mean(x, {0, 2, 3}, {.keepdim = true}));
  CHECK(close(running_var, add(mul(sum(mul(d, d), {0, 2, 3}), 0.2 / 59), 0.8)));
  const Tensor last = batch_norm(contiguous(x, kChannelsLast), {}, {}, w, b, {.training = true});
  CHECK(last.is_contiguous(kChannelsLast));
  CHECK(close(last, expected));
  const Tensor eval = batch_norm(x, running_mean, running_var, w, b);
  const auto wide = [](const Tensor& v) { return view(v, {1, 2, 1, 1}); };
  CHECK(close(eval, add(mul(div(sub(x, wide(running_mean)), sqrt(add(wide(running_var), 1e-5))), wide(w)), wide(b))));
}

TEST_CASE("review 12: weight and bias of a norm stand in the braced list, or by position in PyTorch's order") {
  const Tensor x = numbers({2, 6, 4}), w = numbers(4), b = numbers(4, 0.8), cw = numbers(6), cb = numbers(6, 0.8);
  const auto scaled = [](const Tensor& y, const Tensor& w, const Tensor& b) { return add(mul(y, w), b); };
  const Tensor layer = scaled(normalized(x, {2}, 0.1), w, b);
  CHECK(close(layer_norm(x, 4, {.weight = w, .bias = b, .eps = 0.1}), layer));
  CHECK(close(layer_norm(x, 4, w, b, 0.1), layer));
  CHECK(close(layer_norm(x, {4}, {.bias = b}), add(normalized(x, {2}, 1e-5), b)));
  CHECK(close(layer_norm(x, {4}, {}, b), add(normalized(x, {2}, 1e-5), b)));
  CHECK(close(layer_norm(x, {4}, w), mul(normalized(x, {2}, 1e-5), w)));
  CHECK(close(layer_norm(x, {4}, {}, {}, 0.1), normalized(x, {2}, 0.1)));
  CHECK(close(layer_norm(x, {4}, {}), normalized(x, {2}, 1e-5)));
  CHECK(close(layer_norm(x, {4}, x[{0, 0}]), mul(normalized(x, {2}, 1e-5), x.select(0, 0).select(0, 0))));

  const Tensor groups = view(normalized(view(x, {2, 3, 8}), {2}, 0.1), {2, 6, 4});
  const Tensor group = scaled(groups, unsqueeze(cw, 1), unsqueeze(cb, 1));
  CHECK(close(group_norm(x, 3, {.weight = cw, .bias = cb, .eps = 0.1}), group));
  CHECK(close(group_norm(x, 3, cw, cb, 0.1), group));
  CHECK(close(group_norm(x, 3, {.eps = 0.1}), groups));
  CHECK(close(group_norm(x, 3, {}, {}, 0.1), groups));

  const Tensor root = div(x, sqrt(add(mean(mul(x, x), {2}, {.keepdim = true}), 0.1)));
  CHECK(close(rms_norm(x, 4, {.weight = w, .eps = 0.1}), mul(root, w)));
  CHECK(close(rms_norm(x, 4, w, 0.1), mul(root, w)));
  CHECK(close(rms_norm(x, 4, {.eps = 0.1}), root));
  CHECK(close(rms_norm(x, 4, {}, 0.1), root));
  Parameter weight = numbers(4);
  rms_norm(x, 4, weight).sum().backward();
  CHECK(weight.grad().shape() == Shape{4});
}

TEST_CASE("layer_norm, group_norm, rms_norm, instance_norm: values") {
  const Tensor x = numbers({2, 6, 4}), w = numbers(4), b = numbers(4, 0.8);
  CHECK(close(layer_norm(x, 4, {.weight = w, .bias = b}), add(mul(normalized(x, {2}, 1e-5), w), b)));
  CHECK(close(layer_norm(transpose(x, 1, 2), {4, 6}), normalized(transpose(x, 1, 2), {1, 2}, 1e-5)));
  CHECK(close(group_norm(x, 3), view(normalized(view(x, {2, 3, 8}), {2}, 1e-5), {2, 6, 4})));
  CHECK(close(instance_norm(x), normalized(x, {2}, 1e-5)));
  CHECK(close(rms_norm(x, 4, {.weight = w, .eps = 1e-3}),
              mul(div(x, sqrt(add(mean(mul(x, x), {2}, {.keepdim = true}), 1e-3))), w)));
}

TEST_CASE("norms: gradients of first and second order") {
  const std::vector<Tensor> channels{leaf({3, 2, 2, 2}), leaf(2, 0.9), leaf(2, 0.1)},
      last{channels_last_leaf({3, 2, 2, 2}), leaf(2, 0.9), leaf(2, 0.1)};
  const auto training = [](const Tensor& x, const Tensor& w, const Tensor& b) {
    return batch_norm(x, {}, {}, w, b, {.training = true});
  };
  check_gradients(training, channels);
  check_gradients(training, last);
  const Tensor m = numbers(2), v = add(abs(numbers(2)), 0.5);
  check_gradients([&](const Tensor& x, const Tensor& w, const Tensor& b) { return batch_norm(x, m, v, w, b); },
                  channels);
  check_gradients(
      [](const Tensor& x, const Tensor& w, const Tensor& b) {
        return layer_norm(x, {2, 3}, {.weight = w, .bias = b});
      },
      {leaf({2, 2, 3}), leaf({2, 3}, 0.9), leaf({2, 3}, 0.1)});
  check_gradients(
      [](const Tensor& x, const Tensor& w, const Tensor& b) { return group_norm(x, 2, {.weight = w, .bias = b}); },
      {leaf({2, 4, 3}), leaf(4, 0.9), leaf(4, 0.1)});
  check_gradients([](const Tensor& x, const Tensor& w) { return rms_norm(x, 3, {.weight = w}); },
                  {leaf({2, 3}), leaf(3, 0.9)});
  check_gradients([](const Tensor& x, const Tensor& w) { return instance_norm(x, {}, {}, w); },
                  {leaf({2, 2, 4}), leaf(2, 0.9)});
}

TEST_CASE("BI-107 BI-133 batch_norm of too little") {
  const Tensor m = zeros(3), v = ones(3);
  CHECK(refuses(
      [&] {
        batch_norm(zeros({1, 3}), m, v, {}, {}, {.training = true});
      },
      "more than 1 value per channel", "(1, 3)"));
  CHECK(refuses(
      [&] {
        batch_norm(zeros({0, 3, 2}), m, v, {}, {}, {.training = true});
      },
      "more than 1 value per channel"));
  CHECK(refuses([&] { batch_norm(zeros({4, 0}), zeros(0), ones(0), {}, {}, {.training = true}); }, "[batch_norm]"));
  CHECK(batch_norm(zeros({0, 3, 2}), m, v).shape() == Shape{0, 3, 2});
  CHECK(batch_norm(zeros({4, 0}), zeros(0), ones(0)).shape() == Shape{4, 0});
  CHECK(close(m, zeros(3)));
}

TEST_CASE("BI-108 layer_norm of nothing") {
  Tensor w = ones(4).requires_grad_();
  layer_norm(zeros({0, 4}), 4, {.weight = w}).backward(zeros({0, 4}));
  CHECK(close(w.grad(), zeros(4)));
  CHECK(layer_norm(zeros({3, 0}), 0).shape() == Shape{3, 0});
}

TEST_CASE("layer_norm and rms_norm of nothing, in any layout") {
  for (const Shape& shape : {Shape{0, 4}, Shape{3, 0}, Shape{0, 4, 6}})
    for (const bool rms : {false, true}) {
      const Tensor leaf = zeros(shape).requires_grad_(), x = transpose(leaf, 0, 1);
      for (const Tensor& operand : {leaf, x}) {
        const int64_t width = operand.shape().back();
        const Tensor weight = ones({width}).requires_grad_();
        const Tensor y =
            rms ? rms_norm(operand, width, {.weight = weight}) : layer_norm(operand, width, {.weight = weight});
        CHECK(y.shape() == operand.shape());
        sum(y).backward();  // dy is expanded
        CHECK(weight.grad().shape() == weight.shape());
        CHECK(sum(abs(weight.grad())).item() == 0);
      }
      CHECK(leaf.grad().shape() == shape);
    }
}

TEST_CASE("BI-134 BI-135 BI-136 arguments of norms") {
  const Tensor x = zeros({2, 4, 3}), m = zeros(4), v = ones(4);
  CHECK(refuses([&] { batch_norm(x, zeros(3), v); }, "running_mean should contain 4 elements not 3"));
  CHECK(refuses([&] { batch_norm(x, m, zeros(5)); }, "running_var should contain 4 elements not 5"));
  CHECK(refuses([&] { batch_norm(x, m, v, ones(3)); }, "weight should contain 4 elements not 3"));
  CHECK(refuses([&] { batch_norm(x, {}, {}); }, "running_mean"));
  CHECK(refuses([&] { batch_norm(x, m, v, {}, {}, {.eps = std::nan("")}); }, "eps"));
  CHECK(refuses([&] { layer_norm(x, {4, 4}); }, "(4, 4)", "(2, 4, 3)"));
  CHECK(refuses([&] { layer_norm(x, 3, {.weight = ones(4)}); }, "weight", "(3,)"));
  CHECK(refuses([&] { layer_norm(x, Shape{}); }, "normalized_shape"));
  CHECK(refuses([&] { group_norm(x, 3); }, "num_groups=3"));
  CHECK(refuses([&] { group_norm(x, 0); }, "num_groups=0"));
}

TEST_CASE("review 8: batch_norm of an empty input of one dimension, and of nothing without statistics") {
  Tensor w = ones(3).requires_grad_(), b = zeros(3).requires_grad_(), x = zeros(0).requires_grad_();
  const Tensor m = full(3, 0.5), v = full(3, 2.0);
  for (bool training : {true, false}) {
    const Tensor y = batch_norm(x, m, v, w, b, {.training = training});
    CHECK(y.shape() == Shape{0});
    sum(y).backward();
    CHECK((close(w.grad(), zeros(3)) && close(b.grad(), zeros(3)) && x.grad().shape() == Shape{0}));
    CHECK(batch_norm(x, {}, {}, {}, {}, {.training = training}).shape() == Shape{0});
    CHECK(batch_norm(zeros(0, {.dtype = kBFloat16}), m, v, w, b, {.training = training}).dtype() == kBFloat16);
  }
  w.set_grad({});
  sum(batch_norm(zeros({0, 3, 2}), {}, {}, w, b)).backward();
  CHECK(close(w.grad(), zeros(3)));
  CHECK((close(m, full(3, 0.5)) && close(v, full(3, 2.0))));
  CHECK(refuses([&] { batch_norm(zeros(3), m, v); }, "(N, C, ...)"));
}

TEST_CASE("batch_norm with fixed statistics: dx does not depend on x, whatever that is") {
  for (const Shape& shape : {Shape{4, 1}, Shape{1, 1, 2, 2}, Shape{4, 1, 9}}) {
    Tensor x = full(shape, 1.5, {.dtype = kFloat32});
    x.flatten().slice(0, 1, 3).copy_(tensor({INFINITY, NAN}));
    REQUIRE(isfinite(x).sum().item<int64_t>() == x.numel() - 2);
    x.requires_grad_();
    const Tensor mean = zeros({1}), var = ones({1}), weight = full({1}, 2.0);
    sum(batch_norm(x, mean, var, weight, {}, {.training = false})).backward();
    CHECK(allclose(x.grad(), full(shape, 2 / std::sqrt(1 + 1e-5), {.dtype = kFloat32})));
  }
}
