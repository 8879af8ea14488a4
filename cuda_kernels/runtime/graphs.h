#pragma once
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "device.h"

// graphs.cpp: Note [Graphs]
namespace tapir::inline v0::cuda_kernels {

/// Places for bad values of the graph that this thread captures; null where it captures none.
std::vector<int>* captured_late_errors();
inline bool captures_here() { return captured_late_errors() != nullptr; }
/// Is what the context queues kept in a graph, this thread's or another's? Where the device does not say, it counts as kept.
inline bool is_captured(const Context& ctx) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream_of(ctx), &status) != cudaSuccess || status != cudaStreamCaptureStatusNone;
}
/// Throws where this thread captures: before a wait, or a copy that the host takes part in.
void refuse_capture(const char* op);
/// No thread captures on that device while the lock is held. Throws where this thread captures. Ask for it before any other lock.
std::unique_lock<std::shared_mutex> without_captures(Device device, const char* op);

void* begin_capture(Device device);
void* end_capture(Device device, bool keep, const char*& why);
void launch_graph(Device device, void* graph, void* stream);
void destroy_graph(Device device, void* graph);

// streams.cpp: streams that nothing but captures uses; of the current device
cudaStream_t take_capture_stream(Device device);
void return_capture_stream(Device device, cudaStream_t stream);

// late_errors.cpp: places that are one graph's until it is destroyed
void make_late_errors(Device device);  // what may not be done while a stream is captured
void launch_late_errors(Device device, const std::vector<int>& places);
void free_late_errors(Device device, const std::vector<int>& places);

}  // namespace tapir::inline v0::cuda_kernels
