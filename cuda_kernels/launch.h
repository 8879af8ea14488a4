#pragma once
#include <algorithm>

#include "device.h"

// Note [Launching]
// Every kernel is started by launch(): it picks stream and device, asks for large shared memory, checks the result and blames the
// operation. `<<<>>>` occurs nowhere, so this is C++ that any compiler reads; users' own kernels are started the same way.
// TAPIR_CUDA_SYNC=1 waits after each launch, so that an error of the kernel itself is blamed on the right one.
namespace tapir::inline v0::cuda_kernels {

struct Grid {
  dim3 blocks, threads;
  size_t shared_bytes = 0;  // dynamic shared memory, see dynamic_shared()
};

/// A grid for n independent pieces of work, `threads` to a block, that loops where there are more: stride = gridDim.x * blockDim.x.
inline Grid grid_of(int64_t n, int threads = 256, int64_t max_blocks = int64_t(1) << 16) {
  return {dim3(unsigned(std::min((n + threads - 1) / threads, max_blocks))), dim3(unsigned(threads))};
}

void check_launch(cudaError_t error, const char* op, const Grid& grid, cudaStream_t stream);

/// Queues kernel(args...) on the context's stream; nothing where the grid is empty. RuntimeError "[op] ..." where CUDA refuses.
template <class... P, class... A>
void launch(const Context& ctx, const char* op, const Grid& grid, void (*kernel)(P...), A&&... args) {
  static_assert(sizeof...(P) == sizeof...(A));
  if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0) return;
  const OnDevice on(ctx.device);
  const cudaStream_t stream = stream_of(ctx);
  if (grid.shared_bytes > (size_t(48) << 10))
    check_launch(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, int(grid.shared_bytes)),
                 op, grid, stream);
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks, config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes, config.stream = stream;
  check_launch(cudaLaunchKernelEx(&config, kernel, P(std::forward<A>(args))...), op, grid, stream);
}

}  // namespace tapir::inline v0::cuda_kernels
