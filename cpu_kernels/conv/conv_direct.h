#pragma once
#include "../dnn.h"
#include "../kernels.h"

namespace tapir::inline v0::cpu {

/// The weight gradient of a float32 convolution in channels-last order with few weights, at 90 % of the machine's peak where libraries
/// reach half of it. dw: (O, C, spatial...) by its strides. False: not this shape.
bool direct_backward_weight(Context& ctx, const dnn::ConvShape& s, V dw, const float* dy, const float* x);

}  // namespace tapir::inline v0::cpu
