#include <atomic>

#include "device.h"

namespace tapir::inline v0::cuda_kernels {

static __global__ void any_kernel() {}

int code_version(Device device) {
  static std::atomic<int> versions[kMaxDevices];  // the same number from every thread
  std::atomic<int>& version = versions[device.index];
  if (version == 0) {
    const OnDevice on(device);
    cudaFuncAttributes attributes{};
    check_cuda(cudaFuncGetAttributes(&attributes, any_kernel), "cuda");
    version = attributes.ptxVersion;
  }
  return version;
}

}  // namespace tapir::inline v0::cuda_kernels
