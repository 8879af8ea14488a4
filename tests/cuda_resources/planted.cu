// Kernels for tools/cuda_resources --self-test. The good ones pass its gate; each of the others is wrong in one way.
#include <cuda_runtime.h>

namespace planted {
struct alignas(16) Pack {
  float of[4];
};
/// Keeps N numbers in registers across a barrier.
template <int N> __device__ void hold(float* y, const float* x) {
  float v[N];
#pragma unroll
  for (int i = 0; i < N; ++i) v[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < N; ++i) y[i * 1024 + threadIdx.x] = v[N - 1 - i];
}

static __global__ void good_static(float* y) { y[threadIdx.x] = 1; }

namespace {
template <class T> __global__ void __launch_bounds__(1024) good_copy(T* y, const T* x) {
  y[threadIdx.x] = x[threadIdx.x];
}
/// 16 bytes are claimed.
template <class T> __global__ void __launch_bounds__(1024) bad_scalar_copy(T* y, const T* x) {
  for (int i = 0; i < 4; ++i) y[i * 1024 + threadIdx.x] = x[i * 1024 + threadIdx.x];
}
/// Loads by 16 bytes, stores by 4.
__global__ void __launch_bounds__(1024) bad_scalar_store(float* y, const Pack* x) {
  const Pack pack = x[threadIdx.x];
  for (int i = 0; i < 4; ++i) y[i * 1024 + threadIdx.x] = pack.of[i];
}
/// About 80 registers, for 1,024 threads.
__global__ void bad_registers(float* y, const float* x) { hold<72>(y, x); }
/// Hot, and 64 registers do not hold it.
__global__ void __launch_bounds__(1024) bad_spills(float* y, const float* x) { hold<96>(y, x); }
__global__ void bad_without_bound(float* y) { y[threadIdx.x] = 1; }
__global__ void __launch_bounds__(256) bad_beyond_bound(float* y) { y[threadIdx.x] = 1; }
/// Hot, and nothing launches it.
__global__ void bad_never_launched(float* y) { y[0] = 1; }
/// With 20 KiB of dynamic shared memory.
__global__ void bad_shared(float* y) {
  __shared__ float tile[10 << 10];
  tile[threadIdx.x] = y[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[threadIdx.x ^ 1];
}
}  // namespace

/// So that all of them are compiled.
void name(const void** to) {
  for (const auto kernel : {&bad_registers, &bad_spills, &bad_scalar_copy<float>})
    *to++ = reinterpret_cast<const void*>(kernel);
  for (const auto kernel : {&good_static, &bad_without_bound, &bad_beyond_bound, &bad_never_launched, &bad_shared})
    *to++ = reinterpret_cast<const void*>(kernel);
  *to++ = reinterpret_cast<const void*>(&good_copy<Pack>);
  *to = reinterpret_cast<const void*>(&bad_scalar_store);
}
}  // namespace planted
