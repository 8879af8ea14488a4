#pragma once
// Small nets and a training step.
#include <tapir/tapir.h>

namespace tapir_tests {
using namespace tapir;

struct ConvNet : nn::Module {
  nn::Conv2d conv{3, 6, 3, {.padding = 1}};
  nn::BatchNorm2d norm{6};
  nn::Conv2d deep{6, 4, 3, {.stride = 2}};
  nn::Linear fc{4 * 3 * 3, 5};
  nn::Dropout drop{0.0};
  Tensor forward(const Tensor& x) {
    auto h = max_pool2d(relu(norm(conv(x))), 2);
    return fc(drop(flatten(gelu(deep(h) * 2 + 1), 1)));
  }
  TAPIR_FIELDS(conv, norm, deep, fc, drop)
};

struct DropNet : nn::Module {
  nn::Linear a{8, 16}, b{16, 4};
  nn::Dropout drop{0.3};
  Tensor forward(const Tensor& x) { return b(drop(relu(a(x)))); }
  TAPIR_FIELDS(a, b, drop)
};
struct PoolNet : nn::Module {
  nn::Conv2d conv{3, 6, 3, {.padding = 1}};
  nn::BatchNorm2d norm{6};
  nn::Linear fc{6 * 4 * 4, 5};
  Tensor forward(const Tensor& x) { return fc(flatten(max_pool2d(relu(norm(conv(x))), 2), 1)); }
  TAPIR_FIELDS(conv, norm, fc)
};

/// The loss, detached.
template <class Net> Tensor training_step(Net& net, optim::Optimizer& opt, const Tensor& x, const Tensor& labels) {
  opt.zero_grad();
  Tensor loss = cross_entropy(net(x), labels);
  loss.backward();
  opt.step();
  return loss.detach();
}

}  // namespace tapir_tests
