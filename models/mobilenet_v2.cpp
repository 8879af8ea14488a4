#include "mobilenet_v2.h"

#include <algorithm>

#include "../nn/dropout.h"
#include "../ops/activation.h"
#include "../ops/arithmetic.h"
#include "../ops/pool.h"
#include "../ops/shape.h"
#include "init.h"

namespace tapir::inline v0::models {
namespace {

struct ReLU6 : nn::Module {
  Tensor forward(const Tensor& x) { return relu6(x); }
  TAPIR_FIELDS()
};
nn::Sequential conv_bn_relu(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1, int64_t groups = 1) {
  return nn::Sequential(
      nn::Conv2d(in, out, kernel, {.stride = stride, .padding = (kernel - 1) / 2, .groups = groups, .bias = false}),
      nn::BatchNorm2d(out), ReLU6());
}
/// The multiple of 8 nearest to x, but not less than 0.9 x.
int64_t round_to_8(double x) {
  const int64_t rounded = std::max<int64_t>(8, int64_t(x + 4) / 8 * 8);
  return double(rounded) < 0.9 * x ? rounded + 8 : rounded;
}

}  // namespace

InvertedResidual::InvertedResidual(int64_t in, int64_t out, int64_t stride, int64_t expand_ratio)
    : shortcut(stride == 1 && in == out) {
  check(stride == 1 || stride == 2, "[InvertedResidual] expected a stride of 1 or 2, got {}", stride);
  const int64_t hidden = in * expand_ratio;
  if (expand_ratio != 1) conv.push_back(conv_bn_relu(in, hidden, 1));
  conv.push_back(conv_bn_relu(hidden, hidden, 3, stride, hidden));
  conv.push_back(nn::Conv2d(hidden, out, 1, {.bias = false}));
  conv.push_back(nn::BatchNorm2d(out));
}
Tensor InvertedResidual::forward(const Tensor& x) { return shortcut ? x + conv(x) : conv(x); }

MobileNetV2::MobileNetV2(const MobileNetV2Options& o) {
  check(
      !o.inverted_residual_setting.empty(),
      "[MobileNetV2] expected at least one line {expand_ratio, channels, blocks, stride} as inverted_residual_setting, "
      "got none");
  int64_t in = round_to_8(32 * o.width_mult);
  const int64_t last = round_to_8(1280 * std::max(1., o.width_mult));
  features.push_back(conv_bn_relu(3, in, 3, 2));
  for (const InvertedResidualSetting& s : o.inverted_residual_setting) {
    check(s.expand_ratio > 0 && s.channels > 0 && s.blocks >= 0,
          "[MobileNetV2] expected an expand_ratio and channels above 0 and blocks from 0 on, got {}, {} and {}",
          s.expand_ratio, s.channels, s.blocks);
    const int64_t out = round_to_8(double(s.channels) * o.width_mult);
    for (int64_t i = 0; i < s.blocks; ++i, in = out)
      features.push_back(InvertedResidual(in, out, i == 0 ? s.stride : 1, s.expand_ratio));
  }
  features.push_back(conv_bn_relu(in, last, 1));
  classifier.push_back(nn::Dropout(o.dropout));
  classifier.push_back(nn::Linear(last, o.num_classes));
  init_convolutions(*this, 0.01);
}
Tensor MobileNetV2::forward(const Tensor& x) { return classifier(flatten(adaptive_avg_pool2d(features(x), 1), 1)); }

TAPIR_DEFINE_FIELDS(InvertedResidual, MobileNetV2)

}  // namespace tapir::inline v0::models
