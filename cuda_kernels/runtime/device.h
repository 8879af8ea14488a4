#pragma once
#include <cuda_runtime.h>

#include <string_view>

#include "../../core/cuda_launch.h"
#include "../../core/device_table.h"
#include "../kernels.h"

// What the host side of every file here needs: errors, the device in use, memory, streams.
namespace tapir::inline v0::cuda_kernels {

using cuda::check_cuda, cuda::fail_cuda, cuda::OnDevice;

inline cudaStream_t stream_of(const Context& ctx) { return static_cast<cudaStream_t>(ctx.stream); }
inline cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }
/// Streaming multiprocessors of the device; looked up once.
int multiprocessors(Device device);
int compute_capability(Device device);  // 90 is 9.0
/// The architecture that the kernels which the device runs were compiled for: that, or an older one whose PTX the driver translates. Looked
/// up once.
int code_version(Device device);
/// May kernels be launched early there (Note [Early launches])? Not where a capture with such launches has failed, nor with
/// TAPIR_CUDA_EARLY=0.
bool begins_early(Device device);
/// May kernels that run there use vendor/ptx/warp_matrix.h?
inline bool has_warp_matrix(Device device) { return code_version(device) >= 80; }
extern const CudaSettings* settings;
int device_count();

// memory.cpp: the table's memory entries (Note [CUDA memory])
void* allocate(int64_t bytes, Device device, void* stream);  // throws OutOfMemoryError
void release(void* data, int64_t bytes, Device device);
void record_stream(Device device, void* data, void* stream);
void empty_cache(Device device);
MemoryStats memory_stats(Device device);
void reset_peak(Device device);
void mem_get_info(Device device, int64_t& free, int64_t& total);
void set_memory_fraction(Device device, double fraction);
void for_each_block(Device device, void (*visit)(void* user, const cuda::MemoryBlock&), void* user);

// pinned.cpp: page-locked host memory, cached
void* allocate_pinned(int64_t bytes);
void release_pinned(void* data);
bool is_pinned(const void* data);
/// A copy queued there uses that memory; false, and nothing done, where it is not page-locked memory of ours.
bool note_pinned_use(const void* data, Device device, cudaStream_t stream);

// streams.cpp: copies, streams, events, waiting
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes, void* stream);
void synchronize(Device device, void* stream);
extern const DeviceTable device_table;
/// Events without timing, kept for reuse. Of the current device; null when there is none (the driver is gone).
cudaEvent_t take_event(Device device);
void return_event(Device device, cudaEvent_t event);
/// Waits for every stream of the current device that work is queued on. Not for captures: Note [Graphs].
cudaError_t wait_for_streams(Device device);
void count_host_wait();  // for DeviceTable::synchronizations

/// The next kernel's place for a bad value, in memory that host and device share; `ctx` remembers it for check_values().
struct LateError;
LateError* late_error(Context& ctx);
void name_late_error(const Context& ctx, std::string_view text);
/// Throws the first bad value that kernels of the device have met and nobody was told of.
void throw_late_errors(Device device);

}  // namespace tapir::inline v0::cuda_kernels
