#pragma once
#include <vector>

#include "../nn/container.h"

namespace tapir::inline v0::models {

struct VGGOptions {
  int64_t num_classes = 1000;
  bool batch_norm = false;
  double dropout = 0.5;
  int64_t pooled = 7;                          // the features' size before the classifier
  std::vector<int64_t> hidden = {4096, 4096};  // its layers
};
inline constexpr int64_t kMaxPool = 0;  // among the channels of a VGG

/// (N, 3, H, W) -> (N, num_classes): 3x3 convolutions of these channels with pooling between. Simonyan and Zisserman 2014,
/// arXiv 1409.1556; torchvision's names and initialisation.
struct VGG : nn::Module {
  nn::Sequential features;
  nn::Sequential classifier;
  int64_t pooled;
  explicit VGG(const std::vector<int64_t>& channels, const VGGOptions& options = {});
  Tensor forward(const Tensor& x);
  TAPIR_DECLARE_FIELDS(features, classifier, pooled)
};

/// With batch norm: {.batch_norm = true}.
VGG vgg11(const VGGOptions& options = {});
VGG vgg13(const VGGOptions& options = {});
VGG vgg16(const VGGOptions& options = {});
VGG vgg19(const VGGOptions& options = {});

}  // namespace tapir::inline v0::models
