#pragma once
#include "../ops/pool.h"
#include "module.h"

namespace tapir::inline v0::nn {

/// The largest element of each window: (N, C, H, W) -> (N, C, H', W').
struct MaxPool2d : Module {
  Dims kernel_size;
  MaxPoolOptions options;
  explicit MaxPool2d(const Dims& kernel_size, const MaxPoolOptions& options = {})
      : kernel_size(kernel_size), options(options) {}
  Tensor forward(const Tensor& x) { return max_pool2d(x, kernel_size, options); }
  /// PyTorch's return_indices: the maxima, and their positions in the flattened plane.
  std::pair<Tensor, Tensor> forward_with_indices(const Tensor& x) {
    return max_pool2d_with_indices(x, kernel_size, options);
  }
  std::string extra_repr() override;
  TAPIR_FIELDS(kernel_size, options)
};

/// The mean of each window.
struct AvgPool2d : Module {
  Dims kernel_size;
  AvgPoolOptions options;
  explicit AvgPool2d(const Dims& kernel_size, const AvgPoolOptions& options = {})
      : kernel_size(kernel_size), options(options) {}
  Tensor forward(const Tensor& x) { return avg_pool2d(x, kernel_size, options); }
  std::string extra_repr() override;
  TAPIR_FIELDS(kernel_size, options)
};

/// Means of windows such that the result has `output_size`.
struct AdaptiveAvgPool2d : Module {
  Dims output_size;
  explicit AdaptiveAvgPool2d(const Dims& output_size) : output_size(output_size) {}
  Tensor forward(const Tensor& x) { return adaptive_avg_pool2d(x, output_size); }
  std::string extra_repr() override;
  TAPIR_FIELDS(output_size)
};

}  // namespace tapir::inline v0::nn
