#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "../../core/allocator.h"
#include "../../core/error.h"
#include "../kernels.h"
#include "../vendor/nvtx.h"
#include "device.h"
#include "graphs.h"

// Copies, streams, events and waiting: what a device provides beside memory and kernels.
namespace tapir::inline v0::cuda_kernels {
namespace {

std::atomic<int64_t> host_waits{0};

/// Handles are kept for the next one who asks; never destroyed.
struct Handles {
  std::mutex mutex;
  std::vector<cudaEvent_t> events[kMaxDevices];
  std::vector<cudaStream_t> captures[kMaxDevices];  // no capture uses them now
  static constexpr int kStreams = 32;               // of one priority on one device
  std::vector<cudaStream_t> streams[kMaxDevices][8];
  unsigned next_stream[kMaxDevices][8] = {};
};
Handles& handles() {
  static auto* const h = new Handles;
  return *h;
}

/// One of the kept, or null.
template <class T> T take(std::vector<T>& kept) {
  std::lock_guard lock(handles().mutex);
  if (kept.empty()) return nullptr;
  const T handle = kept.back();
  kept.pop_back();
  return handle;
}
template <class T> void keep(std::vector<T>& kept, T handle) {
  std::lock_guard lock(handles().mutex);
  kept.push_back(handle);
}

constexpr int64_t kStaged = int64_t(4) << 20;

/// From memory that the system may move: the host copies to a page-locked block and goes on. The driver would first wait for the stream.
bool copy_staged(void* to, Device device, const void* from, int64_t bytes, cudaStream_t stream) {
  void* block = bytes <= kStaged ? allocate_pinned(bytes) : nullptr;
  if (!block) return false;
  std::memcpy(block, from, size_t(bytes));
  const cudaError_t error = cudaMemcpyAsync(to, block, size_t(bytes), cudaMemcpyHostToDevice, stream);
  note_pinned_use(block, device, stream);
  release_pinned(block);
  check_cuda(error, "copy");
  return true;
}

void properties(Device device, cuda::DeviceProperties& out) {
  cudaDeviceProp p;
  check_cuda(cudaGetDeviceProperties(&p, device.index), "get_device_properties");
  out.name = p.name;
  out.major = p.major, out.minor = p.minor;
  out.total_memory = int64_t(p.totalGlobalMem);
  out.multi_processor_count = p.multiProcessorCount;
  out.max_threads_per_multi_processor = p.maxThreadsPerMultiProcessor;
  out.warp_size = p.warpSize;
  out.shared_memory_per_block = int64_t(p.sharedMemPerBlockOptin);
  out.l2_cache_size = p.l2CacheSize;
  check_cuda(cudaDriverGetVersion(&out.driver_version), "get_device_properties");
  check_cuda(cudaRuntimeGetVersion(&out.runtime_version), "get_device_properties");
}

/// One of 32 queues of that priority, in turn: the device has no more of its own.
void* create_stream(Device device, int priority) {
  const OnDevice on(device);
  int least = 0, greatest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "Stream");
  priority = priority > least ? least : priority < greatest ? greatest : priority;
  Handles& h = handles();
  std::lock_guard lock(h.mutex);
  const int kind = least - priority < 8 ? least - priority : 7;
  auto& streams = h.streams[device.index][kind];
  if (streams.size() < Handles::kStreams) {
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority), "Stream");
    streams.push_back(stream);
    return stream;
  }
  return streams[h.next_stream[device.index][kind]++ % Handles::kStreams];
}
void destroy_stream(Device, void*) {}  // queues are shared and live as long as the program

/// True when what it says has happened; errors other than "not yet" are thrown.
bool has_happened(cudaError_t error, std::string_view op) {
  if (error == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  check_cuda(error, op);
  return true;
}
bool query_stream(Device device, void* stream) {
  refuse_capture("Stream.query");
  const OnDevice on(device);
  return has_happened(cudaStreamQuery(stream_of(stream)), "Stream.query");
}

cudaEvent_t event_of(void* event) { return static_cast<cudaEvent_t>(event); }
void wait_event(Device device, void* stream, void* event) {
  const OnDevice on(device);
  check_cuda(cudaStreamWaitEvent(stream_of(stream), event_of(event), 0), "Stream.wait_event");
}
void* create_event(Device device, bool timing) {
  const OnDevice on(device);
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, timing ? cudaEventDefault : cudaEventDisableTiming), "Event");
  return event;
}
void destroy_event(Device device, void* event) {  // destructors call this: no throw, whatever state the driver is in
  int before = 0;
  cudaGetDevice(&before);
  cudaSetDevice(device.index);
  cudaEventDestroy(event_of(event));
  cudaSetDevice(before);
  cudaGetLastError();
}
void record_event(Device device, void* event, void* stream) {
  const OnDevice on(device);
  check_cuda(cudaEventRecord(event_of(event), stream_of(stream)), "Event.record");
}
bool query_event(Device, void* event) {
  refuse_capture("Event.query");
  return has_happened(cudaEventQuery(event_of(event)), "Event.query");
}
void synchronize_event(Device device, void* event) {
  refuse_capture("Event.synchronize");
  count_host_wait();
  check_cuda(cudaEventSynchronize(event_of(event)), "Event.synchronize");
  throw_late_errors(device);
}
double elapsed_ms(Device, void* start, void* end) {
  refuse_capture("Event.elapsed_time");
  float ms = 0;
  check_cuda(cudaEventElapsedTime(&ms, event_of(start), event_of(end)), "Event.elapsed_time");
  return ms;
}
void synchronize_device(Device device) {
  const auto gate = without_captures(device, "synchronize");
  const OnDevice on(device);
  count_host_wait();
  check_cuda(cudaDeviceSynchronize(), "synchronize");
  throw_late_errors(device);
}
int64_t synchronizations() { return host_waits.load(std::memory_order_relaxed); }

}  // namespace

void count_host_wait() { host_waits.fetch_add(1, std::memory_order_relaxed); }

cudaEvent_t take_event(Device device) {
  cudaEvent_t event = take(handles().events[device.index]);
  if (event) return event;
  return cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess ? event : nullptr;
}
void return_event(Device device, cudaEvent_t event) { keep(handles().events[device.index], event); }

cudaStream_t take_capture_stream(Device device) {
  cudaStream_t stream = take(handles().captures[device.index]);
  if (!stream) check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "capture");
  return stream;
}
void return_capture_stream(Device device, cudaStream_t stream) { keep(handles().captures[device.index], stream); }

cudaError_t wait_for_streams(Device device) {
  std::vector<cudaStream_t> streams = {nullptr};
  {
    Handles& h = handles();
    std::lock_guard lock(h.mutex);
    for (const auto& some : h.streams[device.index]) streams.insert(streams.end(), some.begin(), some.end());
  }
  count_host_wait();
  cudaError_t first = cudaSuccess;
  for (const cudaStream_t stream : streams)
    if (const cudaError_t error = cudaStreamSynchronize(stream); first == cudaSuccess) first = error;
  return first;
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes, void* stream_handle) {
  if (bytes == 0) return;
  const cudaStream_t stream = stream_of(stream_handle);
  const OnDevice on(from_device.is_cuda() ? from_device : to_device);  // whose stream it is
  if (from_device.is_cuda() && to_device.is_cuda()) {
    if (from_device == to_device)
      check_cuda(cudaMemcpyAsync(to, from, size_t(bytes), cudaMemcpyDeviceToDevice, stream), "copy");
    else check_cuda(cudaMemcpyPeerAsync(to, to_device.index, from, from_device.index, size_t(bytes), stream), "copy");
    return;
  }
  refuse_capture("copy");
  const bool up = to_device.is_cuda();
  const bool pinned = note_pinned_use(up ? from : to, up ? to_device : from_device, stream);
  if (up && !pinned && copy_staged(to, to_device, from, bytes, stream)) return;
  if (!pinned) count_host_wait();  // the call returns when the copy is done, or staged
  check_cuda(cudaMemcpyAsync(to, from, size_t(bytes), up ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream),
             "copy");
}

void synchronize(Device device, void* stream) {
  refuse_capture("synchronize");
  const OnDevice on(device);
  count_host_wait();
  check_cuda(cudaStreamSynchronize(stream_of(stream)), "synchronize");
  throw_late_errors(device);
}

const DeviceTable device_table = {
    .properties = properties,
    .create_stream = create_stream,
    .destroy_stream = destroy_stream,
    .query_stream = query_stream,
    .wait_event = wait_event,
    .create_event = create_event,
    .destroy_event = destroy_event,
    .record_event = record_event,
    .query_event = query_event,
    .synchronize_event = synchronize_event,
    .elapsed_ms = elapsed_ms,
    .synchronize_device = synchronize_device,
    .record_stream = record_stream,
    .empty_cache = empty_cache,
    .memory_stats = memory_stats,
    .reset_peak = reset_peak,
    .mem_get_info = mem_get_info,
    .set_memory_fraction = set_memory_fraction,
    .for_each_block = for_each_block,
    .allocate_pinned = allocate_pinned,
    .release_pinned = release_pinned,
    .is_pinned = is_pinned,
    .name_late_error = name_late_error,
    .synchronizations = synchronizations,
    .range_push = range_push,
    .range_pop = range_pop,
    .begin_capture = begin_capture,
    .end_capture = end_capture,
    .launch_graph = launch_graph,
    .destroy_graph = destroy_graph,
    .set_scratch_pool = [](ScratchPool* pool) { scratch_pool = pool; },
    .prepare_fused = prepare_fused,
};

}  // namespace tapir::inline v0::cuda_kernels
