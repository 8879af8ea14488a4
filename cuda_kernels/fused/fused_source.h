#pragma once
#include <string>

#include "fused_layout.h"

namespace tapir::inline v0::cuda_kernels {

/// The CUDA C++ text of a kernel that runs such calls (Note [Generated kernels]), extern "C" under that name; what it includes stands
/// before it. It is launched with the call's arguments as its one argument.
std::string source_of(const FusedLayout& layout, const FusedParams& params, const std::string& name);

}  // namespace tapir::inline v0::cuda_kernels
