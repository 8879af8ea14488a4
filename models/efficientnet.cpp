#include "efficientnet.h"

#include <algorithm>
#include <cmath>

#include "../nn/activation.h"
#include "../nn/dropout.h"
#include "../nn/norm.h"
#include "../ops/activation.h"
#include "../ops/arithmetic.h"
#include "../ops/create.h"
#include "../ops/dropout.h"
#include "../ops/pool.h"
#include "../ops/shape.h"
#include "../ops/unary.h"
#include "init.h"

namespace tapir::inline v0::models {
namespace {

struct ConvOptions {
  int64_t stride = 1, groups = 1;
  bool activation = true;
};
nn::Sequential conv_bn(int64_t in, int64_t out, int64_t kernel, const ConvOptions& o = {}) {
  nn::Sequential s(
      nn::Conv2d(in, out, kernel, {.stride = o.stride, .padding = (kernel - 1) / 2, .groups = o.groups, .bias = false}),
      nn::BatchNorm2d(out));
  if (o.activation) s.push_back(nn::SiLU());
  return s;
}

}  // namespace

Tensor SqueezeExcitation::forward(const Tensor& x) { return sigmoid(fc2(silu(fc1(adaptive_avg_pool2d(x, 1))))) * x; }

MBConv::MBConv(int64_t in, int64_t out, int64_t expand_ratio, int64_t kernel, int64_t stride, double drop)
    : shortcut(stride == 1 && in == out), drop(drop) {
  const int64_t hidden = in * expand_ratio;
  if (expand_ratio != 1) block.push_back(conv_bn(in, hidden, 1));
  block.push_back(conv_bn(hidden, hidden, kernel, {.stride = stride, .groups = hidden}));
  block.push_back(SqueezeExcitation(hidden, std::max<int64_t>(1, in / 4)));
  block.push_back(conv_bn(hidden, out, 1, {.activation = false}));
}
Tensor MBConv::forward(const Tensor& x) {
  Tensor y = block(x);
  if (!shortcut) return y;
  if (training && drop > 0)
    y = y * dropout(ones({x.size(0), 1, 1, 1}, {.dtype = y.dtype(), .device = y.device()}), drop);
  return y + x;
}

EfficientNet::EfficientNet(const EfficientNetOptions& o) {
  struct Stage {
    int64_t expand_ratio, kernel, stride, channels, blocks;
  };
  constexpr Stage stages[] = {{1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
                              {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};
  constexpr double blocks = 16;
  int64_t in = 32, depth = 0;
  features.push_back(conv_bn(3, in, 3, {.stride = 2}));
  for (const Stage& s : stages) {
    nn::Sequential stage;
    for (int64_t i = 0; i < s.blocks; ++i, ++depth, in = s.channels)
      stage.push_back(MBConv(in, s.channels, s.expand_ratio, s.kernel, i == 0 ? s.stride : 1,
                             o.stochastic_depth * double(depth) / blocks));
    features.push_back(std::move(stage));
  }
  features.push_back(conv_bn(in, 4 * in, 1));
  nn::Linear head(4 * in, o.num_classes);
  init_convolutions(*this);
  const double range = 1 / std::sqrt(double(o.num_classes));
  nn::init::uniform_(head.weight, -range, range), nn::init::zeros_(head.bias);
  classifier.push_back(nn::Dropout(o.dropout));
  classifier.push_back(std::move(head));
}
Tensor EfficientNet::forward(const Tensor& x) { return classifier(flatten(adaptive_avg_pool2d(features(x), 1), 1)); }

TAPIR_DEFINE_FIELDS(SqueezeExcitation, MBConv, EfficientNet)

}  // namespace tapir::inline v0::models
