#pragma once
#include <optional>
#include <utility>

#include "../core/tensor.h"

namespace tapir::inline v0 {

/// max_pool2d(x, 3, {.stride = 2, .padding = 1}): each is one number or one for each spatial axis; no stride: the kernel's size.
struct MaxPoolOptions {
  Dims stride = {};
  Dims padding = 0;
  Dims dilation = 1;
  bool ceil_mode = false;
};
struct AvgPoolOptions {
  Dims stride = {};
  Dims padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;
  std::optional<int64_t> divisor_override = {};  // instead of the window's size
};

// x: (N, C, ...) or, for one sample, (C, ...), in any layout; the result has the layout of x. The largest element of each window,
// NaN first; ValueError for options that do not fit.
Tensor max_pool1d(const Tensor& x, const Dims& kernel_size, const MaxPoolOptions& options = {});
Tensor max_pool2d(const Tensor& x, const Dims& kernel_size, const MaxPoolOptions& options = {});
Tensor max_pool3d(const Tensor& x, const Dims& kernel_size, const MaxPoolOptions& options = {});
/// The same and, as int64, where it was: the position in the flattened plane. PyTorch's return_indices.
std::pair<Tensor, Tensor> max_pool1d_with_indices(const Tensor& x, const Dims& kernel_size,
                                                  const MaxPoolOptions& options = {});
std::pair<Tensor, Tensor> max_pool2d_with_indices(const Tensor& x, const Dims& kernel_size,
                                                  const MaxPoolOptions& options = {});
std::pair<Tensor, Tensor> max_pool3d_with_indices(const Tensor& x, const Dims& kernel_size,
                                                  const MaxPoolOptions& options = {});

/// The mean of each window.
Tensor avg_pool1d(const Tensor& x, const Dims& kernel_size, const AvgPoolOptions& options = {});
Tensor avg_pool2d(const Tensor& x, const Dims& kernel_size, const AvgPoolOptions& options = {});
Tensor avg_pool3d(const Tensor& x, const Dims& kernel_size, const AvgPoolOptions& options = {});

/// Means of windows such that the result has `output_size`: one number or one for each axis, -1 keeps the input's.
Tensor adaptive_avg_pool1d(const Tensor& x, const Dims& output_size);
Tensor adaptive_avg_pool2d(const Tensor& x, const Dims& output_size);
Tensor adaptive_avg_pool3d(const Tensor& x, const Dims& output_size);

/// The largest elements of the same windows; with_indices: PyTorch's return_indices.
Tensor adaptive_max_pool1d(const Tensor& x, const Dims& output_size);
Tensor adaptive_max_pool2d(const Tensor& x, const Dims& output_size);
Tensor adaptive_max_pool3d(const Tensor& x, const Dims& output_size);
std::pair<Tensor, Tensor> adaptive_max_pool1d_with_indices(const Tensor& x, const Dims& output_size);
std::pair<Tensor, Tensor> adaptive_max_pool2d_with_indices(const Tensor& x, const Dims& output_size);
std::pair<Tensor, Tensor> adaptive_max_pool3d_with_indices(const Tensor& x, const Dims& output_size);

struct MaxUnpoolOptions {
  Dims stride = {};  // none: the kernel's size
  Dims padding = 0;
  Dims output_size = {};  // the spatial extents, or the whole shape; none: (n - 1) stride - 2 padding + kernel
};
/// Zeros with x at the positions that max pooling gave. ValueError for an index outside the plane.
Tensor max_unpool1d(const Tensor& x, const Tensor& indices, const Dims& kernel_size,
                    const MaxUnpoolOptions& options = {});
Tensor max_unpool2d(const Tensor& x, const Tensor& indices, const Dims& kernel_size,
                    const MaxUnpoolOptions& options = {});
Tensor max_unpool3d(const Tensor& x, const Tensor& indices, const Dims& kernel_size,
                    const MaxUnpoolOptions& options = {});

struct LpPoolOptions {
  Dims stride = {};
  bool ceil_mode = false;
};
/// (sum of x^p)^(1/p) over each window; p infinite: the largest magnitude.
Tensor lp_pool1d(const Tensor& x, double norm_type, const Dims& kernel_size, const LpPoolOptions& options = {});
Tensor lp_pool2d(const Tensor& x, double norm_type, const Dims& kernel_size, const LpPoolOptions& options = {});
Tensor lp_pool3d(const Tensor& x, double norm_type, const Dims& kernel_size, const LpPoolOptions& options = {});

}  // namespace tapir::inline v0
