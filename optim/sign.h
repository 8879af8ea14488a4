#pragma once
#include "optimizer.h"

namespace tapir::inline v0::optim {

// clang-format off
TAPIR_OPTIMIZER_OPTIONS(Rprop, (double, lr, 1e-2), (Pair, etas, {0.5, 1.2}), (Pair, step_sizes, {1e-6, 50}), (bool, maximize, false),
                        (std::string, low_precision, "nearest"))
TAPIR_OPTIMIZER_OPTIONS(Lion, (double, lr, 1e-4), (Pair, betas, {0.9, 0.99}), (double, weight_decay, 0), (bool, maximize, false),
                        (std::string, low_precision, "nearest"))
// clang-format on

/// Step sizes of each element's own, by the sign of its gradient: they grow by etas[1] while it stays and shrink by etas[0] when it
/// turns. For full batches. Riedmiller and Braun 1993.
class Rprop final : public Optimizer {
 public:
  TAPIR_OPTIMIZER_CONSTRUCTORS(Rprop)
};
/// The sign of a momentum; weight decay is decoupled. Chen et al. 2023, arXiv 2302.06675.
class Lion final : public Optimizer {
 public:
  TAPIR_OPTIMIZER_CONSTRUCTORS(Lion)
};

}  // namespace tapir::inline v0::optim
