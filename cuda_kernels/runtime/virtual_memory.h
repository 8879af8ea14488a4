#pragma once
#include "device.h"

// Addresses and memory apart, as the driver's virtual memory management gives them: a range of addresses is reserved once, and pages of it
// get memory and lose it again. The driver's functions are asked for by name, so nothing is linked with libcuda.
namespace tapir::inline v0::cuda_kernels::virtual_memory {

/// Has the driver these functions, and does the device map pages of that many bytes?
bool is_available(Device device, int64_t page);
/// Addresses without memory; null when the driver gives none.
char* reserve(int64_t bytes);
/// Memory of the device for [at, at + page); false when it has none left.
bool map(Device device, char* at, int64_t page);
/// Takes it away again: only when no work that uses it is left. Never throws.
void unmap(char* at, int64_t page);

}  // namespace tapir::inline v0::cuda_kernels::virtual_memory
