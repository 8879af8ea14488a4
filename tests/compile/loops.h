#pragma once
// The training loops and batches of models and samples, in small.
#include "steps.h"

namespace tapir_tests {

/// Images that differ from step to step, and labels.
inline auto images(int64_t n, int64_t channels, int64_t size, int64_t labels) {
  return [=](int i) {
    const Tensor x = sin(arange(0., double(n * channels * size * size), 1., {.dtype = kFloat32}) * (0.1 * (i + 1)));
    return std::pair(x.reshape({n, channels, size, size}), remainder(arange(n) + i, labels).to(kInt64));
  };
}
/// Tokens, and the ones that follow.
inline auto texts(int64_t n, int64_t length, int64_t words) {
  return [=](int i) {
    const Tensor all = remainder(arange(n * (length + 1)) * (2 * i + 3) + i, words).reshape({n, length + 1});
    return std::pair(all.narrow(1, 0, length), all.narrow(1, 1, length));
  };
}

inline Tensor tokens_loss(const Tensor& scores, const Tensor& y) {
  return cross_entropy(flatten(scores, 0, 1), flatten(y));
}
// Of a forward: what a net or a compiled one is called as.
constexpr auto classes = [](auto& net, const Tensor& x, const Tensor& y) { return cross_entropy(net(x), y); };
constexpr auto next_tokens = [](auto& net, const Tensor& x, const Tensor& y) { return tokens_loss(net(x), y); };
constexpr auto itself = [](auto& net, const Tensor& x, const Tensor&) { return mse_loss(net(x), x); };
constexpr auto classes_in_bfloat16 = [](auto& net, const Tensor& x, const Tensor& y) {
  amp::Autocast autocast(kCPU, {.dtype = kBFloat16});
  return cross_entropy(net(x.contiguous(kChannelsLast)), y, {.label_smoothing = 0.1});
};

/// The loop that most of them have, with a validation in between.
template <class Net, class Loss, class Forward, class Optimizer> struct Loop {
  Net& net;
  Loss loss_of;
  Forward forward;
  Optimizer opt;
  bool clip = false;
  Tensor operator()(const Tensor& x, const Tensor& y) {
    opt.zero_grad();
    Tensor loss = loss_of(forward, x, y);
    loss.backward();
    if (clip) optim::clip_grad_norm_(net.parameters(), 1.0);
    opt.step();
    return loss;
  }
  Tensor validate(const Tensor& x, const Tensor& y) {
    NoGrad guard;
    net.eval();
    Tensor loss = loss_of(forward, x, y);
    net.train();
    return loss;
  }
};
template <class Loss, class MakeOptimizer> auto with(Loss loss_of, bool clip, MakeOptimizer make_optimizer) {
  return [=](auto& net, Forwards& compiled) {
    auto forward = compiled(net);
    auto opt = make_optimizer(net.parameters());
    return Loop<std::remove_cvref_t<decltype(net)>, Loss, decltype(forward), decltype(opt)>{net, loss_of, forward,
                                                                                            std::move(opt), clip};
  };
}
template <class Loss> auto with(Loss loss_of, bool clip = false) {
  return with(loss_of, clip, [](const std::vector<Tensor>& p) { return optim::AdamW(p, {.lr = 3e-3}); });
}

}  // namespace tapir_tests
