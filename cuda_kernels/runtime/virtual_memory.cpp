#include "virtual_memory.h"

#include <cuda.h>

#include "../../core/error.h"

namespace tapir::inline v0::cuda_kernels::virtual_memory {
namespace {

struct Driver {
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  bool complete = true;

  Driver() {
    find("cuMemGetAllocationGranularity", granularity), find("cuMemAddressReserve", reserve);
    find("cuMemCreate", create), find("cuMemRelease", release), find("cuMemMap", map);
    find("cuMemSetAccess", set_access), find("cuMemUnmap", unmap);
  }
  template <class F> void find(const char* name, F& function) {
    constexpr unsigned kVersion = 12000;  // whose form of the functions we call
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    void* address = nullptr;
    const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &address, kVersion, cudaEnableDefault, &result);
    cudaGetLastError();
    complete = complete && error == cudaSuccess && result == cudaDriverEntryPointSuccess && address;
    function = reinterpret_cast<F>(address);
  }
};
const Driver& driver() {
  static const Driver found;
  return found;
}

CUdeviceptr address_of(const char* p) { return CUdeviceptr(reinterpret_cast<uintptr_t>(p)); }
CUmemAllocationProp memory_of(Device device) {
  CUmemAllocationProp p = {};
  p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.location.type = CU_MEM_LOCATION_TYPE_DEVICE, p.location.id = device.index;
  return p;
}
[[noreturn]] void fail_driver(CUresult error, const char* call) {
  fail(ErrorKind::Runtime, "[allocate] CUDA driver: {}: error {}", call, int(error));
}

}  // namespace

bool is_available(Device device, int64_t page) {
  const CUmemAllocationProp p = memory_of(device);
  size_t unit = 0;
  return driver().complete && driver().granularity(&unit, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS &&
         unit > 0 && size_t(page) % unit == 0;
}

char* reserve(int64_t bytes) {
  CUdeviceptr at = 0;
  if (driver().reserve(&at, size_t(bytes), 0, 0, 0) != CUDA_SUCCESS) return nullptr;
  return reinterpret_cast<char*>(uintptr_t(at));
}

bool map(Device device, char* at, int64_t page) {
  const Driver& d = driver();
  const CUmemAllocationProp p = memory_of(device);
  CUmemGenericAllocationHandle memory = 0;
  const CUresult created = d.create(&memory, size_t(page), &p, 0);
  if (created == CUDA_ERROR_OUT_OF_MEMORY) return false;
  if (created != CUDA_SUCCESS) fail_driver(created, "cuMemCreate");
  const CUresult mapped = d.map(address_of(at), size_t(page), 0, memory, 0);
  d.release(memory);  // the mapping keeps it
  if (mapped != CUDA_SUCCESS) fail_driver(mapped, "cuMemMap");
  CUmemAccessDesc access = {};
  access.location = p.location, access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const CUresult opened = d.set_access(address_of(at), size_t(page), &access, 1);
  if (opened == CUDA_SUCCESS) return true;
  d.unmap(address_of(at), size_t(page));
  if (opened == CUDA_ERROR_OUT_OF_MEMORY) return false;
  fail_driver(opened, "cuMemSetAccess");
}

void unmap(char* at, int64_t page) { driver().unmap(address_of(at), size_t(page)); }

}  // namespace tapir::inline v0::cuda_kernels::virtual_memory
