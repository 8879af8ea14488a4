#pragma once
#include "../device.h"

// Convolutions: what stands before cuDNN, and is answered by the CPU's table in the host emulation.
namespace tapir::inline v0::cuda_kernels::dnn {

enum class Pass : uint8_t { Forward, BackwardData, BackwardWeight };
/// Writes y, dx or dw (then y, x, w hold the others) of a convolution without bias. The views are of one floating dtype, no extent is 0,
/// and each fills its memory in one common order: (N, C, spatial), or (N, spatial, C) where `channels_last` is set. False, and nothing
/// worth keeping written, where the library has no kernel for it.
bool conv(Context& ctx, Pass pass, V x, V w, V y, const ConvParams& params, bool channels_last);

}  // namespace tapir::inline v0::cuda_kernels::dnn
