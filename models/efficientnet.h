#pragma once
#include "../nn/container.h"
#include "../nn/conv.h"

namespace tapir::inline v0::models {

struct EfficientNetOptions {
  int64_t num_classes = 1000;
  double dropout = 0.2;
  double stochastic_depth = 0.2;  // of the last block; grows from 0 with the depth. Huang et al. 2016, arXiv 1603.09382
};

/// Each channel times a number in (0, 1) that all channels' means decide. Hu et al. 2017, arXiv 1709.01507.
struct SqueezeExcitation : nn::Module {
  nn::Conv2d fc1, fc2;
  SqueezeExcitation(int64_t channels, int64_t squeezed) : fc1(channels, squeezed, 1), fc2(squeezed, channels, 1) {}
  Tensor forward(const Tensor& x);
  TAPIR_DECLARE_FIELDS(fc1, fc2)
};

/// Expand, filter each channel, squeeze and excite, project; the input is added where the shapes agree.
struct MBConv : nn::Module {
  bool shortcut;
  double drop;  // whole samples of the branch, in training
  nn::Sequential block;
  MBConv(int64_t in, int64_t out, int64_t expand_ratio, int64_t kernel, int64_t stride, double drop);
  Tensor forward(const Tensor& x);
  TAPIR_DECLARE_FIELDS(shortcut, drop, block)
};

/// EfficientNet-B0: (N, 3, H, W) -> (N, num_classes). Tan and Le 2019, arXiv 1905.11946; torchvision's names and initialisation.
struct EfficientNet : nn::Module {
  nn::Sequential features, classifier;
  explicit EfficientNet(const EfficientNetOptions& options = {});
  Tensor forward(const Tensor& x);
  TAPIR_DECLARE_FIELDS(features, classifier)
};
inline EfficientNet efficientnet_b0(const EfficientNetOptions& options = {}) { return EfficientNet(options); }

}  // namespace tapir::inline v0::models
