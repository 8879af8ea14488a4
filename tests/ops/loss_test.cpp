#include <cmath>
#include <limits>

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
  check_gradients([&](const Tensor& x, const Tensor& p) { return cross_entropy(x, p, {.label_smoothing = 0.1}); },
                  {leaf({2, 3, 2}), leaf({2, 3, 2}, 0.8)});
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
