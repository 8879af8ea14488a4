#pragma once
#include <vector>

#include "loss.h"

namespace tapir::inline v0 {

struct CtcLossOptions {
  int64_t blank = 0;
  Reduction reduction = Reduction::Mean;  // the mean of losses, each divided by the length of its target
  bool zero_infinity = false;             // targets that do not fit into their input count as 0, with no gradient
};

/// Connectionist temporal classification: -log of the probability of all alignments of targets with log_probs. log_probs: (T, N, C) or
/// (T, C), normalised (log_softmax); targets: labels (N, S), or one after the other; lengths: (N), int64. As in PyTorch the gradient
/// takes for granted that log_probs is normalised: it is that of logits. ValueError for lengths and labels that do not fit.
/// Graves et al. 2006.
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CtcLossOptions& options = {});
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const std::vector<int64_t>& input_lengths,
                const std::vector<int64_t>& target_lengths, const CtcLossOptions& options = {});

}  // namespace tapir::inline v0
