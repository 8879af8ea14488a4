#pragma once
#include <string_view>

#include "../core/tensor.h"

namespace tapir::inline v0 {

struct GridSampleOptions {
  std::string_view mode = "bilinear";       // or "nearest", "bicubic"
  std::string_view padding_mode = "zeros";  // or "border", "reflection"
  bool align_corners = false;               // -1 and 1 are the centres of the outermost elements, not their outer edges
};

/// x at the places in grid, whose last dimension holds coordinates in [-1, 1], the last axis first. x: (N, C, H, W), grid: (N, H', W', 2)
/// -> (N, C, H', W'); x: (N, C, D, H, W), grid: (N, D', H', W', 3). Jaderberg et al. 2015, arXiv 1506.02025.
Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options = {});
/// The grid of affine maps. theta: (N, 2, 3) for size (N, C, H, W) -> (N, H, W, 2); (N, 3, 4) for (N, C, D, H, W) -> (N, D, H, W, 3).
Tensor affine_grid(const Tensor& theta, const Shape& size, bool align_corners = false);

}  // namespace tapir::inline v0
