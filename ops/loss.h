#pragma once
#include <cstdint>

#include "../core/tensor.h"

namespace tapir::inline v0 {

/// What becomes of the losses of all elements: kept, averaged, summed, or (kl_div alone) summed and divided by input's first extent.
enum class Reduction : uint8_t { None, Mean, Sum, BatchMean };

struct CrossEntropyOptions {
  Tensor weight = {};  // (C): a factor for each class
  Reduction reduction = Reduction::Mean;
  int64_t ignore_index = -100;  // samples with this label do not count
  double label_smoothing = 0;
};
struct LinearCrossEntropyOptions {
  Tensor linear_bias = {};  // (C)
  Tensor weight = {};       // (C): a factor for each class
  Reduction reduction = Reduction::Mean;
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  int64_t chunk_size = 0;  // rows whose logits are in memory at once; 0: D, or as fill 512 MiB on a GPU, 32 elsewhere
};
struct NllLossOptions {
  Tensor weight = {};
  Reduction reduction = Reduction::Mean;
  int64_t ignore_index = -100;
};
struct LossOptions {
  Tensor weight = {};  // a factor for each element
  Reduction reduction = Reduction::Mean;
};
struct SmoothL1LossOptions {
  Reduction reduction = Reduction::Mean;
  double beta = 1;  // where the parabola ends
};
struct HuberLossOptions {
  Reduction reduction = Reduction::Mean;
  double delta = 1;
  Tensor weight = {};
};
struct BceWithLogitsOptions {
  Tensor weight = {};
  Reduction reduction = Reduction::Mean;
  Tensor pos_weight = {};  // a factor for the positive part, broadcast (one for each class)
};

/// -log softmax(input) at the target. input: (C), (N, C) or (N, C, d1, ...); target: labels of an integer dtype, (), (N) or
/// (N, d1, ...), or probabilities of input's shape. The mean is weighted by the weights of the labels, without ignored ones; where all
/// are ignored, or there are none, it is NaN with a gradient of zero. ValueError for labels outside [0, C).
Tensor cross_entropy(const Tensor& input, const Tensor& target, const CrossEntropyOptions& options = {});
/// cross_entropy(linear(input, linear_weight, linear_bias), target) whose logits are made, used and overwritten some rows at a time: for
/// large vocabularies, whose logits and their gradient would be most of the memory. input: (..., D); linear_weight: (C, D); target: labels
/// (...). Where gradients are wanted the forward pass computes them too (but for Reduction::None: the backward pass computes logits again),
/// and the backward pass multiplies them.
/// Result: input's dtype. Under autocast the product is linear's, the result float32.
Tensor linear_cross_entropy(const Tensor& input, const Tensor& linear_weight, const Tensor& target,
                            const LinearCrossEntropyOptions& options = {});
/// The same as cross_entropy for input that holds log-probabilities: -w[t] input[t].
Tensor nll_loss(const Tensor& input, const Tensor& target, const NllLossOptions& options = {});
/// (input - target)^2; target broadcasts to input's shape. A weighted mean is divided by the sum of the weights.
Tensor mse_loss(const Tensor& input, const Tensor& target, const LossOptions& options = {});
/// |input - target|
Tensor l1_loss(const Tensor& input, const Tensor& target, const LossOptions& options = {});
/// With d = |input - target|: d^2 / (2 beta) below beta, else d - beta / 2. Girshick 2015, arXiv 1504.08083.
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, const SmoothL1LossOptions& options = {});
/// With d = |input - target|: d^2 / 2 below delta, else delta (d - delta / 2); times weight, whose sum does not divide the mean.
Tensor huber_loss(const Tensor& input, const Tensor& target, const HuberLossOptions& options = {});
/// -(pos_weight t log sigmoid(x) + (1 - t) log(1 - sigmoid(x))), computed without overflow. target: input's shape.
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        const BceWithLogitsOptions& options = {});

}  // namespace tapir::inline v0
