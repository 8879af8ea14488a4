// From cudaLaunchKernelEx to the blocks: what CUDA refuses is refused, pointers are looked at, and blocks run in random order.
#include "include/emulation/launch.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "../../core/denormal_bits.h"
#include "count.h"
#include "fibers.h"

namespace cuda_emulation {
namespace {
auto& shared_limits = *new std::map<const void*, size_t>;  // of the kernels that asked for more than 48 KiB
uint32_t launches = 0;
const bool seeded = [] {
  if (const char* text = std::getenv("TAPIR_EMULATED_SEED")) set_seed(unsigned(std::atoi(text)));
  return true;
}();

cudaError_t check_configuration(const cudaLaunchConfig_t& c, const void* kernel) {
  const dim3 g = c.gridDim, b = c.blockDim;
  if (!kernel) return cudaErrorInvalidDeviceFunction;
  if (!has_kernel_image()) return cudaErrorNoKernelImageForDevice;
  if (!g.x || !g.y || !g.z || g.x > 0x7fffffff || g.y > 65535 || g.z > 65535) return cudaErrorInvalidConfiguration;
  if (!b.x || !b.y || !b.z || b.x > 1024 || b.y > 1024 || b.z > 64 || b.x * b.y * b.z > 1024)
    return cudaErrorInvalidConfiguration;
  if (b.x * b.y * b.z > launch_bound(kernel)) return cudaErrorLaunchOutOfResources;
  if (c.dynamicSmemBytes > kSharedDefault) {
    const auto own = shared_limits.find(kernel);
    if (own == shared_limits.end() || c.dynamicSmemBytes > own->second) return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}
/// Opens the memory that the arguments name, for reading, and refuses pointers to anything else.
void look_at_arguments(const Call& call) {
  for (size_t i = 0; i < call.count; ++i) {
    const Argument& a = call.arguments[i];
    for (size_t k = 0; k < a.count; ++k) {
      const void* p;
      std::memcpy(&p, static_cast<const char*>(call.args) + a.offset + a.pointers[k], sizeof p);
      const auto where = [&] {
        return "argument " + std::to_string(i) + (a.size > sizeof p ? " at byte " + std::to_string(a.pointers[k]) : "");
      };
      if (!p) continue;
      if (!is_device_pointer(p)) {
        if (!is_pinned(p)) fail(where() + " is a host pointer");
        continue;
      }
      Allocation* m = find(p);
      if (!m && a.size == sizeof p)
        fail(where() + " points to device memory that is not allocated (freed, or a stray pointer)");
      if (m && m->state < Allocation::Readable && p >= m->pages) touch(*m, false);
    }
  }
}
/// Whatever the host's threads do with denormal numbers, a kernel does what it was compiled for. (Float64 ones are flushed with the others
/// here, and never by a GPU.)
void run_grid(const cudaLaunchConfig_t& config, const Call& call) {
  const tapir::detail::DenormalBits bits(flushes_denormals(call.kernel) ? tapir::detail::kFlushBits : 0);
  if (counting()) return count_grid(config, call, ++launches);
  const dim3 g = config.gridDim;
  const size_t count = size_t(g.x) * g.y * g.z;
  std::vector<uint32_t> order(count > 1 ? count : 0);
  for (size_t i = 0; i < order.size(); ++i) order[i] = uint32_t(i);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_below(i)]);
  gridDim = g, blockDim = config.blockDim;
  ++launches;
  take_lets_first();
  for (size_t k = 0; k < count; ++k) {
    const uint32_t i = count > 1 ? order[k] : 0;
    blockIdx = {i % g.x, i / g.x % g.y, i / (g.x * g.y)};
    run_block(call, config, launches);
  }
  if (!take_lets_first()) work->stream.orderly = launches;
}
/// With copies of its arguments.
cudaError_t keep_launch(const cudaLaunchConfig_t& config, const Call& call) {
  struct alignas(64) Line {
    char bytes[64];
  };
  const size_t lines = (call.size + sizeof(Line) - 1) / sizeof(Line);
  const auto args = std::make_shared<std::vector<Line>>(lines);
  std::memcpy(args->data(), call.args, call.size);
  std::vector<Argument> arguments(call.arguments, call.arguments + call.count);
  return keep(config.stream, [config, call, args, arguments, begins_early = is_early(config)](cudaStream_t s) {
    cudaLaunchConfig_t now = config;
    Call kept = call;
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization, early.val.programmaticStreamSerializationAllowed = 1;
    now.stream = s, now.attrs = &early, now.numAttrs = begins_early;
    kept.args = args->data(), kept.arguments = arguments.data();
    return launch(now, kept);
  });
}
}  // namespace

cudaError_t launch(const cudaLaunchConfig_t& config, const Call& call) {
  const std::lock_guard lock(runtime);
  Stream* stream = stream_of(config.stream);
  if (!stream || stream->device != current_device()) return report(cudaErrorInvalidResourceHandle);
  if (const cudaError_t e = refuse_use(stream); e != cudaSuccess) return e;
  if (const cudaError_t e = check_configuration(config, call.kernel); e != cudaSuccess) return report(e);
  if (stream->capture) return keep_launch(config, call);
  log_launch(config, call.kernel);
  Work now({.kernel = call.kernel}, *stream);
  if (!counting()) look_at_arguments(call);
  run_grid(config, call);
  check_margins();
  return cudaSuccess;
}
}  // namespace cuda_emulation

using namespace cuda_emulation;

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute which, int value) {
  const std::lock_guard lock(runtime);
  if (!kernel) return report(cudaErrorInvalidDeviceFunction);
  if (!has_kernel_image()) return report(cudaErrorNoKernelImageForDevice);
  if (which != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || size_t(value) > kSharedLimit) return report(cudaErrorInvalidValue);
  return shared_limits[kernel] = size_t(value), cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* kernel) {
  const std::lock_guard lock(runtime);
  if (!kernel) return report(cudaErrorInvalidDeviceFunction);
  if (!has_kernel_image()) return report(cudaErrorNoKernelImageForDevice);
  const auto own = shared_limits.find(kernel);
  *out = {};
  out->maxThreadsPerBlock = int(launch_bound(kernel)), out->numRegs = 32, out->ptxVersion = out->binaryVersion = 90;
  out->maxDynamicSharedSizeBytes = int(own == shared_limits.end() ? kSharedDefault : own->second);
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                          size_t shared_bytes) {
  if (!kernel) return report(cudaErrorInvalidDeviceFunction);
  if (!has_kernel_image()) return report(cudaErrorNoKernelImageForDevice);
  if (threads <= 0) return report(cudaErrorInvalidValue);
  const size_t by_shared = shared_bytes ? (size_t(228) << 10) / (shared_bytes + 1024) : 32;
  *blocks = threads > int(launch_bound(kernel)) ? 0 : int(std::min({size_t(2048 / threads), by_shared, size_t(32)}));
  return cudaSuccess;
}
