#pragma once

// Named ranges of this thread in NVIDIA's profilers; nothing where no profiler listens.
namespace tapir::inline v0::cuda_kernels {

void range_push(const char* name);
void range_pop();

}  // namespace tapir::inline v0::cuda_kernels
