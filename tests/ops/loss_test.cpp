#include <cmath>
#include <limits>

#include <tapir/core/recording.h>

#include "numbers.h"

using namespace tapir;
using namespace tapir_tests;

static Tensor labels(std::vector<int64_t> v) { return tensor(v); }

/// Mean cross entropy of (N, C) from its definition.
static double naive(const Tensor& x, const std::vector<int64_t>& t, const std::vector<double>& w, double s,
                    int64_t ignore) {
  const int64_t n = x.size(0), c = x.size(1);
  const auto v = x.to_vector<double>();
  double sum = 0, total = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (t[size_t(i)] == ignore) continue;
    double z = 0;
    for (int64_t k = 0; k < c; ++k) z += std::exp(v[size_t(i * c + k)]);
    const auto lp = [&](int64_t k) { return v[size_t(i * c + k)] - std::log(z); };
    sum -= (1 - s) * w[size_t(t[size_t(i)])] * lp(t[size_t(i)]);
    for (int64_t k = 0; k < c; ++k) sum -= s / double(c) * w[size_t(k)] * lp(k);
    total += w[size_t(t[size_t(i)])];
  }
  return sum / total;
}

TEST_CASE("cross_entropy: values against the definition") {
  const Tensor x = numbers({4, 3}), w = tensor(std::vector<double>{0.5, 2, 1});
  const std::vector<int64_t> t{2, 0, 1, 2};
  CHECK(cross_entropy(x, labels(t)).item() == Approx(naive(x, t, {1, 1, 1}, 0, -100)));
  CHECK(cross_entropy(x, labels(t), {.weight = w, .ignore_index = 0, .label_smoothing = 0.3}).item() ==
        Approx(naive(x, t, {0.5, 2, 1}, 0.3, 0)));
  CHECK(cross_entropy(x, to(labels(t), kInt32)).item() == Approx(naive(x, t, {1, 1, 1}, 0, -100)));
  CHECK(close(cross_entropy(x, to(one_hot(labels(t), 3), kFloat64)), cross_entropy(x, labels(t))));
  CHECK(close(cross_entropy(x[1], tensor(0)), cross_entropy(narrow(x, 0, 1, 1), labels({0}))));
  const Tensor image = permute(view(x, {1, 2, 2, 3}), {0, 3, 1, 2});
  CHECK(close(cross_entropy(image, view(labels(t), {1, 2, 2})), cross_entropy(x, labels(t))));
  CHECK(close(nll_loss(log_softmax(x, 1), labels(t), {.weight = w}), cross_entropy(x, labels(t), {.weight = w})));
}

TEST_CASE("cross_entropy: a small loss of large logits keeps its digits") {
  for (const Tensor& x : {tensor({1000.0, 990.0}, {.dtype = kFloat32}), tensor({1000.0, 990.0})})
    CHECK(cross_entropy(x, tensor(0)).item() == Approx(std::log1p(std::exp(-10.0))).epsilon(2e-3));
}

TEST_CASE("cross_entropy: gradients of large logits are those of the same logits near 0") {
  manual_seed(3);
  for (const Shape& shape : {Shape{5, 100}, Shape{5, 7}, Shape{3, 40, 6}})
    for (const double smoothing : {0.0, 0.2})
      for (const auto& [dtype, offset] :
           {std::pair{kFloat32, 1e3}, {kFloat32, 1e4}, {kFloat32, -1e6}, {kFloat64, 1e6}, {kFloat64, 1e12}}) {
        Shape places = shape;
        places.erase(1);
        const Tensor target = randint(shape[1], places), quarters = randint(-20, 21, shape).to(dtype) / 4;
        Tensor near = quarters.clone().requires_grad_(), far = (quarters + offset).requires_grad_();  // exactly
        cross_entropy(near, target, {.label_smoothing = smoothing}).backward();
        cross_entropy(far, target, {.label_smoothing = smoothing}).backward();
        INFO(tapir::format("{} {} {} {}", shape, dtype, smoothing, offset));
        CHECK(max(abs(far.grad() - near.grad())).item() < (dtype == kFloat32 ? 1e-6 : 1e-15));
      }
  Tensor equal = full({1, 3}, 3e38f).requires_grad_();
  cross_entropy(equal, tensor({int64_t(0)})).backward();
  CHECK(close(equal.grad(), tensor({{-2.f / 3, 1.f / 3, 1.f / 3}}), 1e-6));
}

TEST_CASE("huber_loss and smooth_l1_loss: second derivatives at 0 and at the knee") {
  Tensor x = tensor(std::vector<double>{0, 0.5, 1}), t = zeros_like(x);
  x.requires_grad_();
  const auto curve = [&](const Tensor& y) {
    const Tensor slope = grad({sum(y)}, {x}, {}, {.create_graph = true})[0];
    return grad({sum(slope)}, {x})[0].to_vector<double>();
  };
  CHECK(curve(huber_loss(x, t, {.reduction = Reduction::Sum})) == std::vector<double>{1, 1, 0});
  CHECK(curve(smooth_l1_loss(x, t, {.reduction = Reduction::Sum})) == std::vector<double>{1, 1, 0});
}

TEST_CASE("losses: gradients of first and second order") {
  const Tensor t = labels({2, 0, 1, 2}), w = tensor(std::vector<double>{0.5, 2, 1});
  for (const Reduction r : {Reduction::None, Reduction::Mean, Reduction::Sum}) {
    check_gradients(
        [&](const Tensor& x) {
          return cross_entropy(x, t, {.weight = w, .reduction = r, .ignore_index = 0, .label_smoothing = 0.2});
        },
        {leaf({4, 3})});
    check_gradients([&](const Tensor& x) { return nll_loss(x, t, {.weight = w, .reduction = r, .ignore_index = 1}); },
                    {leaf({4, 3})});
    check_gradients([&](const Tensor& a, const Tensor& b) { return mse_loss(a, b, {.reduction = r}); },
                    {leaf({4, 3}), leaf({1, 3}, 0.8)});
    check_gradients([&](const Tensor& a, const Tensor& b) { return l1_loss(a, b, {.reduction = r}); },
                    {leaf({4, 3}), leaf({4, 3}, 0.81)});
    check_gradients(
        [&](const Tensor& a, const Tensor& b) {
          return binary_cross_entropy_with_logits(a, b, {.weight = w, .reduction = r, .pos_weight = w});
        },
        {leaf({4, 3}), leaf({4, 3}, 0.8)});
  }
  for (const Reduction r : {Reduction::None, Reduction::Mean, Reduction::Sum})
    for (const int64_t chunk : {0, 3})
      check_gradients(
          [&](const Tensor& x, const Tensor& head, const Tensor& bias) {
            return linear_cross_entropy(x, head, t,
                                        {.linear_bias = bias,
                                         .weight = w,
                                         .reduction = r,
                                         .ignore_index = 0,
                                         .label_smoothing = 0.2,
                                         .chunk_size = chunk});
          },
          {leaf({4, 2}), leaf({3, 2}, 0.8), leaf({3}, 0.6)});
  check_gradients([&](const Tensor& x, const Tensor& p) { return cross_entropy(x, p, {.label_smoothing = 0.1}); },
                  {leaf({2, 3, 2}), leaf({2, 3, 2}, 0.8)});
}

TEST_CASE("linear_cross_entropy: what cross_entropy makes of linear, chunk by chunk") {
  manual_seed(3);
  for (const Reduction r : {Reduction::None, Reduction::Mean, Reduction::Sum})
    for (const int64_t chunk : {0, 1, 4, 7, 100}) {
      INFO("chunk " << chunk << " reduction " << int(r));
      Tensor x = randn({2, 5, 6}), head = randn({11, 6}), bias = randn({11});
      const Tensor t = tensor({3, 10, -100, 0, 7, 2, 2, -100, 1, 9}).reshape({2, 5}), w = rand({11}) + 0.5;
      std::vector<std::vector<Tensor>> results;
      for (const bool chunked : {true, false}) {
        for (Tensor* leaf : {&x, &head, &bias}) *leaf = leaf->detach().requires_grad_();
        Tensor y;
        if (chunked)
          y = linear_cross_entropy(
              x, head, t,
              {.linear_bias = bias, .weight = w, .reduction = r, .label_smoothing = 0.1, .chunk_size = chunk});
        else
          y = cross_entropy(transpose(linear(x, head, bias), 1, 2), t,
                            {.weight = w, .reduction = r, .label_smoothing = 0.1});
        (y * arange(1, 1 + y.numel()).reshape(y.shape())).sum().backward();
        results.push_back({y.detach(), x.grad(), head.grad(), bias.grad()});
      }
      for (size_t i = 0; i < 4; ++i) CHECK(allclose(results[0][i], results[1][i], {.rtol = 1e-5, .atol = 1e-5}));
    }
  // Only what wants a gradient gets one; none are made where nobody does.
  Tensor x = randn({4, 6}), head = randn({11, 6}).requires_grad_();
  const Tensor t = labels({1, 2, 3, 10});
  linear_cross_entropy(x, head, t).backward();
  CHECK(!x.grad().defined());
  CHECK(head.grad().shape() == head.shape());
  CHECK(!linear_cross_entropy(x, head.detach(), t).requires_grad());
  // A mean over many rows of 16 bits: no gradient is lost below the smallest number.
  Tensor half = (randn({20000, 4}) * 0.1).to(kFloat16).requires_grad_();
  const Tensor few = (randn({3, 4}) * 0.1).to(kFloat16).requires_grad_(), many = randint(3, {20000});
  (linear_cross_entropy(half, few, many) * 1024).backward();
  const Tensor exact = few.detach().to(kFloat64).requires_grad_();
  cross_entropy(linear(half.detach().to(kFloat64), exact), many).backward();
  CHECK(allclose(few.grad().to(kFloat64) / 1024, exact.grad(), {.rtol = 4e-3, .atol = 1e-6}));
}

TEST_CASE("linear_cross_entropy: float16 holds gradients of many rows, of weights and scales of any size") {
  manual_seed(4);
  const auto check = [](const Tensor& x, const Tensor& head, const Tensor& bias, const Tensor& t, double scale,
                        LinearCrossEntropyOptions o) {
    std::vector<Tensor> grads[2];
    for (const bool chunked : {true, false}) {
      const DType dtype = chunked ? kFloat16 : kFloat64;
      const Tensor a = x.to(dtype).requires_grad_(), b = head.to(dtype).requires_grad_(),
                   c = bias.to(dtype).requires_grad_();
      o.linear_bias = c;
      Tensor y = chunked ? linear_cross_entropy(a, b, t, o)
                         : cross_entropy(linear(a, b, c), t, {.weight = o.weight, .reduction = o.reduction});
      if (chunked && o.reduction == Reduction::Sum) y = y.to(kFloat32);
      mul(y, chunked ? scale : 1).backward();
      for (const Tensor& leaf : {a, b, c}) grads[chunked].push_back(leaf.grad().to(kFloat64) / (chunked ? scale : 1));
    }
    for (size_t i = 0; i < 3; ++i) {
      const double most = max(abs(grads[0][i])).item();
      CHECK(max(abs(grads[0][i] - grads[1][i])).item() <= 0.01 * most + 1e-12);
    }
  };
  const Tensor small = randn({40, 8}), head = randn({11, 8}) * 0.2, bias = randn({11}) * 0.1, t = randint(11, {40});
  check(ones({200000, 8}), zeros({3, 8}), zeros({3}), zeros({200000}, {.dtype = kInt64}), 1, {});
  check(ones({200000, 8}), zeros({3, 8}), zeros({3}), zeros({200000}, {.dtype = kInt64}), 1, {.chunk_size = 70000});
  for (const double weight : {1e5, 1e-8}) check(small, head, bias, t, 64, {.weight = full({11}, weight)});
  check(small, head, bias, t, 4096, {.chunk_size = 7});
  // GradScaler's first scale, of losses that are small: the factor is no float16.
  const Tensor sure = randn({2, 8}) * 0.01;
  check(sure, head * 0.01, bias, narrow(t, 0, 0, 2), 20000, {.reduction = Reduction::Sum});
}

TEST_CASE("linear_cross_entropy: without gradients none are made") {
  const Tensor x = randn({6, 4}).requires_grad_(), head = randn({5, 4}).requires_grad_(), t = randint(5, {6});
  const auto gradients = [&] {
    profiler::start_recording({.profile_memory = false});
    linear_cross_entropy(x, head, t);
    int64_t n = 0;
    for (const profiler::ThreadRecording& thread : profiler::stop_recording().threads)
      for (const profiler::Event& event : thread.events)
        n += std::string(event.name).find("cross_entropy_backward") != std::string::npos;
    return n;
  };
  CHECK(gradients() > 0);
  NoGrad guard;
  CHECK(gradients() == 0);
}

TEST_CASE("linear_cross_entropy: ignored rows only, none, and what is refused") {
  Tensor x = randn({3, 2}).requires_grad_(), head = randn({5, 2}).requires_grad_();
  const Tensor y = linear_cross_entropy(x, head, labels({-100, -100, -100}), {.chunk_size = 2});
  CHECK(std::isnan(y.item()));
  y.backward();
  CHECK(max(abs(x.grad())).item() == 0);
  CHECK(max(abs(head.grad())).item() == 0);
  const Tensor none = linear_cross_entropy(zeros({0, 2}).requires_grad_(), head, zeros({0}, {.dtype = kInt64}),
                                           {.reduction = Reduction::Sum});
  none.backward();
  const Tensor bias = zeros({5}).requires_grad_();
  linear_cross_entropy(zeros({0, 2}), head, zeros({0}, {.dtype = kInt64}), {.linear_bias = bias}).backward();
  CHECK(bias.grad().shape() == Shape{5});
  CHECK(none.item() == 0);
  CHECK(refuses(
      [&] {
        linear_cross_entropy(x, head, labels({0, 1, 5}), {.chunk_size = 2});
      },
      "target 5", "position 0 of the rows from 2 on", "5 classes"));
  CHECK(refuses(
      [&] {
        linear_cross_entropy(x, head, labels({0, 1, 7}), {.weight = ones({5})});
      },
      "target 7", "[linear_cross_entropy]"));
  CHECK(refuses([&] { linear_cross_entropy(x, head, labels({0, 1})); }, "(3,)", "(2,)"));
  CHECK(refuses([&] { linear_cross_entropy(x, head, zeros({3})); }, "integer dtype"));
  CHECK(refuses([&] { linear_cross_entropy(x, zeros({5, 3}), labels({0, 1, 2})); }, "(3, 2)", "(5, 3)"));
  CHECK(refuses([&] { linear_cross_entropy(x, head.to(kFloat64), labels({0, 1, 2})); }, "float64"));
  CHECK(refuses(
      [&] {
        linear_cross_entropy(x, head, labels({0, 1, 2}), {.linear_bias = zeros({4})});
      },
      "linear_bias", "(4,)"));
  CHECK(refuses([&] { linear_cross_entropy(x, head, labels({0, 1, 2}), {.chunk_size = -1}); }, "chunk_size", "-1"));
  CHECK(refuses([&] { linear_cross_entropy(x, head, labels({0, 1, 2}), {.label_smoothing = 2}); }, "label_smoothing"));
}

TEST_CASE("binary_cross_entropy_with_logits: no overflow, the gradient at 0") {
  Tensor x = tensor(std::vector<double>{0, 1000, -1000}).requires_grad_();
  const Tensor y =
      binary_cross_entropy_with_logits(x, tensor(std::vector<double>{1, 1, 1}), {.reduction = Reduction::None});
  CHECK(close(y, tensor(std::vector<double>{std::log(2.0), 0, 1000})));
  y.backward(ones(3, {.dtype = kFloat64}));
  CHECK(close(x.grad(), tensor(std::vector<double>{-0.5, 0, -1})));
}

TEST_CASE("BI-113 BI-149 cross_entropy of no samples, or of ignored ones only") {
  Tensor x = leaf({2, 3});
  const Tensor mean = cross_entropy(x, labels({-100, -100}));
  CHECK(std::isnan(mean.item()));
  mean.backward();
  CHECK(close(x.grad(), zeros({2, 3})));
  CHECK(cross_entropy(x, labels({-100, -100}), {.reduction = Reduction::Sum}).item() == 0);
  CHECK(std::isnan(cross_entropy(zeros({0, 3}), zeros(0, {.dtype = kInt64})).item()));
  CHECK(cross_entropy(zeros({0, 3}), zeros(0, {.dtype = kInt64}), {.reduction = Reduction::Sum}).item() == 0);
  Tensor g = leaf({2, 3});
  const Tensor dx = grad({cross_entropy(g, labels({-100, -100}))}, {g}, {}, {.create_graph = true})[0];
  CHECK(close(dx, zeros({2, 3})));
}

TEST_CASE("BI-147 BI-148 labels out of range or of another shape") {
  const Tensor x = zeros({2, 3});
  CHECK(refuses([&] { cross_entropy(x, labels({1, 3})); }, "[cross_entropy]", "target 3", "position 1", "3 classes"));
  CHECK(refuses([&] { cross_entropy(x, labels({-1, 0})); }, "target -1"));
  CHECK(refuses([&] { nll_loss(x, labels({0, 5})); }, "[nll_loss]", "target 5", "position 1"));
  CHECK(refuses([&] { cross_entropy(x, labels({0, 1, 2})); }, "(2,)", "(3,)"));
  CHECK(refuses([&] { cross_entropy(x, zeros(2)); }, "integer"));
  CHECK(refuses([&] { nll_loss(x, zeros({2})); }, "integer"));
}

TEST_CASE("BI-150 BI-151 BI-154 options of losses") {
  const Tensor x = zeros({2, 3}), t = labels({0, 1});
  CHECK(refuses([&] { cross_entropy(x, t, {.label_smoothing = 1.5}); }, "1.5"));
  CHECK(refuses([&] { cross_entropy(x, t, {.label_smoothing = std::nan("")}); }, "label_smoothing"));
  CHECK(refuses([&] { cross_entropy(x, t, {.weight = ones(2)}); }, "3 classes", "(2,)"));
  CHECK(refuses([&] { cross_entropy(x, zeros({3, 2})); }, "(2, 3)"));
  CHECK(refuses([&] { cross_entropy(x, zeros({2, 3}), {.ignore_index = 1}); }, "ignore_index"));
  CHECK(refuses([&] { mse_loss(zeros({4, 1}), zeros(4)); }, "(4, 1)", "(4,)"));
  CHECK(mse_loss(zeros({3, 4}), ones({1, 4})).item() == 1);
  CHECK(refuses([&] { binary_cross_entropy_with_logits(zeros({2, 3}), zeros({3})); }, "(2, 3)", "(3,)"));
}
