// The driver's virtual memory: addresses are reserved, memory is made, mapped there and opened. A mapping that is open is an allocation
// like cudaMalloc's, but without a guard page: its neighbours go on where it ends. What the driver refuses is refused; what would be
// undefined there, unmapping while the device may still work on it, is a Fault.
#include <cuda.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>

#include "runtime.h"

namespace cuda_emulation {
namespace {
constexpr size_t kUnit = size_t(2) << 20;
struct Memory {
  size_t bytes;
  int device, mappings = 0;
  bool held = true;  // by its handle
};
struct Mapping {
  size_t bytes;
  CUmemGenericAllocationHandle memory;
  bool open = false;
};
auto& reserved = *new std::map<CUdeviceptr, size_t>;
auto& mappings = *new std::map<CUdeviceptr, Mapping>;
auto& memories = *new std::map<CUmemGenericAllocationHandle, Memory>;
CUmemGenericAllocationHandle next_memory = 1;

bool fits(size_t bytes) { return bytes > 0 && bytes % kUnit == 0; }
bool is_of_device(const CUmemAllocationProp* p) {
  return p && p->type == CU_MEM_ALLOCATION_TYPE_PINNED && p->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
         p->location.id >= 0 && p->location.id < device_count();
}
char* at(CUdeviceptr p) { return reinterpret_cast<char*>(uintptr_t(p)); }
void drop(CUmemGenericAllocationHandle handle) {
  const auto it = memories.find(handle);
  if (it->second.held || it->second.mappings > 0) return;
  count_bytes(it->second.device, -long(it->second.bytes));
  memories.erase(it);
}
/// f(each mapping) where the range is whole mappings side by side.
template <class F> bool for_mappings(CUdeviceptr begin, size_t bytes, F&& f) {
  for (CUdeviceptr p = begin; p < begin + bytes;) {
    const auto it = mappings.find(p);
    if (it == mappings.end() || p + it->second.bytes > begin + bytes) return false;
    p += it->second.bytes;
  }
  for (auto it = mappings.find(begin); it != mappings.end() && it->first < begin + bytes;) f(it++);
  return true;
}
}  // namespace
}  // namespace cuda_emulation

using namespace cuda_emulation;

CUresult cuMemGetAllocationGranularity(size_t* unit, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags) {
  if (!unit || !is_of_device(prop)) return CUDA_ERROR_INVALID_VALUE;
  return *unit = kUnit, CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr* p, size_t bytes, size_t alignment, CUdeviceptr, unsigned long long flags) {
  const std::lock_guard lock(runtime);
  if (!p || !fits(bytes) || flags || (alignment & (alignment - 1))) return CUDA_ERROR_INVALID_VALUE;
  *p = uintptr_t(take_addresses(bytes, alignment > kUnit ? alignment : kUnit));
  return reserved[*p] = bytes, CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr p, size_t bytes) {
  const std::lock_guard lock(runtime);
  const auto it = reserved.find(p);
  if (it == reserved.end() || it->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto inside = mappings.lower_bound(p);
  if (inside != mappings.end() && inside->first < p + bytes) return CUDA_ERROR_INVALID_VALUE;
  return reserved.erase(it), CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* prop,
                     unsigned long long flags) {
  const std::lock_guard lock(runtime);
  if (!handle || !fits(bytes) || flags || !is_of_device(prop)) return CUDA_ERROR_INVALID_VALUE;
  if (!count_bytes(prop->location.id, long(bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
  memories[next_memory] = {bytes, prop->location.id};
  return *handle = next_memory++, CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(runtime);
  const auto it = memories.find(handle);
  if (it == memories.end() || !it->second.held) return CUDA_ERROR_INVALID_VALUE;
  it->second.held = false;
  return drop(handle), CUDA_SUCCESS;
}
CUresult cuMemMap(CUdeviceptr p, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  const std::lock_guard lock(runtime);
  const auto memory = memories.find(handle);
  auto range = reserved.upper_bound(p);
  if (memory == memories.end() || !memory->second.held || range == reserved.begin()) return CUDA_ERROR_INVALID_VALUE;
  --range;
  if (offset || flags || bytes != memory->second.bytes || p % kUnit || p + bytes > range->first + range->second)
    return CUDA_ERROR_INVALID_VALUE;
  const auto next = mappings.lower_bound(p);
  if (next != mappings.end() && next->first < p + bytes) return CUDA_ERROR_INVALID_VALUE;
  if (next != mappings.begin() && std::prev(next)->first + std::prev(next)->second.bytes > p)
    return CUDA_ERROR_INVALID_VALUE;
  ++memory->second.mappings;
  return mappings[p] = {bytes, handle}, CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr p, size_t bytes, const CUmemAccessDesc* access, size_t count) {
  const std::lock_guard lock(runtime);
  if (!access || count != 1 || access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_INVALID_VALUE;
  const bool whole = for_mappings(p, bytes, [&](auto it) {
    Mapping& m = it->second;
    if (!m.open) open_pages(at(it->first), m.bytes, memories[m.memory].device);
    m.open = true;
  });
  return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemUnmap(CUdeviceptr p, size_t bytes) {
  const std::lock_guard lock(runtime);
  const bool whole = for_mappings(p, bytes, [&](auto it) {
    const Mapping m = it->second;
    if (m.open) close_pages(at(it->first));
    --memories[m.memory].mappings;
    mappings.erase(it), drop(m.memory);
  });
  return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  static const struct {
    const char* name;
    void* address;
  } all[] = {
#define TAPIR_ENTRY(name) {#name, reinterpret_cast<void*>(&name)}
      TAPIR_ENTRY(cuMemGetAllocationGranularity),
      TAPIR_ENTRY(cuMemAddressReserve),
      TAPIR_ENTRY(cuMemAddressFree),
      TAPIR_ENTRY(cuMemCreate),
      TAPIR_ENTRY(cuMemRelease),
      TAPIR_ENTRY(cuMemMap),
      TAPIR_ENTRY(cuMemSetAccess),
      TAPIR_ENTRY(cuMemUnmap),
#undef TAPIR_ENTRY
  };
  if (!symbol || !function) return report(cudaErrorInvalidValue);
  const char* there = std::getenv("TAPIR_EMULATED_VIRTUAL_MEMORY");
  *function = nullptr;
  if (!there || std::strcmp(there, "0") != 0)
    for (const auto& entry : all)
      if (std::strcmp(entry.name, symbol) == 0 && version >= 10020) *function = entry.address;
  if (result) *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
