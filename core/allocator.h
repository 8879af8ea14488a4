#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "device.h"

namespace tapir::inline v0 {

/// What a caching allocator holds, in bytes: the CPU's here, a CUDA device's from cuda::memory_stats().
struct MemoryStats {
  int64_t allocated = 0;  // in use by tensors and scratch
  int64_t reserved = 0;   // taken from the system: allocated plus cached
  /// Peaks since the start or reset_peak_memory_stats(). The CPU's is right to 256 KiB for each thread beside the one that asks.
  int64_t max_allocated = 0;
  int64_t max_reserved = 0;
  int64_t allocations = 0;         // calls served
  int64_t system_allocations = 0;  // of these, calls that went to the system
};
/// Takes the allocator's lock and adds up what the threads have counted.
MemoryStats memory_stats();
void reset_peak_memory_stats();
/// Gives cached blocks back to the system.
void trim_memory();
/// A table of the above for people.
std::string memory_summary();
/// The same of any device; available: what is left, INT64_MAX when unknown.
std::string memory_table(std::string_view title, const MemoryStats& stats, int64_t available);
/// "1.50 GiB"
std::string readable_bytes(int64_t bytes);

/// Blocks of the CPU's allocator: aligned to 64 bytes, not initialised; null when the system has no more. Behind the table's
/// allocate and release; tensors come here through it.
void* cpu_allocate(int64_t bytes);
void cpu_release(void* data, int64_t bytes);
/// Throws OutOfMemoryError: what was asked for, what is allocated, reserved and cached, and what the machine has left.
[[noreturn]] void fail_out_of_memory(int64_t bytes, Device device);

/// Small fixed-size blocks for tensor and tape nodes, from lists of this thread.
void* pool_allocate(std::size_t bytes);
void pool_release(void* block, std::size_t bytes) noexcept;

}  // namespace tapir::inline v0
