#pragma once
#include <vector>

#include "../nn/container.h"
#include "../nn/conv.h"

namespace tapir::inline v0::models {

struct UNetOptions {
  int64_t in_channels = 3, num_classes = 2;
  int64_t width = 64;  // channels of the first level; each level below has twice as many
  int64_t depth = 4;   // levels below the first
};

/// Convolve and halve the image, level by level; then double it again, each time beside what stood at that level on the way down.
/// (N, in_channels, H, W) -> (N, num_classes, H, W), for any H and W of at least 2^depth. Ronneberger et al. 2015, arXiv 1505.04597, with
/// padding, batch norm and bilinear interpolation on the way up.
struct UNet : nn::Module {
  nn::Sequential inc;
  std::vector<nn::Sequential> down, up;
  nn::Conv2d outc;
  explicit UNet(const UNetOptions& options = {});
  Tensor forward(const Tensor& x);
  TAPIR_DECLARE_FIELDS(inc, down, up, outc)
};
inline UNet unet(const UNetOptions& options = {}) { return UNet(options); }

}  // namespace tapir::inline v0::models
