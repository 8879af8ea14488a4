#include "resnet.h"

#include "../core/checks.h"
#include "../core/modes.h"
#include "../functional/checkpoint.h"
#include "../nn/layer_count.h"
#include "../ops/activation.h"
#include "../ops/arithmetic.h"
#include "../ops/pool.h"
#include "../ops/shape.h"
#include "../ops/unary.h"
#include "init.h"

namespace tapir::inline v0::models {
namespace {

nn::Conv2d conv3x3(int64_t in, int64_t out, int64_t stride = 1) {
  return nn::Conv2d(in, out, 3, {.stride = stride, .padding = 1, .bias = false});
}
nn::Conv2d conv1x1(int64_t in, int64_t out, int64_t stride = 1) {
  return nn::Conv2d(in, out, 1, {.stride = stride, .bias = false});
}
nn::Sequential shortcut(int64_t in, int64_t out, int64_t stride) {
  if (in == out && stride == 1) return {};
  return nn::Sequential(conv1x1(in, out, stride), nn::BatchNorm2d(out));
}
template <class Block> std::vector<Block> stage(int64_t in, int64_t planes, int64_t blocks, int64_t stride) {
  std::vector<Block> out;
  nn::check_layers("ResNet", "blocks", blocks);
  for (int64_t i = 0; i < blocks; ++i)
    out.emplace_back(i == 0 ? in : planes * Block::expansion, planes, i == 0 ? stride : 1);
  return out;
}

}  // namespace

BasicBlock::BasicBlock(int64_t in, int64_t planes, int64_t stride)
    : conv1(conv3x3(in, planes, stride)), bn1(planes), conv2(conv3x3(planes, planes)), bn2(planes),
      downsample(shortcut(in, planes, stride)) {}

Tensor BasicBlock::forward(const Tensor& x) {
  const Tensor y = relu(bn1(conv1(x)));
  return relu(bn2(conv2(y)) + downsample(x));
}

Bottleneck::Bottleneck(int64_t in, int64_t planes, int64_t stride)
    : conv1(conv1x1(in, planes)), bn1(planes), conv2(conv3x3(planes, planes, stride)), bn2(planes),
      conv3(conv1x1(planes, planes * expansion)), bn3(planes * expansion),
      downsample(shortcut(in, planes * expansion, stride)) {}

Tensor Bottleneck::forward(const Tensor& x) {
  const Tensor y = relu(bn2(conv2(relu(bn1(conv1(x))))));
  return relu(bn3(conv3(y)) + downsample(x));
}

template <class Block> ResNet<Block>::ResNet(const std::array<int64_t, 4>& blocks, const ResNetOptions& o)
    : small_images(o.small_images), checkpoint_blocks(o.checkpoint),
      conv1(o.small_images ? conv3x3(3, o.width)
                           : nn::Conv2d(3, o.width, 7, {.stride = 2, .padding = 3, .bias = false})),
      bn1(o.width), layer1(stage<Block>(o.width, o.width, blocks[0], 1)),
      layer2(stage<Block>(o.width * Block::expansion, o.width * 2, blocks[1], 2)),
      layer3(stage<Block>(o.width * 2 * Block::expansion, o.width * 4, blocks[2], 2)),
      layer4(stage<Block>(o.width * 4 * Block::expansion, o.width * 8, blocks[3], 2)),
      fc(o.width * 8 * Block::expansion, o.num_classes) {
  init_convolutions(*this);
  if (!o.zero_init_residual) return;
  for (auto* layer : {&layer1, &layer2, &layer3, &layer4})
    for (Block& block : *layer) nn::init::zeros_(block.last().weight);
}

template <class Block> Tensor ResNet<Block>::forward(const Tensor& x) {
  Tensor y = relu(bn1(conv1(x)));
  if (!small_images) y = max_pool2d(y, 3, {.stride = 2, .padding = 1});
  for (auto* layer : {&layer1, &layer2, &layer3, &layer4})
    for (Block& block : *layer)
      y = checkpoint_blocks ? checkpoint([&block](const Tensor& x) { return block(x); }, y) : block(y);
  return fc(flatten(adaptive_avg_pool2d(y, 1), 1));
}

template struct ResNet<BasicBlock>;
template struct ResNet<Bottleneck>;

TAPIR_DEFINE_FIELDS(BasicBlock, Bottleneck)

}  // namespace tapir::inline v0::models
