#pragma once
#include "optimizer.h"

namespace tapir::inline v0::optim {

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
};
/// Parameters with options of their own; see Note [Parameter groups].
struct SGDGroup {
  std::vector<Tensor> params;
  std::optional<double> lr = {}, momentum = {}, dampening = {}, weight_decay = {};
  std::optional<bool> nesterov = {}, maximize = {};
};

/// Stochastic gradient descent with momentum, as PyTorch defines it: v = momentum v + (1 - dampening) g, p -= lr v; with nesterov
/// p -= lr (g + momentum v). Sutskever et al. 2013.
class SGD final : public Optimizer {
 public:
  explicit SGD(std::vector<Tensor> params, const SGDOptions& options = {})
      : SGD(std::vector<SGDGroup>{{std::move(params)}}, options) {}
  explicit SGD(std::vector<SGDGroup> groups, const SGDOptions& options = {});

 private:
  std::array<const char*, 3> state_names(const OptimizerParams& o) const override {
    return {o.beta1 != 0 ? "momentum_buffer" : nullptr, nullptr, nullptr};
  }
};

}  // namespace tapir::inline v0::optim
