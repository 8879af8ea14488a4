#pragma once
#include <concepts>
#include <optional>

#include "../core/tensor.h"

namespace tapir::inline v0 {

struct BatchNormOptions {
  bool training = false;
  double momentum = 0.1;  // running = (1 - momentum) running + momentum batch
  double eps = 1e-5;
};
struct InstanceNormOptions {
  bool use_input_stats = true;
  double momentum = 0.1;
  double eps = 1e-5;
};
struct NormOptions {
  Tensor weight = {}, bias = {};
  double eps = 1e-5;
};
struct RmsNormOptions {
  Tensor weight = {};
  std::optional<double> eps = {};  // none: the dtype's machine epsilon
};

/// (x - mean) / sqrt(var + eps) weight + bias for each channel of x (N, C, ...). In training the statistics are those of the batch and
/// the running ones (C), where given, follow in place; else they are the running ones. weight, bias: (C) or absent. ValueError for
/// lengths that do not fit, and in training for fewer than two values per channel. Ioffe and Szegedy 2015, arXiv 1502.03167.
Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight = {},
                  const Tensor& bias = {}, const BatchNormOptions& options = {});
/// The same for each sample and channel; the running statistics follow the mean over samples.
Tensor instance_norm(const Tensor& x, const Tensor& running_mean = {}, const Tensor& running_var = {},
                     const Tensor& weight = {}, const Tensor& bias = {}, const InstanceNormOptions& options = {});
/// Normalised over the last dimensions, which are `normalized_shape`, the shape of weight and bias. Ba et al. 2016, arXiv 1607.06450.
Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const NormOptions& options = {});
/// Normalised over each of num_groups groups of channels of x (N, C, ...); weight, bias: (C). Wu and He 2018, arXiv 1803.08494.
Tensor group_norm(const Tensor& x, int64_t num_groups, const NormOptions& options = {});
/// x / sqrt(mean(x^2) + eps) weight over the last dimensions. Zhang and Sennrich 2019, arXiv 1910.07467.
Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const RmsNormOptions& options = {});

// The same with everything by position, in PyTorch's order. Templates, so that a lone {} means the options.
template <std::convertible_to<Tensor> W = Tensor> Tensor layer_norm(const Tensor& x, const Shape& normalized_shape,
                                                                    const W& weight, const Tensor& bias = {},
                                                                    double eps = 1e-5) {
  return layer_norm(x, normalized_shape, NormOptions{weight, bias, eps});
}
template <std::convertible_to<Tensor> W = Tensor>
Tensor group_norm(const Tensor& x, int64_t num_groups, const W& weight, const Tensor& bias = {}, double eps = 1e-5) {
  return group_norm(x, num_groups, NormOptions{weight, bias, eps});
}
template <std::convertible_to<Tensor> W = Tensor>
Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const W& weight, std::optional<double> eps = {}) {
  return rms_norm(x, normalized_shape, RmsNormOptions{weight, eps});
}

}  // namespace tapir::inline v0
