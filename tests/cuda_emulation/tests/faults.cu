// Kernels that compile everywhere and are wrong, each in one way: what the emulation is for.
#include <cuda_pipeline_primitives.h>
#include <early_launch.h>
#include <warp_matrix.h>

#include "test_kernels.h"

namespace emulation_tests {
namespace {

__global__ void diverge_kernel(float* y) {
  if (threadIdx.x == 7) return;  // the others wait for it for ever
  __syncthreads();
  y[threadIdx.x] = 1;
}
__global__ void two_barriers_kernel(float* y) {
  if (threadIdx.x < 32) __syncthreads();
  else __syncthreads();
  y[threadIdx.x] = 1;
}
__global__ void lost_lane_kernel(float* y) {
  if (threadIdx.x < 16) y[threadIdx.x] = __shfl_xor_sync(~0u, 1.f, 1);  // the mask names lanes that go elsewhere
  else __syncwarp();
}
__global__ void beyond_end_kernel(float* y, long n) {
  const long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i <= n) y[i] = 1;
}
__global__ void before_begin_kernel(float* y) { y[int(threadIdx.x) - 1] = 1; }
__global__ void read_beyond_end_kernel(const float* x, float* y, long n) {
  if (long(threadIdx.x) < n) y[threadIdx.x] = x[threadIdx.x + 1];
}
__global__ void reverse_without_barrier_kernel(float* y) {
  __shared__ float tile[64];
  tile[threadIdx.x] = y[threadIdx.x];
  y[threadIdx.x] = tile[63 - threadIdx.x];
}
__global__ void warp_without_sync_kernel(float* y) {  // one warp is not one thread
  __shared__ float tile[32];
  tile[threadIdx.x] = y[threadIdx.x];
  y[threadIdx.x] = tile[31 - threadIdx.x];
}
__global__ void blocks_meet_kernel(float* y) {
  if (threadIdx.x == 0) y[0] += 1;  // every block
}
__global__ void uninitialised_shared_kernel(float* y) {
  __shared__ float tile[64];
  if (threadIdx.x < 63) tile[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = tile[threadIdx.x];
}
__global__ void through_table_kernel(float* const* table, float* y) { y[0] = table[0][0]; }
__device__ float deep(volatile float* y, int n) {
  volatile float own[256];
  own[n % 256] = y[0];
  return n == 0 ? own[0] : deep(own, n - 1) + own[n % 256];
}
struct alignas(16) Four {
  float of[4];
};
__global__ void misaligned_read_kernel(float* y) {
  const Four four = *reinterpret_cast<const Four*>(y + 1);
  y[0] = four.of[2];
}
__global__ void misaligned_write_kernel(float* y) { *reinterpret_cast<Four*>(y + 2) = Four{}; }
__global__ void early_read_kernel(const float* x, float* y) {
  __shared__ float tile[32];
  __pipeline_memcpy_async(tile + threadIdx.x, x + threadIdx.x, 4);
  __pipeline_commit();
  y[threadIdx.x] = tile[threadIdx.x];
  __pipeline_wait_prior(0);
}
__global__ void copy_ahead_kernel(const float* x, float* y, bool lets_first) {
  using namespace tapir::cuda_kernels;
  if (lets_first) let_next_begin();
  const float ahead = x[threadIdx.x];
  wait_for_previous();
  let_next_begin();
  y[threadIdx.x] = ahead;
}
__global__ void misaligned_row_kernel(uint32_t* words) {
  __shared__ uint32_t tile[1024];
  tile[threadIdx.x] = 0;
  uint32_t to[4];
  tapir::cuda_kernels::load_matrices<false>(to, tile + threadIdx.x * 8 + 2);
  words[threadIdx.x] = to[0];
}
__global__ void overflow_stack_kernel(float* y) { y[0] = deep(y, 1000000); }
}  // namespace

cudaError_t diverge(float* y, cudaStream_t s) { return start(diverge_kernel, 1, 64, 0, s, y); }
cudaError_t two_barriers(float* y, cudaStream_t s) { return start(two_barriers_kernel, 1, 64, 0, s, y); }
cudaError_t lost_lane(float* y, cudaStream_t s) { return start(lost_lane_kernel, 1, 32, 0, s, y); }
cudaError_t beyond_end(float* y, long n, cudaStream_t s) {
  return start(beyond_end_kernel, unsigned(n / 64 + 1), 64, 0, s, y, n);
}
cudaError_t before_begin(float* y, cudaStream_t s) { return start(before_begin_kernel, 1, 64, 0, s, y); }
cudaError_t read_beyond_end(const float* x, float* y, long n, cudaStream_t s) {
  return start(read_beyond_end_kernel, 1, unsigned(n), 0, s, x, y, n);
}
cudaError_t reverse_without_barrier(float* y, cudaStream_t s) {
  return start(reverse_without_barrier_kernel, 1, 64, 0, s, y);
}
cudaError_t warp_without_sync(float* y, cudaStream_t s) { return start(warp_without_sync_kernel, 1, 32, 0, s, y); }
cudaError_t blocks_meet(float* y, cudaStream_t s) { return start(blocks_meet_kernel, 4, 32, 0, s, y); }
cudaError_t uninitialised_shared(float* y, cudaStream_t s) {
  return start(uninitialised_shared_kernel, 1, 64, 0, s, y);
}
cudaError_t through_table(float* const* table, float* y, cudaStream_t s) {
  return start(through_table_kernel, 1, 1, 0, s, table, y);
}
cudaError_t misaligned_read(float* y, cudaStream_t s) { return start(misaligned_read_kernel, 1, 1, 0, s, y); }
cudaError_t misaligned_write(float* y, cudaStream_t s) { return start(misaligned_write_kernel, 1, 1, 0, s, y); }
cudaError_t early_read(const float* x, float* y, cudaStream_t s) { return start(early_read_kernel, 1, 32, 0, s, x, y); }
cudaError_t copy_ahead(const float* x, float* y, bool early, bool lets_first, cudaStream_t s) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = 1, config.blockDim = 32, config.stream = s, config.attrs = &attribute, config.numAttrs = early;
  return cudaLaunchKernelEx(&config, copy_ahead_kernel, x, y, lets_first);
}
cudaError_t misaligned_row(unsigned* words, cudaStream_t s) { return start(misaligned_row_kernel, 1, 32, 0, s, words); }
cudaError_t overflow_stack(float* y, cudaStream_t s) { return start(overflow_stack_kernel, 1, 1, 0, s, y); }
}  // namespace emulation_tests
