#pragma once
#include <utility>
#include <vector>

#include "container.h"
#include "linear.h"

namespace tapir::inline v0::nn {

struct AdaptiveLogSoftmaxOptions {
  double div_value = 4;  // each cluster's vectors are that much shorter than those of the one before
  bool head_bias = false;
};
/// The log-likelihood of many classes, numbered by falling frequency: those below cutoffs[0] stand in the head, beside one entry for
/// each cluster [cutoffs[i], cutoffs[i + 1]) of rarer ones, which have smaller matrices. Grave et al. 2017, arXiv 1609.04309.
struct AdaptiveLogSoftmaxWithLoss : Module {
  int64_t in_features, n_classes;
  std::vector<int64_t> cutoffs;  // with n_classes as the last
  Linear head;
  ModuleList tail;  // each Sequential(Linear, Linear)
  AdaptiveLogSoftmaxWithLoss(int64_t in_features, int64_t n_classes, std::vector<int64_t> cutoffs,
                             const AdaptiveLogSoftmaxOptions& options = {});
  /// The log-probability of each target, (N) or (), and the mean loss. input: (N, in) or (in). ValueError for a target outside
  /// [0, n_classes), which is read on the host.
  std::pair<Tensor, Tensor> forward(const Tensor& input, const Tensor& target);
  /// Those of all classes: (N, n_classes).
  Tensor log_prob(const Tensor& input);
  /// The likeliest class of each row.
  Tensor predict(const Tensor& input);
  std::string extra_repr() override { return ""; }
  TAPIR_DECLARE_FIELDS(in_features, n_classes, cutoffs, head, tail)
};

}  // namespace tapir::inline v0::nn
