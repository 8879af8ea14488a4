#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "../core/tensor.h"

namespace tapir::inline v0 {

/// interpolate(x, {.size = {64, 64}, .mode = "bilinear"}) or {.scale_factor = {2}}: one number or one for each spatial axis.
struct InterpolateOptions {
  Dims size = {};
  std::vector<double> scale_factor = {};
  /// "nearest", "nearest-exact", "linear" (3D), "bilinear" (4D), "bicubic" (4D), "trilinear" (5D), "area".
  std::string_view mode = "nearest";
  std::optional<bool> align_corners = {};  // of the linear and cubic modes: the outermost centres are fixed points
  bool recompute_scale_factor = false;     // positions follow from the sizes, not from scale_factor
  bool antialias = false;                  // of bilinear and bicubic: filters as wide as the scale where it shrinks
};

/// x (N, C, ...) with one to three spatial axes, resampled. ValueError for options that do not fit, and sizes below 1.
Tensor interpolate(const Tensor& x, const InterpolateOptions& options);

}  // namespace tapir::inline v0
