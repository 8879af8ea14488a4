// Captured streams and graphs: nothing runs before a launch, everything is checked in it, and what cannot be kept is refused.
#include "../library_call.h"
#include "arrays.h"
#include "test_kernels.h"

using namespace emulation_tests;

namespace {

struct NewGraph {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  /// What `queue` does on the stream, captured.
  NewGraph(cudaStream_t s, const std::function<void()>& queue) {
    REQUIRE(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    queue();
    REQUIRE(cudaStreamEndCapture(s, &graph) == cudaSuccess);
    REQUIRE(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
  }
  ~NewGraph() { cudaGraphExecDestroy(exec), cudaGraphDestroy(graph); }
  size_t nodes() const {
    size_t n = 0;
    REQUIRE(cudaGraphGetNodes(graph, nullptr, &n) == cudaSuccess);
    return n;
  }
};
std::vector<float> times(std::vector<float> v, float factor) {
  for (float& x : v) x *= factor;
  return v;
}

}  // namespace

TEST_CASE("a graph: nothing runs while it is captured, everything in each launch") {
  NewStream s, other;
  const auto first = numbers(1000), second = times(numbers(1000), -3);
  Array<float> x(first), y(1000), z(1000), w(std::vector<float>(1000, 5));
  int calls = 0;
  const NewGraph g(s, [&] {
    CHECK(scale(x.p, y.p, 1000, s) == cudaSuccess);
    CHECK(cudaMemcpyAsync(z.p, y.p, 4000, cudaMemcpyDeviceToDevice, s) == cudaSuccess);
    CHECK(cudaMemsetAsync(w.p, 0, 2000, s) == cudaSuccess);
    CHECK(cudaLaunchHostFunc(
              s, [](void* p) { ++*static_cast<int*>(p); }, &calls) == cudaSuccess);
    cuda_emulation::on_stream(s, [p = z.p](cudaStream_t stream) {
      cuda_emulation::LibraryCall call("negate", stream);
      call.writes(p, 4000);
      for (int i = 0; i < 1000; ++i) p[i] = -p[i];
      call.end();
    });
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    CHECK(cudaStreamIsCapturing(s, &status) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusActive);
  });
  CHECK(g.nodes() == 5);
  CHECK(w.host() == std::vector<float>(1000, 5));
  CHECK(calls == 0);
  CHECK(cudaGraphLaunch(g.exec, s) == cudaSuccess);
  CHECK(cudaStreamSynchronize(s) == cudaSuccess);
  CHECK(y.host() == times(first, 2));
  CHECK(z.host() == times(first, -2));
  CHECK(w.host()[499] == 0);
  CHECK(w.host()[500] == 5);
  CHECK(calls == 1);
  x.set(second);
  CHECK(cudaGraphLaunch(g.exec, other) == cudaSuccess);  // on any stream of the device
  CHECK(cudaStreamSynchronize(other) == cudaSuccess);
  CHECK(z.host() == times(second, -2));
  CHECK(calls == 2);
}

TEST_CASE("a graph: streams join a capture by events, and a missing wait is found in the launch") {
  NewStream s, side;
  NewEvent fork, join;
  Array<float> x(numbers(64)), y(64), z(64);
  const auto queue = [&](bool wait) {
    CHECK(scale(x.p, y.p, 64, s) == cudaSuccess);
    if (wait) CHECK(cudaEventRecord(fork, s) == cudaSuccess);
    if (wait) CHECK(cudaStreamWaitEvent(side, fork) == cudaSuccess);
    CHECK(scale(y.p, z.p, 64, side) == cudaSuccess);
    CHECK(cudaEventRecord(join, side) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(s, join) == cudaSuccess);
  };
  const NewGraph g(s, [&] { queue(true); });
  CHECK(cudaGraphLaunch(g.exec, s) == cudaSuccess);
  CHECK(cudaStreamSynchronize(s) == cudaSuccess);
  CHECK(z.host() == times(numbers(64), 4));

  const NewGraph missing(s, [&] {
    CHECK(cudaEventRecord(fork, s) == cudaSuccess);  // too early
    CHECK(cudaStreamWaitEvent(side, fork) == cudaSuccess);
    queue(false);
  });
  CHECK_FAULT("no event or synchronization orders the two", cudaGraphLaunch(missing.exec, s));
  cudaDeviceSynchronize();

  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  CHECK(cudaEventRecord(fork, s) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(side, fork) == cudaSuccess);
  CHECK(scale(x.p, y.p, 64, side) == cudaSuccess);
  CHECK(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureUnjoined);
  CHECK(cudaEventQuery(fork) == cudaErrorCapturedEvent);
  CHECK(scale(x.p, y.p, 64, side) == cudaSuccess);  // both streams run again
  cudaDeviceSynchronize();
  CHECK(y.host() == times(numbers(64), 2));
}

TEST_CASE("a graph: what acts at once is refused while a thread captures, and spoils the capture") {
  NewStream s;
  NewEvent before;
  Array<float> x(numbers(64)), y(64);
  std::vector<float> host(64);
  void* p = nullptr;
  REQUIRE(cudaEventRecord(before, s) == cudaSuccess);
  const auto refused = [&](const std::function<cudaError_t()>& call, cudaError_t expected) {
    REQUIRE(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(call() == expected);
    CHECK(scale(x.p, y.p, 64, s) == cudaErrorStreamCaptureInvalidated);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK(graph == nullptr);
    CHECK(scale(x.p, y.p, 64, s) == cudaSuccess);
    cudaGetLastError();
  };
  const cudaError_t no = cudaErrorStreamCaptureUnsupported;
  refused([&] { return cudaMalloc(&p, 64); }, no);
  refused([&] { return cudaFree(x.p); }, no);
  refused([&] { return cudaHostAlloc(&p, 64, 0); }, no);
  refused([&] { return cudaMemcpy(host.data(), x.p, 256, cudaMemcpyDeviceToHost); }, no);
  refused([&] { return cudaMemcpyAsync(host.data(), x.p, 256, cudaMemcpyDeviceToHost, s); }, no);  // pageable
  refused([&] { return cudaStreamSynchronize(s); }, no);
  refused([&] { return cudaStreamQuery(s); }, no);
  refused([&] { return cudaDeviceSynchronize(); }, no);
  refused([&] { return cudaStreamWaitEvent(s, before); }, cudaErrorStreamCaptureIsolation);
  CHECK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal) == no);  // the legacy stream
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(s, &graph) == cudaErrorIllegalState);

  REQUIRE(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed) == cudaSuccess);  // which lets the thread do it
  CHECK(cudaMalloc(&p, 64) == cudaSuccess);
  CHECK(cudaStreamEndCapture(s, &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  cudaFree(p);
}

TEST_CASE("a graph: its faults are those of its calls, in the launch") {
  NewStream s;
  auto x = std::make_unique<Array<float>>(numbers(64));
  Array<float> y(64);
  const NewGraph g(s, [&] { CHECK(scale(x->p, y.p, 64, s) == cudaSuccess); });
  CHECK_NO_FAULT(cudaGraphLaunch(g.exec, s));
  x.reset();
  CHECK_FAULT("points to device memory that is not allocated", cudaGraphLaunch(g.exec, s));
  NewStream captured;
  REQUIRE(cudaStreamBeginCapture(captured, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  CHECK_FAULT("[gemm] cannot be captured", cuda_emulation::LibraryCall("gemm", captured));
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(captured, &graph) == cudaSuccess);
  cudaGraphDestroy(graph);
}
