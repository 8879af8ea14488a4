// The part of CUDA's header of the same name, the driver's, that Tapir uses: virtual memory. Reached by cudaGetDriverEntryPointByVersion.
#pragma once
#include <cstddef>

#include "cuda_runtime_api.h"

enum CUresult {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_HANDLE = 400,
};
enum CUmemAllocationType { CU_MEM_ALLOCATION_TYPE_INVALID = 0, CU_MEM_ALLOCATION_TYPE_PINNED = 1 };
enum CUmemAllocationHandleType { CU_MEM_HANDLE_TYPE_NONE = 0 };
enum CUmemLocationType { CU_MEM_LOCATION_TYPE_INVALID = 0, CU_MEM_LOCATION_TYPE_DEVICE = 1 };
enum CUmemAccess_flags {
  CU_MEM_ACCESS_FLAGS_PROT_NONE = 0,
  CU_MEM_ACCESS_FLAGS_PROT_READ = 1,
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3
};
enum CUmemAllocationGranularity_flags {
  CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0,
  CU_MEM_ALLOC_GRANULARITY_RECOMMENDED = 1
};
using CUdeviceptr = unsigned long long;
using CUmemGenericAllocationHandle = unsigned long long;
struct CUmemLocation {
  CUmemLocationType type;
  int id;
};
struct CUmemAllocationProp {
  CUmemAllocationType type;
  CUmemAllocationHandleType requestedHandleTypes;
  CUmemLocation location;
  void* win32HandleMetaData;
  struct {
    unsigned char compressionType, gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
};
struct CUmemAccessDesc {
  CUmemLocation location;
  CUmemAccess_flags flags;
};

#pragma GCC visibility push(hidden)
extern "C" {
CUresult cuMemGetAllocationGranularity(size_t*, const CUmemAllocationProp*, CUmemAllocationGranularity_flags);
CUresult cuMemAddressReserve(CUdeviceptr*, size_t bytes, size_t alignment, CUdeviceptr wish, unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr, size_t bytes);
CUresult cuMemCreate(CUmemGenericAllocationHandle*, size_t bytes, const CUmemAllocationProp*, unsigned long long flags);
CUresult cuMemRelease(CUmemGenericAllocationHandle);
CUresult cuMemMap(CUdeviceptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle, unsigned long long flags);
CUresult cuMemSetAccess(CUdeviceptr, size_t bytes, const CUmemAccessDesc*, size_t count);
CUresult cuMemUnmap(CUdeviceptr, size_t bytes);
}
#pragma GCC visibility pop
