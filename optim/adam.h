#pragma once
#include "optimizer.h"

namespace tapir::inline v0::optim {

// clang-format off
TAPIR_OPTIMIZER_OPTIONS(Adam, (double, lr, 1e-3), (Pair, betas, {0.9, 0.999}), (double, eps, 1e-8), (double, weight_decay, 0),
                        (bool, amsgrad, false), (bool, maximize, false), (bool, decoupled_weight_decay, false),
                        (std::string, low_precision, "nearest"))
TAPIR_OPTIMIZER_OPTIONS(AdamW, (double, lr, 1e-3), (Pair, betas, {0.9, 0.999}), (double, eps, 1e-8), (double, weight_decay, 1e-2),
                        (bool, amsgrad, false), (bool, maximize, false),
                        (std::string, low_precision, "nearest"))
TAPIR_OPTIMIZER_OPTIONS(Adamax, (double, lr, 2e-3), (Pair, betas, {0.9, 0.999}), (double, eps, 1e-8), (double, weight_decay, 0),
                        (bool, maximize, false),
                        (std::string, low_precision, "nearest"))
TAPIR_OPTIMIZER_OPTIONS(NAdam, (double, lr, 2e-3), (Pair, betas, {0.9, 0.999}), (double, eps, 1e-8), (double, weight_decay, 0),
                        (double, momentum_decay, 4e-3), (bool, decoupled_weight_decay, false), (bool, maximize, false),
                        (std::string, low_precision, "nearest"))
TAPIR_OPTIMIZER_OPTIONS(RAdam, (double, lr, 1e-3), (Pair, betas, {0.9, 0.999}), (double, eps, 1e-8), (double, weight_decay, 0),
                        (bool, decoupled_weight_decay, false), (bool, maximize, false),
                        (std::string, low_precision, "nearest"))
// clang-format on

/// Adam: Kingma and Ba 2014, arXiv 1412.6980; weight decay is added to the gradient. amsgrad: Reddi et al. 2018.
class Adam final : public Optimizer {
 public:
  TAPIR_OPTIMIZER_CONSTRUCTORS(Adam)
};
/// AdamW: Loshchilov and Hutter 2017, arXiv 1711.05101; weight decay shrinks the parameters by lr * weight_decay.
class AdamW final : public Optimizer {
 public:
  TAPIR_OPTIMIZER_CONSTRUCTORS(AdamW)
};
/// Adam with the largest (decayed) gradient in place of the second moment. Kingma and Ba 2014.
class Adamax final : public Optimizer {
 public:
  TAPIR_OPTIMIZER_CONSTRUCTORS(Adamax)
};
/// Adam with Nesterov momentum. Dozat 2016.
class NAdam final : public Optimizer {
 public:
  TAPIR_OPTIMIZER_CONSTRUCTORS(NAdam)
};
/// Adam whose adaptive rate begins when its variance can be estimated. Liu et al. 2019, arXiv 1908.03265.
class RAdam final : public Optimizer {
 public:
  TAPIR_OPTIMIZER_CONSTRUCTORS(RAdam)
};

}  // namespace tapir::inline v0::optim
