#pragma once
#include "optimizer.h"

namespace tapir::inline v0::optim {

// clang-format off
TAPIR_OPTIMIZER_OPTIONS(SGD, (double, lr, 1e-3), (double, momentum, 0), (double, dampening, 0), (double, weight_decay, 0),
                        (bool, nesterov, false), (bool, maximize, false),
                        (std::string, low_precision, "nearest"))
TAPIR_OPTIMIZER_OPTIONS(ASGD, (double, lr, 1e-2), (double, lambd, 1e-4), (double, alpha, 0.75), (double, t0, 1e6),
                        (double, weight_decay, 0), (bool, maximize, false),
                        (std::string, low_precision, "nearest"))
// clang-format on

/// Stochastic gradient descent with momentum, as PyTorch defines it: v = momentum v + (1 - dampening) g, p -= lr v; with nesterov
/// p -= lr (g + momentum v). Sutskever et al. 2013.
class SGD final : public Optimizer {
 public:
  TAPIR_OPTIMIZER_CONSTRUCTORS(SGD)
};
/// Averaged SGD: rate lr / (1 + lambd lr t)^alpha, and from step t0 on the running mean of the parameters in the state "ax".
/// Polyak and Juditsky 1992.
class ASGD final : public Optimizer {
 public:
  TAPIR_OPTIMIZER_CONSTRUCTORS(ASGD)
};

}  // namespace tapir::inline v0::optim
