#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "../runtime/device.h"

// The small functions before the driver's modules: what nvrtc::compile() made, on a device.
namespace tapir::inline v0::cuda_kernels::module {

/// Kernel `name` of a binary, ready on the current device. It stays until the program ends.
void* load(const std::string& binary, const std::string& name);
/// Queues it; the words are its one argument, the first `pointers` of them addresses. RuntimeError "[op] ..." where CUDA refuses.
void launch(const Context& ctx, const char* op, void* kernel, const cuda::Grid& grid, std::span<const uint64_t> words,
            int pointers);

}  // namespace tapir::inline v0::cuda_kernels::module
