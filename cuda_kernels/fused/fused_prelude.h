#pragma once

namespace tapir::inline v0::cuda_kernels {

/// What stands before the text of a generated kernel for NVRTC: fused_std.h, fused_device.h and all that this includes, as one text
/// (cmake/TapirFused.cmake makes the definition).
extern const char* const fused_prelude;

}  // namespace tapir::inline v0::cuda_kernels
