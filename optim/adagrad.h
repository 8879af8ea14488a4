#pragma once
#include "optimizer.h"

namespace tapir::inline v0::optim {

// clang-format off
TAPIR_OPTIMIZER_OPTIONS(Adagrad, (double, lr, 1e-2), (double, lr_decay, 0), (double, weight_decay, 0),
                        (double, initial_accumulator_value, 0), (double, eps, 1e-10), (bool, maximize, false),
                        (std::string, low_precision, "nearest"))
TAPIR_OPTIMIZER_OPTIONS(Adadelta, (double, lr, 1), (double, rho, 0.9), (double, eps, 1e-6), (double, weight_decay, 0),
                        (bool, maximize, false),
                        (std::string, low_precision, "nearest"))
TAPIR_OPTIMIZER_OPTIONS(RMSprop, (double, lr, 1e-2), (double, alpha, 0.99), (double, eps, 1e-8), (double, weight_decay, 0),
                        (double, momentum, 0), (bool, centered, false), (bool, maximize, false),
                        (std::string, low_precision, "nearest"))
// clang-format on

/// Each element's rate falls with the sum of its squared gradients. Duchi et al. 2011.
class Adagrad final : public Optimizer {
 public:
  TAPIR_OPTIMIZER_CONSTRUCTORS(Adagrad)
};
/// Steps as large as the parameter's recent changes, by running means of squares. Zeiler 2012, arXiv 1212.5701.
class Adadelta final : public Optimizer {
 public:
  TAPIR_OPTIMIZER_CONSTRUCTORS(Adadelta)
};
/// Gradients over the root of their running mean square (centered: their variance). Tieleman and Hinton 2012; Graves 2013,
/// arXiv 1308.0850.
class RMSprop final : public Optimizer {
 public:
  TAPIR_OPTIMIZER_CONSTRUCTORS(RMSprop)
};

}  // namespace tapir::inline v0::optim
