#include "graphs.h"

#include <mutex>
#include <utility>

#include "../core/error.h"

// Note [Graphs]
// A thread captures on a stream of its own, which nobody else can name, in thread-local mode: what other threads queue, allocate and
// wait for goes on undisturbed, and the caller's stream holds nothing of the capture. Kernels get their memory and their places for
// bad values from the capture (scratch_pool, captured_late_errors()), because both belong to the graph for as long as it lives. What
// only the host could do again in every launch throws: it would be done once, while capturing, and never more.
namespace tapir::inline v0::cuda_kernels {
namespace {

struct Graph {
  cudaGraphExec_t exec = nullptr;
  std::vector<int> late_errors;
};
struct Capturing {
  Graph* graph = nullptr;
  cudaStream_t stream = nullptr;
};
thread_local Capturing capturing;

/// Streams that no capture uses now.
struct Streams {
  std::mutex mutex;
  std::vector<cudaStream_t> free[kMaxDevices];
};
Streams& streams() {
  static auto* const s = new Streams;  // never destroyed
  return *s;
}
cudaStream_t take_stream(Device device) {
  Streams& s = streams();
  {
    std::lock_guard lock(s.mutex);
    auto& free = s.free[device.index];
    if (!free.empty()) {
      const cudaStream_t stream = free.back();
      free.pop_back();
      return stream;
    }
  }
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "capture");
  return stream;
}
void return_stream(Device device, cudaStream_t stream) {
  Streams& s = streams();
  std::lock_guard lock(s.mutex);
  s.free[device.index].push_back(stream);
}

}  // namespace

std::vector<int>* captured_late_errors() { return capturing.graph ? &capturing.graph->late_errors : nullptr; }

void refuse_capture(const char* op) {
  if (capturing.graph) [[unlikely]]
    fail(ErrorKind::Runtime, "[{}] expected work for the device alone while a graph is captured, got some for the host",
         op);
}

void* begin_capture(Device device) {
  check_internal(!capturing.graph, "[capture] expected no capture in this thread, got one");
  const OnDevice on(device);
  make_late_errors(device);
  const cudaStream_t stream = take_stream(device);
  if (const cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
      error != cudaSuccess) {
    return_stream(device, stream);
    fail_cuda(error, "capture");
  }
  capturing = {new Graph, stream};
  return stream;
}

void* end_capture(Device device, bool keep, const char*& why) {
  const OnDevice on(device);
  const auto [made, stream] = std::exchange(capturing, {});
  cudaGraph_t graph = nullptr;
  cudaError_t error = cudaStreamEndCapture(stream, &graph);
  if (error == cudaSuccess && keep) error = cudaGraphInstantiate(&made->exec, graph, 0);
  if (graph) cudaGraphDestroy(graph);
  return_stream(device, stream);
  if (made->exec) return made;
  cudaGetLastError();
  if (error != cudaSuccess) why = cudaGetErrorString(error);
  free_late_errors(device, made->late_errors);
  delete made;
  return nullptr;
}

void launch_graph(Device device, void* graph, void* stream) {
  const Graph& g = *static_cast<Graph*>(graph);
  const OnDevice on(device);
  if (!g.late_errors.empty()) launch_late_errors(device, g.late_errors);
  check_cuda(cudaGraphLaunch(g.exec, stream_of(stream)), "launch_graph");
}

/// The driver lets a launch that still runs end first. No throw: programs may die after main.
void destroy_graph(Device device, void* graph) {
  Graph* const g = static_cast<Graph*>(graph);
  int before = 0;
  cudaGetDevice(&before);
  cudaSetDevice(device.index);
  cudaGraphExecDestroy(g->exec);
  cudaSetDevice(before);
  cudaGetLastError();
  free_late_errors(device, g->late_errors);
  delete g;
}

}  // namespace tapir::inline v0::cuda_kernels
