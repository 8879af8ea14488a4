// The devices there are, what they say of themselves, and errors. Environment: TAPIR_EMULATED_DEVICES (2), TAPIR_EMULATED_DRIVER
// (13000: the version that the driver supports), TAPIR_EMULATED_MEMORY (bytes of each device, 4 GiB), TAPIR_EMULATED_CAPABILITY (90; of each
// device where commas separate several, the last one of the rest), TAPIR_EMULATED_MULTIPROCESSORS.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "count.h"
#include "runtime.h"

namespace cuda_emulation {
namespace {
thread_local int chosen_device = 0;
thread_local bool bound = false;  // this thread has a context: of the calls that give it one we count the plainest two
thread_local cudaError_t last_error = cudaSuccess;
int number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}
constexpr int kBuiltFor = 90;  // an older device finds no kernel image
int capability(int device) {
  const char* text = std::getenv("TAPIR_EMULATED_CAPABILITY");
  if (!text) return kBuiltFor;
  for (const char* next; device > 0 && (next = std::strchr(text, ',')); --device) text = next + 1;
  return std::atoi(text);
}
/// Few, so that loops over a grid do loop; where launches are counted, those of the real one.
int multiprocessors() { return number("TAPIR_EMULATED_MULTIPROCESSORS", counting() ? 132 : 4); }

struct ErrorText {
  cudaError_t error;
  const char *name, *text;
};
constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorDeviceUninitialized, "cudaErrorDeviceUninitialized", "invalid device context"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorPeerAccessUnsupported, "cudaErrorPeerAccessUnsupported",
     "peer access is not supported between these two devices"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorSymbolNotFound, "cudaErrorSymbolNotFound", "named symbol not found"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched", "capture was not initiated in this stream"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};
}  // namespace

int device_count() {
  static const int count =
      number("TAPIR_EMULATED_DRIVER", CUDART_VERSION) < CUDART_VERSION ? 0 : number("TAPIR_EMULATED_DEVICES", 2);
  return count;
}
bool has_kernel_image() { return capability(chosen_device) >= kBuiltFor; }
void bind_context() { bound = true; }
bool has_context() { return bound; }
int current_device() { return device_count() > 0 ? chosen_device : -1; }
cudaError_t report(cudaError_t error) { return last_error = error; }
}  // namespace cuda_emulation

using namespace cuda_emulation;

const char* cudaGetErrorName(cudaError_t error) {
  for (const auto& e : kErrors)
    if (e.error == error) return e.name;
  return "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t error) {
  for (const auto& e : kErrors)
    if (e.error == error) return e.text;
  return "unrecognized error code";
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaDriverGetVersion(int* version) {
  return *version = number("TAPIR_EMULATED_DRIVER", CUDART_VERSION), cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) {
  int driver;
  cudaDriverGetVersion(&driver);
  *count = device_count();
  if (driver == 0) return report(cudaErrorNoDevice);
  if (driver < CUDART_VERSION) return report(cudaErrorInsufficientDriver);
  return *count > 0 ? cudaSuccess : report(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
  if (device_count() == 0) return report(cudaErrorNoDevice);
  if (device < 0 || device >= device_count()) return report(cudaErrorInvalidDevice);
  bind_context();
  return chosen_device = device, cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  if (device_count() == 0) return report(cudaErrorNoDevice);
  return *device = chosen_device, cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  if (device < 0 || device >= device_count()) return report(cudaErrorInvalidDevice);
  cudaDeviceProp p{};
  std::snprintf(p.name, sizeof p.name, "Emulated H100");
  p.uuid.bytes[15] = char(device);
  size_t free;
  const int before = chosen_device;
  chosen_device = device;
  cudaMemGetInfo(&free, &p.totalGlobalMem);
  chosen_device = before;
  p.sharedMemPerBlock = kSharedDefault, p.sharedMemPerBlockOptin = kSharedLimit;
  p.sharedMemPerMultiprocessor = 228 << 10, p.reservedSharedMemPerBlock = 1 << 10;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536, p.warpSize = 32;
  p.memPitch = 0x7fffffff, p.maxThreadsPerBlock = 1024;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024, p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 0x7fffffff, p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.totalConstMem = 65536, p.major = capability(device) / 10, p.minor = capability(device) % 10,
  p.textureAlignment = 512;
  p.multiProcessorCount = multiprocessors(), p.canMapHostMemory = p.concurrentKernels = p.unifiedAddressing = 1;
  p.pciBusID = device + 1, p.asyncEngineCount = 3, p.memoryBusWidth = 5120, p.l2CacheSize = 50 << 20;
  p.maxThreadsPerMultiProcessor = 2048, p.maxBlocksPerMultiProcessor = 32;
  return *out = p, cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  cudaDeviceProp p;
  if (const cudaError_t e = cudaGetDeviceProperties(&p, device); e != cudaSuccess) return e;
  switch (which) {
    case cudaDevAttrMaxThreadsPerBlock: return *value = p.maxThreadsPerBlock, cudaSuccess;
    case cudaDevAttrMaxGridDimX: return *value = p.maxGridSize[0], cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock: return *value = int(p.sharedMemPerBlock), cudaSuccess;
    case cudaDevAttrWarpSize: return *value = 32, cudaSuccess;
    case cudaDevAttrMultiProcessorCount: return *value = p.multiProcessorCount, cudaSuccess;
    case cudaDevAttrL2CacheSize: return *value = p.l2CacheSize, cudaSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return *value = p.maxThreadsPerMultiProcessor, cudaSuccess;
    case cudaDevAttrUnifiedAddressing: return *value = 1, cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor: return *value = p.major, cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: return *value = p.minor, cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return *value = int(p.sharedMemPerMultiprocessor), cudaSuccess;
    case cudaDevAttrMaxRegistersPerMultiprocessor: return *value = p.regsPerMultiprocessor, cudaSuccess;
    case cudaDevAttrManagedMemory: return *value = 0, cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return *value = int(p.sharedMemPerBlockOptin), cudaSuccess;
    case cudaDevAttrReservedSharedMemoryPerBlock: return *value = int(p.reservedSharedMemPerBlock), cudaSuccess;
    case cudaDevAttrMemoryPoolsSupported: return *value = 0, cudaSuccess;
  }
  return report(cudaErrorInvalidValue);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return *least = 0, *greatest = -5, cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (device < 0 || device >= device_count()) return report(cudaErrorInvalidDevice);
  return std::snprintf(text, size_t(length), "0000:%02x:00.0", device + 1), cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { return *can = 0, cudaSuccess; }
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return report(cudaErrorPeerAccessUnsupported); }
