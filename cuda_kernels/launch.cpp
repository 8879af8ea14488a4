#include "launch.h"

#include <cstdlib>
#include <cstring>

#include "../core/error.h"

namespace tapir::inline v0::cuda_kernels {

void check_launch(cudaError_t error, const char* op, const Grid& grid, cudaStream_t stream) {
  static const bool wait = [] {
    const char* text = std::getenv("TAPIR_CUDA_SYNC");
    return text && std::strcmp(text, "0") != 0;
  }();
  if (error == cudaSuccess && wait) error = cudaStreamSynchronize(stream);
  if (error == cudaSuccess) [[likely]]
    return;
  if (error == cudaErrorNoKernelImageForDevice) {
    int device = 0, major = 0, minor = 0;
    cudaGetLastError();
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    fail(ErrorKind::Runtime,
         "[{}] expected a device of the architectures that Tapir was built for ({}), got compute capability {}.{}", op,
         TAPIR_CUDA_ARCHITECTURES, major, minor);
  }
  if (error == cudaErrorInvalidConfiguration || error == cudaErrorInvalidValue) {
    cudaGetLastError();
    fail(ErrorKind::Runtime,
         "[{}] CUDA: {}: a grid of ({}, {}, {}) blocks of ({}, {}, {}) threads with {} bytes of shared memory", op,
         cudaGetErrorName(error), grid.blocks.x, grid.blocks.y, grid.blocks.z, grid.threads.x, grid.threads.y,
         grid.threads.z, int64_t(grid.shared_bytes));
  }
  fail_cuda(error, op);
}

int multiprocessors(Device device) {
  static int counts[kMaxDevices] = {};  // the same number from every thread
  int& n = counts[device.index];
  if (n == 0) check_cuda(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device.index), "cuda");
  return n;
}

}  // namespace tapir::inline v0::cuda_kernels
