#include <tapir/tapir.h>

#include "../ops/helpers.h"

namespace {
Tensor block(const Tensor& x) { return tanh(x * x + sin(x)); }
}  // namespace

TEST_CASE("checkpoint computes the same value and gradients, first and second") {
  const Tensor x = leaf({0.5, -1, 2});
  int runs = 0;
  const auto f = [&](const Tensor& x) { return ++runs, block(x); };
  const Tensor y = checkpoint(f, x * 1);
  CHECK(values(y) == values(block(x)));
  CHECK(runs == 1);
  CHECK(values(grad({sum(y)}, {x})[0]) == values(grad({sum(block(x))}, {x})[0]));
  CHECK(runs == 2);
  CHECK(gradcheck([](const Tensor& x) { return checkpoint(block, x * 1); }, {x}));
  CHECK(gradgradcheck([](const Tensor& x) { return checkpoint(block, x * 1); }, {x}));
}

TEST_CASE("checkpoint: parameters inside get their gradients; the graph may be kept") {
  nn::Linear layer(3, 2);
  const Tensor x = randn({4, 3});
  sum(square(layer(x))).backward();
  const Tensor want = layer.weight.grad().clone();
  layer.zero_grad();
  const Tensor y = sum(checkpoint([&](const Tensor& x) { return square(layer(x)); }, x));
  y.backward({}, true);
  CHECK(layer.weight.grad().to_vector<float>() == want.to_vector<float>());
  y.backward();
  CHECK(layer.weight.grad().to_vector<float>() == (want * 2).to_vector<float>());
}

TEST_CASE("checkpoint draws the same random numbers again, and leaves the generator where it was") {
  manual_seed(3);
  const Tensor x = ones({1000}, {.dtype = kFloat64}).requires_grad_();
  const Tensor y = checkpoint([](const Tensor& x) { return dropout(exp(x), 0.5); }, x);
  const uint64_t offset = default_generator().offset();
  randn({10});
  sum(y).backward();
  CHECK(values(x.grad()) == values(y.detach()));  // d(m e^x) = m e^x
  CHECK(default_generator().offset() == offset + 3);
}

TEST_CASE("checkpoints nest, and drop what lies between them") {
  const Tensor x = leaf({0.3, 0.6});
  int runs = 0;
  const auto inner = [&](const Tensor& x) { return ++runs, block(x); };
  const auto outer = [&](const Tensor& x) { return checkpoint(inner, checkpoint(inner, x * 2)); };
  const Tensor y = checkpoint(outer, x * 1);
  CHECK(runs == 2);
  const Tensor g = grad({sum(y)}, {x})[0];
  const Tensor want = grad({sum(block(block(x * 2)))}, {x})[0];
  CHECK(values(g) == values(want));
  CHECK(runs <= 8);
}

TEST_CASE("checkpoint keeps memory low") {
  const int64_t n = 1 << 20;
  const auto deep = [](Tensor x) {
    for (int i = 0; i < 20; ++i) x = sin(x);
    return x;
  };
  const auto held = [&](auto f) {
    const Tensor x = ones({n}).requires_grad_();
    const int64_t before = memory_stats().allocated;
    const Tensor y = f(x * 1);
    return memory_stats().allocated - before;
  };
  const int64_t all = held(deep), few = held([&](const Tensor&x) { return checkpoint(deep, x); });
  CHECK(all >= 20 * 4 * n);
  CHECK(few <= 3 * 4 * n);
}

TEST_CASE("BI-185 checkpoint: a function that computes something else the second time is an error") {
  const Tensor x = leaf({1, 2});
  int runs = 0;
  const Tensor y = checkpoint([&](const Tensor& x) { return runs++ ? exp(x) : exp(sin(exp(x))); }, x * 1);
  CHECK(mentions(error_of([&] { sum(y).backward(); }), {"checkpoint", "second run"}));
}
