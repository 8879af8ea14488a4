#pragma once
#include "../core/backend.h"

namespace tapir::inline v0::cpu {
using V = const TensorView&;

// memory.cpp
void* allocate(int64_t bytes, Device device, void* stream);
void release(void* data, int64_t bytes, Device device);
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes, void* stream);
void synchronize(Device device, void* stream);

// The kernels of the CPU, each under the name of its entry: core/entries.h is their contract.
#define X(name, E) entry::Kernel<entry::E> name;
TAPIR_ENTRIES(X)
#undef X

}  // namespace tapir::inline v0::cpu
