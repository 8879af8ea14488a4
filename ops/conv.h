#pragma once
#include <string_view>

#include "../core/tensor.h"

namespace tapir::inline v0 {

/// Zeros around the input: a number, one for each spatial axis, "valid" (none) or "same" (as many as keep the size; stride 1).
class Padding {
 public:
  enum class Kind : uint8_t { Sizes, Valid, Same };
  template <std::integral Int> Padding(Int size) : sizes(size) {}
  Padding(std::initializer_list<int64_t> list) : sizes(list) {}
  Padding(const Dims& list) : sizes(list) {}
  /// ValueError for another name.
  Padding(std::string_view name);
  Padding(const char* name) : Padding(std::string_view(name)) {}
  Kind kind = Kind::Sizes;
  Dims sizes;
};

/// conv2d(x, w, bias, {.stride = 2, .padding = {1, 2}}): each is one number or one for each spatial axis.
struct ConvOptions {
  Dims stride = 1;
  Padding padding = 0;
  Dims dilation = 1;
  int64_t groups = 1;
};
struct ConvTransposeOptions {
  Dims stride = 1;
  Dims padding = 0;
  Dims output_padding = 0;
  int64_t groups = 1;
  Dims dilation = 1;
};

// x: (N, C, ...) or, for one sample, (C, ...); weight: (O, C / groups, ...); bias: (O) or absent -> (N, O, ...), in
// channels_last where x or weight is. ValueError for shapes and options that do not fit and dtypes that differ.
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions& options = {});
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions& options = {});
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions& options = {});

// The transpose of a convolution as a linear map. weight: (C, O / groups, ...). An axis of n becomes
// (n - 1) stride - 2 padding + dilation (k - 1) + output_padding + 1.
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTransposeOptions& options = {});
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTransposeOptions& options = {});
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTransposeOptions& options = {});

}  // namespace tapir::inline v0
