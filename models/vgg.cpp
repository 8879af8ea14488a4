#include "vgg.h"

#include "../nn/activation.h"
#include "../nn/dropout.h"
#include "../nn/norm.h"
#include "../nn/pooling.h"
#include "../ops/pool.h"
#include "../ops/shape.h"
#include "init.h"

namespace tapir::inline v0::models {

VGG::VGG(const std::vector<int64_t>& channels, const VGGOptions& o) : pooled(o.pooled) {
  int64_t in = 3;
  for (int64_t out : channels) {
    if (out == kMaxPool) {
      features.push_back(nn::MaxPool2d(2, {.stride = 2}));
      continue;
    }
    features.push_back(nn::Conv2d(in, out, 3, {.padding = 1}));
    if (o.batch_norm) features.push_back(nn::BatchNorm2d(out));
    features.push_back(nn::ReLU());
    in = out;
  }
  in *= pooled * pooled;
  for (int64_t out : o.hidden) {
    classifier.push_back(nn::Linear(in, out));
    classifier.push_back(nn::ReLU());
    if (o.dropout > 0) classifier.push_back(nn::Dropout(o.dropout));
    in = out;
  }
  classifier.push_back(nn::Linear(in, o.num_classes));
  init_convolutions(*this, 0.01);
}

Tensor VGG::forward(const Tensor& x) { return classifier(flatten(adaptive_avg_pool2d(features(x), pooled), 1)); }

/// Five stages of 64 to 512 channels; `convolutions` in each.
static VGG vgg(const std::array<int64_t, 5>& convolutions, const VGGOptions& options) {
  constexpr int64_t width[] = {64, 128, 256, 512, 512};
  std::vector<int64_t> channels;
  for (size_t i = 0; i < 5; ++i) {
    channels.insert(channels.end(), size_t(convolutions[i]), width[i]);
    channels.push_back(kMaxPool);
  }
  return VGG(channels, options);
}
VGG vgg11(const VGGOptions& o) { return vgg({1, 1, 2, 2, 2}, o); }
VGG vgg13(const VGGOptions& o) { return vgg({2, 2, 2, 2, 2}, o); }
VGG vgg16(const VGGOptions& o) { return vgg({2, 2, 3, 3, 3}, o); }
VGG vgg19(const VGGOptions& o) { return vgg({2, 2, 4, 4, 4}, o); }

TAPIR_DEFINE_FIELDS(VGG)

}  // namespace tapir::inline v0::models
