#pragma once
#include <vector>

#include "../nn/container.h"
#include "../nn/conv.h"
#include "../nn/linear.h"
#include "../nn/norm.h"

namespace tapir::inline v0::models {

struct ResNetOptions {
  int64_t num_classes = 1000;
  int64_t width = 64;         // channels of the first stage
  bool small_images = false;  // CIFAR: a 3x3 stem of stride 1 and no pooling
  bool zero_init_residual = false;
  bool checkpoint =
      false;  // blocks keep their inputs alone and run again in backward; the model must not move meanwhile
};

/// Two 3x3 convolutions around which the input is added.
struct BasicBlock : nn::Module {
  static constexpr int64_t expansion = 1;
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2;
  nn::Sequential downsample;  // empty where the shapes agree
  BasicBlock(int64_t in, int64_t planes, int64_t stride);
  Tensor forward(const Tensor& x);
  nn::BatchNorm2d& last() { return bn2; }
  TAPIR_DECLARE_FIELDS(conv1, bn1, conv2, bn2, downsample)
};

/// 1x1 down to `planes`, 3x3 (which strides, as in torchvision), 1x1 up to four times as many.
struct Bottleneck : nn::Module {
  static constexpr int64_t expansion = 4;
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2;
  nn::Conv2d conv3;
  nn::BatchNorm2d bn3;
  nn::Sequential downsample;
  Bottleneck(int64_t in, int64_t planes, int64_t stride);
  Tensor forward(const Tensor& x);
  nn::BatchNorm2d& last() { return bn3; }
  TAPIR_DECLARE_FIELDS(conv1, bn1, conv2, bn2, conv3, bn3, downsample)
};

/// (N, 3, H, W) -> (N, num_classes). He et al. 2015, arXiv 1512.03385; torchvision's names and initialisation.
template <class Block> struct ResNet : nn::Module {
  bool small_images, checkpoint_blocks;
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  std::vector<Block> layer1, layer2, layer3, layer4;
  nn::Linear fc;
  explicit ResNet(const std::array<int64_t, 4>& blocks, const ResNetOptions& options = {});
  Tensor forward(const Tensor& x);
  TAPIR_FIELDS(small_images, checkpoint_blocks, conv1, bn1, layer1, layer2, layer3, layer4, fc)
};

inline ResNet<BasicBlock> resnet18(const ResNetOptions& o = {}) { return ResNet<BasicBlock>({2, 2, 2, 2}, o); }
inline ResNet<BasicBlock> resnet34(const ResNetOptions& o = {}) { return ResNet<BasicBlock>({3, 4, 6, 3}, o); }
inline ResNet<Bottleneck> resnet50(const ResNetOptions& o = {}) { return ResNet<Bottleneck>({3, 4, 6, 3}, o); }
inline ResNet<Bottleneck> resnet101(const ResNetOptions& o = {}) { return ResNet<Bottleneck>({3, 4, 23, 3}, o); }
inline ResNet<Bottleneck> resnet152(const ResNetOptions& o = {}) { return ResNet<Bottleneck>({3, 8, 36, 3}, o); }

}  // namespace tapir::inline v0::models
