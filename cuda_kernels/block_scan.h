#pragma once
#include "kernel.h"

namespace tapir::inline v0::cuda_kernels {

/// The sum of v over the block's threads before this one; `total` gets that of all. `shared` holds 32 values.
__device__ inline int64_t block_scan(int64_t v, int64_t* shared, int64_t& total) {
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, warps = int(blockDim.x) / 32;
  int64_t sum = v;
  for (int d = 1; d < 32; d *= 2) {
    const int64_t before = __shfl_sync(0xffffffffu, sum, lane >= d ? lane - d : lane);
    if (lane >= d) sum += before;
  }
  if (lane == 31) shared[warp] = sum;
  __syncthreads();
  int64_t before = 0;
  total = 0;
  for (int w = 0; w < warps; ++w) {
    if (w < warp) before += shared[w];
    total += shared[w];
  }
  __syncthreads();  // `shared` may be used again
  return before + sum - v;
}

}  // namespace tapir::inline v0::cuda_kernels
