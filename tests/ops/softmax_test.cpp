#include <limits>

#include "numbers.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE("softmax and log_softmax: values along any dimension and layout") {
  const Tensor x = numbers({3, 4, 5});
  for (int64_t dim : {0, 1, 2, -1}) {
    const Tensor e = exp(x), expected = div(e, sum(e, dim, {.keepdim = true}));
    CHECK(close(softmax(x, dim), expected));
    CHECK(close(exp(log_softmax(x, dim)), expected));
    CHECK(close(softmax(transpose(contiguous(transpose(x, 0, 2)), 0, 2), dim), expected));
  }
  CHECK(softmax(tensor({1, 2}), 0, {.dtype = kFloat64}).dtype() == kFloat64);
  CHECK(softmax(tensor(3.0), 0).item() == 1);
  const Tensor large = tensor(std::vector<double>{1000, 0, -std::numeric_limits<double>::infinity()});
  CHECK(close(softmax(large, 0), tensor(std::vector<double>{1, 0, 0})));
}

TEST_CASE("softmax and log_softmax: gradients of first and second order") {
  for (int64_t dim : {0, 1}) {
    check_gradients([dim](const Tensor& x) { return softmax(x, dim); }, {leaf({3, 4})});
    check_gradients([dim](const Tensor& x) { return log_softmax(x, dim); }, {leaf({3, 4})});
  }
}

TEST_CASE("softmax and log_softmax: gradients across long rows, whose tiles are not kept, are those along them") {
  const Tensor values = randn({300, 1100}), dy = randn({300, 1100});
  for (const bool log : {false, true}) {
    const auto gradient = [&](const Tensor& x, int64_t dim, const Tensor& g) {
      const Tensor at = x.clone().requires_grad_();
      (log ? log_softmax(at, dim) : softmax(at, dim)).backward(g);
      return at.grad();
    };
    const Tensor along = gradient(values, 1, dy),
                 across = gradient(transpose(values, 0, 1).contiguous(), 0, transpose(dy, 0, 1).contiguous());
    CHECK(abs(transpose(across, 0, 1) - along).max().item() < 1e-5 * abs(along).max().item() + 1e-7);
  }
}

TEST_CASE("softmax and cross entropy across long rows add as exactly as along them") {
  const Tensor x = randn({4096, 64}) * 0.01, exact = x.to(kFloat64);
  const auto error = [](const Tensor& got, const Tensor& wanted) {
    return (abs(got.to(kFloat64) - wanted) / abs(wanted)).max().item();
  };
  CHECK(error(softmax(x, 0), softmax(exact, 0)) < 8e-7);
  CHECK(error(log_softmax(x, 0), log_softmax(exact, 0)) < 1e-6);
  const auto gradient = [](const Tensor& values, const Tensor& dy) {
    const Tensor at = values.clone().requires_grad_();
    softmax(at, 0).backward(dy);
    return at.grad();
  };
  const Tensor dy = rand({4096, 64}) + 1;
  const Tensor got = gradient(x, dy), wanted = gradient(exact, dy.to(kFloat64));
  CHECK(abs(got.to(kFloat64) - wanted).max().item() < 6e-6 * abs(wanted).max().item());
  const Tensor images = x.view({1, 4096, 64}), labels = randint(0, 4096, {1, 64});
  const CrossEntropyOptions each{.reduction = Reduction::None, .label_smoothing = 0.1};
  CHECK(error(cross_entropy(images, labels, each), cross_entropy(images.to(kFloat64), labels, each)) < 1e-6);
}

TEST_CASE("BI-109 softmax of nothing") {
  CHECK(softmax(zeros({2, 0}), 1).shape() == Shape{2, 0});
  CHECK(log_softmax(zeros({0, 3}), 1).shape() == Shape{0, 3});
  CHECK(refuses([] { softmax(zeros({2, 3}), 2); }, "[softmax]", "2"));
  CHECK(refuses([] { softmax(tensor({1, 2}), 0); }, "int64"));
}
