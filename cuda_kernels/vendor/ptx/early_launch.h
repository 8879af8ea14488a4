#pragma once
#include <cuda_runtime.h>

// Note [Early launches]
// On a GPU of compute capability 9.0 a kernel that is launched early (Grid::early) begins while the one before it in its stream ends: its launch
// costs no time then, and what it asks for ahead is near when it may begin its work. It writes nothing before it has waited for
// the kernels before it (PTX ISA 8, griddepcontrol), and reads only where the kernel before it is known to have waited before it let this one
// begin, or to be no early one: then what was written before that kernel is complete. What it asks for ahead comes into the cache that all
// multiprocessors share, where later writes reach it: it need not be complete yet. tests/cuda_emulation/include has the same functions for
// the host.
namespace tapir::inline v0::cuda_kernels {

/// The kernel behind this one, where it is an early one, may begin when all blocks of this one have called this or ended.
__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
/// Waits until what the kernels before this one wrote can be read.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// The 32 bytes at p, of device memory, come into the shared cache.
__device__ __forceinline__ void fetch_ahead(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

}  // namespace tapir::inline v0::cuda_kernels
