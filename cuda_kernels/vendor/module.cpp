#include "module.h"

#include <cuda.h>

#include "../../core/error.h"

namespace tapir::inline v0::cuda_kernels::module {
namespace {

struct Driver {
  decltype(&cuModuleLoadData) load = nullptr;
  decltype(&cuModuleGetFunction) get = nullptr;
  decltype(&cuLaunchKernelEx) launch = nullptr;
  Driver() { find("cuModuleLoadData", load), find("cuModuleGetFunction", get), find("cuLaunchKernelEx", launch); }
  template <class F> static void find(const char* name, F& function) {
    constexpr unsigned kVersion = 12000;  // whose form of the functions we call
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    void* address = nullptr;
    check_cuda(cudaGetDriverEntryPointByVersion(name, &address, kVersion, cudaEnableDefault, &result), "fused");
    check_runtime(address != nullptr, "[fused] expected a CUDA driver that has {}", name);
    function = reinterpret_cast<F>(address);
  }
};
const Driver& driver() {
  static const Driver found;
  return found;
}

}  // namespace

void* load(const std::string& binary, const std::string& name) {
  check_cuda(cudaFree(nullptr), "fused");  // makes the device's context where nothing has yet
  CUmodule loaded = nullptr;
  CUfunction kernel = nullptr;
  const CUresult error = driver().load(&loaded, binary.data());
  check_runtime(error == CUDA_SUCCESS, "[fused] CUDA driver: cuModuleLoadData: error {}", int(error));
  const CUresult found = driver().get(&kernel, loaded, name.c_str());
  check_runtime(found == CUDA_SUCCESS, "[fused] CUDA driver: cuModuleGetFunction: error {}", int(found));
  return kernel;
}

void launch(const Context& ctx, const char* op, void* kernel, const cuda::Grid& grid, std::span<const uint64_t> words,
            int) {
  const OnDevice on(ctx.device);
  void* arguments[] = {const_cast<uint64_t*>(words.data())};
  CUlaunchAttribute early{};
  early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  early.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = grid.blocks.x, config.gridDimY = grid.blocks.y, config.gridDimZ = grid.blocks.z;
  config.blockDimX = grid.threads.x, config.blockDimY = grid.threads.y, config.blockDimZ = grid.threads.z;
  config.sharedMemBytes = unsigned(grid.shared_bytes), config.hStream = stream_of(ctx);
  if (grid.early) config.attrs = &early, config.numAttrs = 1;
  const CUresult error = driver().launch(&config, static_cast<CUfunction>(kernel), arguments, nullptr);
  cuda::check_launch(cudaError_t(error), op, grid, stream_of(ctx));  // both sides number errors alike
}

}  // namespace tapir::inline v0::cuda_kernels::module
