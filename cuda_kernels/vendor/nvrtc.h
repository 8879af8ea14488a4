#pragma once
#include <string>

// The small functions before NVRTC, which makes machine code of CUDA C++ text. The library is opened when it is first asked for.
namespace tapir::inline v0::cuda_kernels::nvrtc {

/// Why there is no compiler that works; empty where there is one.
const std::string& why_not();
/// "NVRTC 13.0 (/usr/local/cuda/lib64/libnvrtc.so.13)", or why there is none.
std::string describe();
/// Why a driver of that CUDA version (13000 is 13.0) would not load what is compiled for devices of that compute capability.
std::string why_not(int capability, int driver);
/// The compiler, its version and options, for whoever keeps what it made.
const std::string& version();
/// A binary of kernel `name` of the text (Note [Generated kernels]) for devices of that compute capability (90), or for the driver to
/// finish where the compiler does not know it. InternalError with the compiler's words where the text is wrong.
std::string compile(const std::string& text, const std::string& name, int capability);

}  // namespace tapir::inline v0::cuda_kernels::nvrtc
