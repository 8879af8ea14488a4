#pragma once
// For .cu files, Tapir's own and users': the one way to start a kernel.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "backend.h"
#include "error.h"
#include "no_copy.h"

#ifndef TAPIR_CUDA_ARCHITECTURES
#define TAPIR_CUDA_ARCHITECTURES "those of its nvcc call"
#define TAPIR_CUDA_ARCHITECTURES_OPTION "CMAKE_CUDA_ARCHITECTURES"
#else  // Tapir's own kernels
#define TAPIR_CUDA_ARCHITECTURES_OPTION "TAPIR_CUDA_ARCHITECTURES"
#endif

// Note [Launching]
// launch() picks stream and device, asks for large shared memory, checks the result and blames the operation. `<<<>>>` occurs nowhere, so
// a .cu file is C++ that any compiler reads: that is how kernels are tested on machines without a GPU.
// TAPIR_CUDA_SYNC=1 waits after each launch, so that an error of the kernel itself is blamed on the right one.
namespace tapir::inline v0::cuda {

/// RuntimeError "[op] ..." with CUDA's name and words for the error; clears it. Some errors cannot be cleared (an illegal address, a
/// kernel that died): every later call fails too, and is told of the first.
[[noreturn]] inline void fail_cuda(cudaError_t error, std::string_view op) {
  static std::mutex mutex;
  static auto* const first = new std::string;  // never destroyed
  cudaGetLastError();
  const int code = int(error);
  const std::string text =
      tapir::format("[{}] CUDA: {}: {}{}", op, cudaGetErrorName(error), cudaGetErrorString(error),
                    code == 3 ? "; a process that was forked after the first use of CUDA cannot use it" : "");
  if (code != 700 && code != 702 && code != 710 && (code < 714 || code > 719) && code != 721)
    fail(ErrorKind::Runtime, "{}", text);
  std::lock_guard lock(mutex);
  const bool again = !first->empty();
  if (!again) *first = text;
  fail(ErrorKind::Runtime, "{}{}. The device is lost to this process; TAPIR_CUDA_SYNC=1 names the kernel that did it",
       text, again ? ", after " + *first : "");
}
inline void check_cuda(cudaError_t error, std::string_view op) {
  if (error != cudaSuccess) [[unlikely]]
    fail_cuda(error, op);
}

/// CUDA calls of this scope mean that device; the thread's own one comes back at the end. A new thread has a device, but not its context,
/// which the driver's functions want: cudaSetDevice binds it.
class [[nodiscard]] OnDevice : NoCopy {
 public:
  explicit OnDevice(Device device) {
    static thread_local constinit uint32_t bound = 0;  // a bit for each device
    const uint32_t bit = uint32_t(1) << device.index;
    cudaGetDevice(&before_);
    if (before_ != device.index || !(bound & bit)) check_cuda(cudaSetDevice(device.index), "cuda"), bound |= bit;
    if (before_ == device.index) before_ = -1;
  }
  ~OnDevice() {
    if (before_ >= 0) cudaSetDevice(before_);
  }

 private:
  int before_ = 0;
};

struct Grid {
  dim3 blocks, threads;
  size_t shared_bytes = 0;  // dynamic shared memory
  bool early = false;  // it begins while the kernel before it ends, and waits itself; compute capability 9.0 and later
};
/// A grid for n independent pieces of work, `threads` to a block, that loops where there are more: stride = gridDim.x * blockDim.x.
inline Grid grid_of(int64_t n, int threads = 256, int64_t max_blocks = int64_t(1) << 16) {
  return {dim3(unsigned(std::min((n + threads - 1) / threads, max_blocks))), dim3(unsigned(threads))};
}

inline void check_launch(cudaError_t error, const char* op, const Grid& grid, cudaStream_t stream) {
  static const bool wait = [] {
    const char* text = std::getenv("TAPIR_CUDA_SYNC");
    return text && std::strcmp(text, "0") != 0;
  }();
  if (error == cudaSuccess && wait) error = cudaStreamSynchronize(stream);
  if (error == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();
  if (error == cudaErrorNoKernelImageForDevice) {
    int device = 0, major = 0, minor = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    fail(ErrorKind::Runtime,
         "[{}] expected a device of the architectures that it was compiled for ({}), got compute capability {}.{}: "
         "compile it for {}{} too, with " TAPIR_CUDA_ARCHITECTURES_OPTION,
         op, TAPIR_CUDA_ARCHITECTURES, major, minor, major, minor);
  }
  if (error == cudaErrorInvalidConfiguration || error == cudaErrorInvalidValue)
    fail(ErrorKind::Runtime,
         "[{}] CUDA: {}: a grid of ({}, {}, {}) blocks of ({}, {}, {}) threads with {} bytes of shared memory", op,
         cudaGetErrorName(error), grid.blocks.x, grid.blocks.y, grid.blocks.z, grid.threads.x, grid.threads.y,
         grid.threads.z, int64_t(grid.shared_bytes));
  fail_cuda(error, op);
}

/// Queues kernel(args...); nothing where the grid is empty. RuntimeError "[op] ..." where CUDA refuses.
template <class... P, class... A> void launch_on(Device device, cudaStream_t stream, const char* op, const Grid& grid,
                                                 void (*kernel)(P...), A&&... args) {
  static_assert(sizeof...(P) == sizeof...(A), "as many arguments as the kernel has parameters");
  if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0) return;
  const OnDevice on(device);
  if (grid.shared_bytes > (size_t(48) << 10))
    check_launch(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, int(grid.shared_bytes)),
                 op, grid, stream);
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks, config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes, config.stream = stream;
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization, early.val.programmaticStreamSerializationAllowed = 1;
  if (grid.early) config.attrs = &early, config.numAttrs = 1;
  check_launch(cudaLaunchKernelEx(&config, kernel, P(std::forward<A>(args))...), op, grid, stream);
}
/// The same on the device's current stream: launch(x.device(), "swish", grid_of(x.numel()), swish_kernel, x.numel(), x.data<float>(), ...)
template <class... P, class... A>
void launch(Device device, const char* op, const Grid& grid, void (*kernel)(P...), A&&... args) {
  launch_on(device, static_cast<cudaStream_t>(current_stream(device)), op, grid, kernel, std::forward<A>(args)...);
}

}  // namespace tapir::inline v0::cuda
