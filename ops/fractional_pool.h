#pragma once
#include <utility>
#include <vector>

#include "../core/tensor.h"

namespace tapir::inline v0 {

/// fractional_max_pool2d(x, 2, {.output_size = 7}): one of the two, each one number or one for each spatial axis.
struct FractionalMaxPoolOptions {
  Dims output_size = {};
  std::vector<double> output_ratio = {};  // of the input's extents, in (0, 1)
  Tensor random_samples = {};             // (N, C, axes) in [0, 1), in x's dtype; none: drawn
};

/// The largest elements of windows whose steps are drawn so that the result has the size asked for. x: (N, C, ...) or (C, ...).
/// ValueError for sizes that do not fit. Graham 2014, arXiv 1412.6071.
Tensor fractional_max_pool2d(const Tensor& x, const Dims& kernel_size, const FractionalMaxPoolOptions& options);
Tensor fractional_max_pool3d(const Tensor& x, const Dims& kernel_size, const FractionalMaxPoolOptions& options);
/// The same and, as int64, where they were: the position in the flattened plane.
std::pair<Tensor, Tensor> fractional_max_pool2d_with_indices(const Tensor& x, const Dims& kernel_size,
                                                             const FractionalMaxPoolOptions& options);
std::pair<Tensor, Tensor> fractional_max_pool3d_with_indices(const Tensor& x, const Dims& kernel_size,
                                                             const FractionalMaxPoolOptions& options);

}  // namespace tapir::inline v0
