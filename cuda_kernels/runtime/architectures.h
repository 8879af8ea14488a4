#pragma once
#include <string_view>

namespace tapir::inline v0::cuda_kernels {

/// Has a plugin made for these architectures, named as in CMAKE_CUDA_ARCHITECTURES ("80, 90-real, 100f"), code for a device of that
/// compute capability (90 is 9.0)? Machine code serves later devices of its major number, PTX all later ones; both only that very device
/// (a) or its major number (f) where the name says so. A list that names no numbers ("native") has.
bool has_code(std::string_view architectures, int capability);

}  // namespace tapir::inline v0::cuda_kernels
