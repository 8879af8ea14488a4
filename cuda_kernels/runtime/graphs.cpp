#include "graphs.h"

#include <atomic>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "../../core/error.h"

// Note [Graphs]
// A thread captures on a stream of its own, which nobody else can name, in thread-local mode: what other threads queue, allocate and
// wait for on their streams goes on undisturbed, and the caller's stream holds nothing of the capture. But cudaDeviceSynchronize, called by
// whomever, fails and spoils every capture on the device. So it has a gate: captures share it, and cuda::synchronize() has it alone. A
// capture is short and waits for nobody but kernels' locks, so the gate is asked for before any lock that kernels take (a library's, the
// allocator's). What is done under such locks waits for streams, one by one, and needs no gate: wait_for_streams().
// Kernels get their memory and their places for bad values from the capture (scratch_pool, captured_late_errors()), because both belong to
// the graph for as long as it lives. What only the host could do again in every launch throws: it would be done once, while capturing,
// and never more. So does what CUDA forbids meanwhile to the thread that captures (questions about events and streams, memory from the
// driver, the making of libraries' handles and of kernels): CUDA would refuse it and spoil the capture.
namespace tapir::inline v0::cuda_kernels {
namespace {

struct Graph {
  cudaGraphExec_t exec = nullptr;
  std::vector<int> late_errors;
};
struct Capturing {
  Graph* graph = nullptr;
  cudaStream_t stream = nullptr;
  Device device;
  bool early = false;  // with early launches
};
std::atomic<bool> early_refused{false};
thread_local constinit Capturing capturing;

std::shared_mutex& gate_of(Device device) {
  static auto* const gates = new std::shared_mutex[kMaxDevices];  // never destroyed
  return gates[device.index];
}

/// A thread that ends while it captures would keep the gate shut.
struct EndsWithThread {
  ~EndsWithThread() {
    if (!capturing.graph) return;
    const char* why = "";
    try {
      end_capture(capturing.device, false, why);
    } catch (const std::exception&) {}  // the device is lost
  }
};

}  // namespace

bool begins_early(Device device) {
  static const bool wanted = [] {
    const char* const text = std::getenv("TAPIR_CUDA_EARLY");
    return !text || std::string_view(text) != "0";
  }();
  if (!wanted || early_refused.load(std::memory_order_relaxed) || code_version(device) < 90) return false;
  capturing.early = capturing.graph != nullptr;
  return true;
}

std::vector<int>* captured_late_errors() { return capturing.graph ? &capturing.graph->late_errors : nullptr; }

void refuse_capture(const char* op) {
  if (capturing.graph) [[unlikely]]
    fail(ErrorKind::Runtime, "[{}] expected work for the device alone while a graph is captured, got some for the host",
         op);
}

std::unique_lock<std::shared_mutex> without_captures(Device device, const char* op) {
  refuse_capture(op);  // it would wait for itself
  return std::unique_lock(gate_of(device));
}

void* begin_capture(Device device) {
  check_internal(!capturing.graph, "[capture] expected no capture in this thread, got one");
  static thread_local EndsWithThread at_end;
  const OnDevice on(device);
  make_late_errors(device);
  const cudaStream_t stream = take_capture_stream(device);
  std::shared_lock gate(gate_of(device));
  if (const cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
      error != cudaSuccess) {
    return_capture_stream(device, stream);
    fail_cuda(error, "capture");
  }
  capturing = {new Graph, stream, device, false};
  gate.release();  // until end_capture()
  return stream;
}

void* end_capture(Device device, bool keep, const char*& why) {
  check_internal(capturing.graph, "[capture] expected a capture in this thread, got none");
  const auto [made, stream, where, early] = std::exchange(capturing, {});
  const std::shared_lock gate(gate_of(where), std::adopt_lock);
  const OnDevice on(device);
  cudaGraph_t graph = nullptr;
  cudaError_t error = cudaStreamEndCapture(stream, &graph);
  if (error == cudaSuccess && keep) error = cudaGraphInstantiate(&made->exec, graph, 0);
  if (graph) cudaGraphDestroy(graph);
  return_capture_stream(device, stream);
  if (made->exec) return made;
  if (early) early_refused = true;  // whatever it was: the next capture goes without them
  cudaGetLastError();
  if (error != cudaSuccess) why = cudaGetErrorName(error);
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
