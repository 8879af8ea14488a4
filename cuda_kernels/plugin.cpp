#include <cstdlib>
#include <string>

#include "../core/error.h"
#include "../core/unwinder.h"
#include "kernels.h"
#include "runtime/architectures.h"
#include "runtime/device.h"
#include "vendor/libraries.h"
#include "vendor/nvrtc.h"

// The one symbol that libtapir_cuda.so exports, and the table behind it.
namespace tapir::inline v0::cuda_kernels {

const CudaSettings* settings = nullptr;
static int found_devices = 0;
int device_count() { return found_devices; }

/// Does NVRTC make kernels for every device?
static bool can_fuse() {
  int driver = 0;
  bool all = nvrtc::why_not().empty() && cudaDriverGetVersion(&driver) == cudaSuccess;
  for (int i = 0; i < found_devices && all; ++i)
    all = nvrtc::why_not(compute_capability({DeviceType::CUDA, int8_t(i)}), driver).empty();
  return all;
}

static const BackendTable& table() {
  static const BackendTable table = [] {
    BackendTable t{};
    t.name = "cuda", t.allocate = allocate, t.release = release, t.copy_bytes = copy_bytes;
    t.synchronize = synchronize, t.device = &device_table;
#define X(name, E) \
  if constexpr (!is_lacking<entry::E>) t.name = name;
    TAPIR_ENTRIES(X)
#undef X
    if (!can_fuse()) t.fused = nullptr;  // where nothing compiles, compile() leaves calls apart
    return t;
  }();
  return table;
}

static std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// Empty where some device can run what was compiled; kernels on another one are errors of their own.
static std::string missing_code() {
  std::string found;
  for (int i = 0; i < found_devices; ++i) {
    const int capability = compute_capability({DeviceType::CUDA, int8_t(i)});
    if (has_code(TAPIR_CUDA_ARCHITECTURES, capability)) return "";
    found += (i ? ", " : "") + std::to_string(capability / 10) + '.' + std::to_string(capability % 10);
  }
  return "Tapir was built for the CUDA architectures " TAPIR_CUDA_ARCHITECTURES
         ", which the devices here (compute capability " +
         found + ") do not run: see TAPIR_CUDA_ARCHITECTURES";
}

/// Empty where a device can be used.
static std::string what_is_missing() {
  int driver = 0, runtime = 0;
  cudaRuntimeGetVersion(&runtime);
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    cudaGetLastError();
    return "no CUDA driver was found (libcuda.so.1); Tapir was built for CUDA " + version_text(runtime);
  }
  const cudaError_t error = cudaGetDeviceCount(&found_devices);
  cudaGetLastError();
  if (error == cudaErrorInsufficientDriver)
    return "the CUDA driver is too old: it supports CUDA " + version_text(driver) + ", Tapir was built for CUDA " +
           version_text(runtime);
  if (error == cudaErrorNoDevice || (error == cudaSuccess && found_devices == 0)) return "there is no CUDA device";
  if (error != cudaSuccess) return std::string("CUDA: ") + cudaGetErrorName(error) + ": " + cudaGetErrorString(error);
  found_devices = found_devices < kMaxDevices ? found_devices : kMaxDevices;
  if (std::string why = missing_code(); !why.empty()) return why;
  return why_not(Vendor::CublasLt);
}

int compute_capability(Device device) {
  int major = 0, minor = 0;
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index), "cuda");
  check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.index), "cuda");
  return 10 * major + minor;
}

int multiprocessors(Device device) {
  static int counts[kMaxDevices] = {};  // the same number from every thread
  int& n = counts[device.index];
  if (n == 0) check_cuda(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device.index), "cuda");
  return n;
}

}  // namespace tapir::inline v0::cuda_kernels

extern "C" __attribute__((visibility("default"))) const tapir::CudaPlugin* tapir_cuda_plugin(
    tapir::CudaSettings* settings) {
  using namespace tapir;
  static std::string why_not;
  static const CudaPlugin plugin = [&] {
    fill_unwinder();
    cuda_kernels::settings = settings;
    why_not = cuda_kernels::what_is_missing();
    CudaPlugin p;
    p.table = why_not.empty() ? &cuda_kernels::table() : nullptr;
    p.device_count = cuda_kernels::device_count();
    p.why_not = why_not.c_str();
    p.library_report = [] {
      thread_local std::string text;
      return (text = cuda_kernels::library_report()).c_str();
    };
    return p;
  }();
  return &plugin;
}
