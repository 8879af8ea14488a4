#pragma once
#include "../ops/conv.h"
#include "module.h"

namespace tapir::inline v0::nn {

struct ConvOptions {
  Dims stride = 1;
  Padding padding = 0;
  Dims dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  std::string padding_mode = "zeros";  // or "reflect", "replicate", "circular"
};
struct ConvTransposeOptions {
  Dims stride = 1;
  Dims padding = 0;
  Dims output_padding = 0;
  int64_t groups = 1;
  bool bias = true;
  Dims dilation = 1;
};

/// What convolutions share: weight and bias (O) start uniform in +-1/sqrt(weight's extents but the first).
struct ConvBase : Module {
  int64_t in_channels, out_channels;
  Dims kernel_size;  // one number for each spatial axis, as in all options
  tapir::ConvOptions options;
  Dims output_padding;  // of transposed ones, else empty
  std::string padding_mode;
  Parameter weight, bias;
  std::string extra_repr() override;
  TAPIR_DECLARE_FIELDS(in_channels, out_channels, kernel_size, options, output_padding, padding_mode, weight, bias)

 protected:
  ConvBase(const char* name, int64_t spatial, int64_t in, int64_t out, const Dims& kernel, const ConvOptions& options,
           const Dims& output_padding = {});
  Tensor convolve(decltype(conv2d)* op, const Tensor& x);
  Tensor convolve_transposed(const char* name, decltype(conv_transpose2d)* op, const Tensor& x,
                             const Dims& output_size);
};

#define TAPIR_CONV(Name, spatial, op)                                                                         \
  struct Name : ConvBase {                                                                                    \
    Name(int64_t in_channels, int64_t out_channels, const Dims& kernel_size, const ConvOptions& options = {}) \
        : ConvBase(#Name, spatial, in_channels, out_channels, kernel_size, options) {}                        \
    Tensor forward(const Tensor& x) { return convolve(op, x); }                                               \
    TAPIR_DECLARE_FIELDS_WITH_BASE(ConvBase)                                                                  \
  };
#define TAPIR_CONV_TRANSPOSE(Name, spatial, op)                                                                  \
  struct Name : ConvBase {                                                                                       \
    Name(int64_t in_channels, int64_t out_channels, const Dims& kernel_size, const ConvTransposeOptions& o = {}) \
        : ConvBase(#Name, spatial, in_channels, out_channels, kernel_size,                                       \
                   {o.stride, o.padding, o.dilation, o.groups, o.bias}, o.output_padding) {}                     \
    Tensor forward(const Tensor& x, const Dims& output_size = {}) {                                              \
      return convolve_transposed(#Name, op, x, output_size);                                                     \
    }                                                                                                            \
    TAPIR_DECLARE_FIELDS_WITH_BASE(ConvBase)                                                                     \
  };
// (N, C, ...) or (C, ...) -> (N, O, ...'). weight: (O, C / groups, k...).
TAPIR_CONV(Conv1d, 1, conv1d)
TAPIR_CONV(Conv2d, 2, conv2d)
TAPIR_CONV(Conv3d, 3, conv3d)
// (N, C, ...) -> (N, O, ...'), the transposed map. weight: (C, O / groups, k...). An output_size (its spatial extents or the whole
// shape) chooses among those that give this input; it takes the place of output_padding.
TAPIR_CONV_TRANSPOSE(ConvTranspose1d, 1, conv_transpose1d)
TAPIR_CONV_TRANSPOSE(ConvTranspose2d, 2, conv_transpose2d)
TAPIR_CONV_TRANSPOSE(ConvTranspose3d, 3, conv_transpose3d)
#undef TAPIR_CONV
#undef TAPIR_CONV_TRANSPOSE

}  // namespace tapir::inline v0::nn
