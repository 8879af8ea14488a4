#pragma once
#include "../ops/conv.h"
#include "module.h"

namespace tapir::inline v0::nn {

struct Conv2dOptions {
  Dims stride = 1;
  Padding padding = 0;
  Dims dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  std::string padding_mode = "zeros";  // or "reflect", "replicate", "circular"
};
/// (N, C, H, W) -> (N, O, H', W'). weight (O, C / groups, kh, kw) and bias (O) start uniform in +-1/sqrt(C / groups kh kw).
struct Conv2d : Module {
  int64_t in_channels, out_channels;
  Dims kernel_size;
  ConvOptions options;
  std::string padding_mode;
  Parameter weight, bias;
  Conv2d(int64_t in_channels, int64_t out_channels, const Dims& kernel_size, const Conv2dOptions& options = {});
  Tensor forward(const Tensor& x);
  std::string extra_repr() override;
  TAPIR_FIELDS(in_channels, out_channels, kernel_size, options, padding_mode, weight, bias)
};

}  // namespace tapir::inline v0::nn
