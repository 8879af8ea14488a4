#pragma once
#include <vector>

#include "../nn/container.h"
#include "../nn/conv.h"
#include "../nn/linear.h"
#include "../nn/norm.h"

namespace tapir::inline v0::models {

/// Blocks in a row: the first has the stride, the others 1. torchvision's [t, c, n, s].
struct InvertedResidualSetting {
  int64_t expand_ratio, channels, blocks, stride;
};
struct MobileNetV2Options {
  int64_t num_classes = 1000;
  double width_mult = 1;
  std::vector<InvertedResidualSetting> inverted_residual_setting = {
      {1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  double dropout = 0.2;
};

/// Expands 1x1, filters each channel 3x3, projects 1x1 without activation; the input is added where the shapes agree.
struct InvertedResidual : nn::Module {
  bool shortcut;
  nn::Sequential conv;
  InvertedResidual(int64_t in, int64_t out, int64_t stride, int64_t expand_ratio);
  Tensor forward(const Tensor& x);
  TAPIR_DECLARE_FIELDS(shortcut, conv)
};

/// (N, 3, H, W) -> (N, num_classes). Sandler et al. 2018, arXiv 1801.04381; torchvision's names and initialisation.
struct MobileNetV2 : nn::Module {
  nn::Sequential features, classifier;
  explicit MobileNetV2(const MobileNetV2Options& options = {});
  Tensor forward(const Tensor& x);
  TAPIR_DECLARE_FIELDS(features, classifier)
};
inline MobileNetV2 mobilenet_v2(const MobileNetV2Options& options = {}) { return MobileNetV2(options); }

}  // namespace tapir::inline v0::models
