#pragma once
#include "loss.h"

namespace tapir::inline v0 {

// Losses whose input or target are probabilities, rates or signs.

struct KlDivOptions {
  Reduction reduction = Reduction::Mean;
  bool log_target = false;  // target holds log-probabilities
};
struct GaussianNllLossOptions {
  bool full = false;  // with the constant log(2 pi) / 2
  double eps = 1e-6;  // the least variance
  Reduction reduction = Reduction::Mean;
};
struct PoissonNllLossOptions {
  bool log_input = true;  // input is the logarithm of the rate
  bool full = false;      // with Stirling's approximation of log t!
  double eps = 1e-8;
  Reduction reduction = Reduction::Mean;
};

/// -(t log x + (1 - t) log(1 - x)) for probabilities x, each logarithm at least -100. target: input's shape. ValueError for an input
/// outside [0, 1] on the CPU.
Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const LossOptions& options = {});
/// t (log t - x) for log-probabilities x; 0 where t is 0.
Tensor kl_div(const Tensor& input, const Tensor& target, const KlDivOptions& options = {});
/// (log var + (input - target)^2 / var) / 2. var: input's shape, or one number for each row: without the last dimension, or with one
/// dimension of extent 1. ValueError for a negative variance on the CPU.
Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& var,
                         const GaussianNllLossOptions& options = {});
Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, double var,
                         const GaussianNllLossOptions& options = {});
/// e^x - t x, or for rates x - t log(x + eps).
Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, const PoissonNllLossOptions& options = {});
/// log(1 + e^(-t x)) for targets 1 and -1.
Tensor soft_margin_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::Mean);
/// The mean over the last dimension of the binary cross entropies of logits; weight broadcasts.
Tensor multilabel_soft_margin_loss(const Tensor& input, const Tensor& target, const LossOptions& options = {});

}  // namespace tapir::inline v0
