#pragma once
#include "optimizer.h"

namespace tapir::inline v0::optim {

// adjust_lr_fn: "original" (sqrt(max(1, rows / columns))), "match_rms_adamw" (0.2 sqrt(max(rows, columns))), "spectral_unclamped"
// (sqrt(rows / columns)) multiply the rate.
// clang-format off
TAPIR_OPTIMIZER_OPTIONS(Muon, (double, lr, 1e-3), (double, weight_decay, 0.1), (double, momentum, 0.95), (bool, nesterov, true),
                        (Triple, ns_coefficients, {3.4445, -4.775, 2.0315}), (double, eps, 1e-7), (int64_t, ns_steps, 5),
                        (std::string, adjust_lr_fn, "original"))
TAPIR_OPTIMIZER_OPTIONS(Adafactor, (double, lr, 1e-2), (double, beta2_decay, -0.8), (OptionalPair, eps, {std::nullopt, 1e-3}),
                        (double, d, 1), (double, weight_decay, 0), (bool, maximize, false))
// clang-format on

/// The momentum of each matrix, made orthogonal by Newton-Schulz iterations in bfloat16. Matrices only: biases, norms and embeddings
/// are another optimizer's. Jordan et al. 2024; Liu et al. 2025, arXiv 2502.16982.
class Muon final : public Optimizer {
 public:
  TAPIR_OPTIMIZER_CONSTRUCTORS(Muon)

 private:
  void update(Group& group, const Batch& batch, const StepScale& scale) override;
};

/// Adam's second moment, of matrices as the product of a column and a row; steps relative to the parameter's size. eps: the first of
/// none is that of the group's dtype. Shazeer and Stern 2018, arXiv 1804.04235.
class Adafactor final : public Optimizer {
 public:
  TAPIR_OPTIMIZER_CONSTRUCTORS(Adafactor)

 private:
  void update(Group& group, const Batch& batch, const StepScale& scale) override;
  Tensor new_state(const Group& group, size_t k, const Tensor& p) const override;
};

}  // namespace tapir::inline v0::optim
