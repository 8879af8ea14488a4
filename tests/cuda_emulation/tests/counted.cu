// Kernels whose accesses are known, in the plugin whose launches are counted (count_test.cpp). Plain CUDA.
#include "test_kernels.h"

namespace emulation_tests {
namespace {

__global__ void add_once(const float* a, const float* b, float* y, int n) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = a[i] + b[i];
}
/// The mistake that a count must show: one operand is read again.
__global__ void add_twice(const volatile float* a, const float* b, float* y, int n) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = a[i] > 0 ? a[i] + b[i] : a[i] - -b[i];
}
__global__ void gather(const float* x, float* y, int n, int step) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = x[i * step];
}
/// Each lane writes word `step` times its number, and reads it.
__global__ void banks(float* y, int step) {
  __shared__ float words[32 * 32];
  words[threadIdx.x * unsigned(step)] = 1;
  __syncthreads();
  y[threadIdx.x] = words[threadIdx.x * unsigned(step)];
}

dim3 blocks_for(int n) { return dim3(unsigned(n + 255) / 256); }

}  // namespace

#define TAPIR_EXPORT extern "C" __attribute__((visibility("default")))
TAPIR_EXPORT cudaError_t counted_add(const float* a, const float* b, float* y, int n, bool twice) {
  if (twice) return start(add_twice, blocks_for(n), 256, 0, nullptr, a, b, y, n);
  return start(add_once, blocks_for(n), 256, 0, nullptr, a, b, y, n);
}
TAPIR_EXPORT cudaError_t counted_gather(const float* x, float* y, int n, int step) {
  return start(gather, blocks_for(n), 256, 0, nullptr, x, y, n, step);
}
TAPIR_EXPORT cudaError_t counted_banks(float* y, int step) { return start(banks, 1, 32, 0, nullptr, y, step); }
/// Two additions as a graph, launched twice.
TAPIR_EXPORT cudaError_t counted_graph(const float* a, const float* b, float* y, int n) {
  cudaStream_t s = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
  cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal);
  for (int i = 0; i < 2; ++i) start(add_once, blocks_for(n), 256, 0, s, a, b, y, n);
  cudaStreamEndCapture(s, &graph);
  cudaGraphInstantiate(&exec, graph, 0);
  for (int i = 0; i < 2; ++i) cudaGraphLaunch(exec, s);
  const cudaError_t error = cudaStreamSynchronize(s);
  cudaGraphExecDestroy(exec), cudaGraphDestroy(graph), cudaStreamDestroy(s);
  return error;
}

}  // namespace emulation_tests
