// In deterministic mode what is replayed on the CPU has the bits of eager code, where without that mode it agrees within rounding.
#include <tapir/tapir.h>

#include "../same_bits.h"
#include "catch.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

/// f(x) is replayed, to eager code's bits, with and without what else changes a program.
template <class F> void check_bits(const Tensor& x, F f) {
  const ScopedMode<bool> deterministic(modes.deterministic, true);
  const Tensor expected = f(x);
  for (CompileOptions o :
       {CompileOptions{}, CompileOptions{.max_autotune = true}, CompileOptions{.memory_budget = 0.9}}) {
    o.verify = 0;
    auto fast = compile(f, o);
    for (int i = 0; i < 4; ++i) CHECK(same_bits(fast(x), expected));
    CHECK(fast.programs() == 1);
  }
}

}  // namespace

TEST_CASE("deterministic: a compiled call has eager code's bits: products that are written transposed") {
  manual_seed(3);
  for (const DType dtype : {kFloat32, kBFloat16, kFloat64}) {
    INFO(name_of(dtype));
    const Tensor x = randn({64, 8192}).to(dtype), w = randn({8192, 16}).to(dtype), b = randn({16}).to(dtype);
    const Tensor tall = w.t().contiguous();
    check_bits(x, [&](const Tensor& x) { return matmul(x, w).t().contiguous(); });
    check_bits(x, [&](const Tensor& x) { return linear(x, tall, b).t().contiguous(); });
    check_bits(x, [&](const Tensor& x) { return relu(linear(x, tall, b)).t().contiguous(); });
  }
}

TEST_CASE(
    "deterministic: a compiled call has eager code's bits: convolutions, batch norm in evaluation, pooling, sums of "
    "rows") {
  manual_seed(4);
  nn::Sequential net(nn::Conv2d(3, 8, 3, {.padding = 1}), nn::BatchNorm2d(8), nn::ReLU(), nn::MaxPool2d(2));
  const Tensor x = randn({4, 3, 16, 16});
  for (int i = 0; i < 3; ++i) net(x);  // statistics
  net.eval();
  check_bits(x, [&](const Tensor& x) {
    const NoGrad off;
    return net(x);
  });
  check_bits(x, [&](const Tensor& x) { return max_pool2d(relu(x - 0.5), 2); });
  check_bits(randn({64, 1000}),
             [](const Tensor& x) { return softmax(tanh(x) * 2, -1) + mean(x * x, -1, {.keepdim = true}); });
}

TEST_CASE("deterministic: a compiled training step has eager code's bits") {
  const ScopedMode<bool> deterministic(modes.deterministic, true);
  const Tensor x = sin(arange(32. * 3 * 64) * 0.37).reshape({32, 3, 8, 8}), y = arange(32) % 4;
  const auto train = [&](bool compiled) {
    manual_seed(5);
    nn::Sequential net(nn::Conv2d(3, 8, 3, {.padding = 1}), nn::BatchNorm2d(8), nn::ReLU(), nn::MaxPool2d(2),
                       nn::Flatten(), nn::Linear(128, 64), nn::LayerNorm(64), nn::GELU(), nn::Dropout(0.1),
                       nn::Linear(64, 4));
    optim::AdamW opt(net.parameters(), {.lr = 1e-2});
    auto step = compile(
        [&](const Tensor& x, const Tensor& y) {
          opt.zero_grad();
          const Tensor loss = cross_entropy(net(x), y);
          loss.backward();
          opt.step();
          return loss;
        },
        {.enabled = compiled, .verify = 0});
    for (int i = 0; i < 12; ++i) step(x, y);
    CHECK(step.programs() == int(compiled));
    return net.state_dict();
  };
  const StateDict eager = train(false), fast = train(true);
  for (const auto& [name, t] : eager) {
    INFO(name);
    CHECK(same_bits(t, fast.at(name)));
  }
}
