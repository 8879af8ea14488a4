#pragma once
#include "../core/tensor.h"

namespace tapir::inline v0 {

struct RreluOptions {
  double lower = 1.0 / 8, upper = 1.0 / 3;
  bool training = false;
};
/// x where it is above 0, else a x; in training a is drawn for each element from [lower, upper), else it is their mean. Xu et al. 2015,
/// arXiv 1505.00853.
Tensor rrelu(const Tensor& x, const RreluOptions& options = {});

struct GumbelSoftmaxOptions {
  double tau = 1;
  bool hard = false;  // one-hot, with the gradient of the soft samples
  int64_t dim = -1;
};
/// Samples of a relaxed categorical distribution: softmax((logits + g) / tau) with g = -log(-log u). Jang et al. 2017, arXiv 1611.01144.
Tensor gumbel_softmax(const Tensor& logits, const GumbelSoftmaxOptions& options = {});

struct MultinomialOptions {
  bool replacement = false;
};
/// num_samples positions of each row of weights (C) or (R, C), as likely as their weight's share: int64 (num_samples) or (R, num_samples).
/// ValueError for weights that are negative or not finite, rows of zeros, and fewer weights above 0 than are drawn without replacement.
Tensor multinomial(const Tensor& weights, int64_t num_samples, const MultinomialOptions& options = {});

}  // namespace tapir::inline v0
