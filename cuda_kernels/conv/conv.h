#pragma once
#include "../vendor/dnn.h"

namespace tapir::inline v0::cuda_kernels {

/// A convolution of any dtype and strides by plain loops: integers, and what the library does not take. bias, (O), may be absent; the
/// backward passes have none.
void direct_conv(Context& ctx, dnn::Pass pass, V x, V w, V y, V bias, const ConvParams& params);

}  // namespace tapir::inline v0::cuda_kernels
