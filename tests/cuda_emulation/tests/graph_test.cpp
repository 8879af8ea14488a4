// Captured streams and graphs: nothing runs before a launch, everything is checked in it, and what cannot be kept is refused.
#include <atomic>
#include <thread>

#include "../capture_errors.h"
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

namespace {

/// The runtime's rules for captures, each tried in a capture of its own.
struct Rules {
  NewStream s;  // captured
  Array<float> x{numbers(64)}, y{64};
  cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
  cudaStreamCaptureStatus status() const {
    cudaStreamCaptureStatus now = cudaStreamCaptureStatusNone;
    CHECK(cudaStreamIsCapturing(s, &now) == cudaSuccess);
    return now;
  }
  void begin() const { REQUIRE(cudaStreamBeginCapture(s, mode) == cudaSuccess); }
  /// The capture ends as `expected` says; then the stream runs again.
  void end(cudaError_t expected) const {
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(s, &graph) == expected);
    CHECK((graph != nullptr) == (expected == cudaSuccess));
    if (graph) cudaGraphDestroy(graph);
    CHECK(status() == cudaStreamCaptureStatusNone);
    CHECK(scale(x.p, y.p, 64, s) == cudaSuccess);
    cudaGetLastError();
  }
  void refused(const char* name, const std::function<cudaError_t()>& call, cudaError_t expected) const {
    INFO(name);
    begin();
    CHECK(call() == expected);
    CHECK(status() == cudaStreamCaptureStatusInvalidated);
    CHECK(scale(x.p, y.p, 64, s) == cudaErrorStreamCaptureInvalidated);
    end(cudaErrorStreamCaptureInvalidated);
  }
  void allowed(const char* name, const std::function<cudaError_t()>& call) const {
    INFO(name);
    begin();
    CHECK(call() == cudaSuccess);
    CHECK(status() == cudaStreamCaptureStatusActive);
    end(cudaSuccess);
  }
};
#define REFUSED(expected, ...) \
  rules.refused(               \
      #__VA_ARGS__, [&] { return __VA_ARGS__; }, expected)
#define ALLOWED(...) rules.allowed(#__VA_ARGS__, [&] { return __VA_ARGS__; })
cudaError_t beside(const std::function<cudaError_t()>& call) {
  cudaError_t error = cudaSuccess;
  std::thread([&] { error = call(); }).join();
  return error;
}
constexpr cudaError_t no = cudaErrorStreamCaptureUnsupported;

}  // namespace

TEST_CASE("a capture: calls that act at once are refused to its thread, and spoil it") {
  Rules rules;
  NewStream other;
  NewEvent before, begun(cudaEventDefault), ended(cudaEventDefault);
  std::vector<float> host(64);
  std::vector<char> pages(8192);
  void *p = nullptr, *pinned = nullptr;
  REQUIRE(cudaMallocHost(&pinned, 64) == cudaSuccess);
  for (cudaEvent_t e : {before.e, begun.e, ended.e}) REQUIRE(cudaEventRecord(e, other) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  float ms = 0;
  float* const x = rules.x.p;
  for (const auto mode : {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeGlobal}) {
    rules.mode = mode;
    REFUSED(no, cudaMalloc(&p, 64));
    REFUSED(no, cudaFree(x));
    REFUSED(no, cudaFree(nullptr));
    REFUSED(no, cudaHostAlloc(&p, 64, 0));
    REFUSED(no, cudaMallocHost(&p, 64));
    REFUSED(no, cudaFreeHost(pinned));
    REFUSED(no, cudaHostRegister(pages.data(), 4096, 0));
    REFUSED(no, cudaHostUnregister(pinned));
    REFUSED(no, cudaMemcpy(host.data(), x, 256, cudaMemcpyDeviceToHost));
    REFUSED(no, cudaMemcpy(rules.y.p, x, 256, cudaMemcpyDeviceToDevice));
    REFUSED(no, cudaMemset(x, 0, 64));
    REFUSED(no, cudaEventQuery(before));
    REFUSED(no, cudaEventSynchronize(before));
    REFUSED(no, cudaEventElapsedTime(&ms, begun, ended));
    REFUSED(no, cudaStreamQuery(other));
    REFUSED(no, cudaStreamSynchronize(other));
    REFUSED(no, cudaStreamSynchronize(nullptr));
  }
  rules.mode = cudaStreamCaptureModeRelaxed;  // lets its thread do all that
  ALLOWED(cudaMalloc(&p, 64));
  ALLOWED(cudaFree(p));
  ALLOWED(cudaHostRegister(pages.data(), 4096, 0));
  ALLOWED(cudaHostUnregister(pages.data()));
  ALLOWED(cudaMemcpy(host.data(), x, 256, cudaMemcpyDeviceToHost));
  ALLOWED(cudaEventQuery(before));
  ALLOWED(cudaStreamSynchronize(other));
  CHECK(cudaFreeHost(pinned) == cudaSuccess);
}

TEST_CASE("a capture: what it cannot hold, or what would wait for it, is refused in every mode") {
  Rules rules;
  NewEvent before, within, begun(cudaEventDefault), ended(cudaEventDefault);
  std::vector<float> host(64);
  REQUIRE(cudaEventRecord(before, rules.s) == cudaSuccess);
  const auto recorded = [&](cudaError_t (*ask)(cudaEvent_t)) {
    CHECK(cudaEventRecord(within, rules.s) == cudaSuccess);
    return ask(within);
  };
  const auto elapsed = [&] {
    float ms = 0;
    for (cudaEvent_t e : {begun.e, ended.e}) CHECK(cudaEventRecord(e, rules.s) == cudaSuccess);
    return cudaEventElapsedTime(&ms, begun, ended);
  };
  for (const auto mode :
       {cudaStreamCaptureModeRelaxed, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeGlobal}) {
    rules.mode = mode;
    REFUSED(no, cudaStreamSynchronize(rules.s));
    REFUSED(no, cudaStreamQuery(rules.s));
    REFUSED(no, cudaDeviceSynchronize());
    REFUSED(no, beside(cudaDeviceSynchronize));
    REFUSED(no, cudaMemcpyAsync(host.data(), rules.x.p, 256, cudaMemcpyDeviceToHost, rules.s));  // pageable
    REFUSED(no, cudaMemcpyAsync(rules.x.p, host.data(), 256, cudaMemcpyHostToDevice, rules.s));
    REFUSED(cudaErrorCapturedEvent, recorded(cudaEventQuery));
    REFUSED(cudaErrorCapturedEvent, recorded(cudaEventSynchronize));
    REFUSED(cudaErrorCapturedEvent, elapsed());
    REFUSED(cudaErrorStreamCaptureIsolation, cudaStreamWaitEvent(rules.s, before));
  }
  CHECK(cudaEventQuery(within) == cudaErrorCapturedEvent);  // the capture being over
  CHECK(cudaEventRecord(within, rules.s) == cudaSuccess);
  CHECK(cudaEventSynchronize(within) == cudaSuccess);
}

TEST_CASE("a capture: other threads are refused what acts at once only where its mode is global") {
  Rules rules;
  NewStream other;
  NewEvent before;
  void* p = nullptr;
  REQUIRE(cudaEventRecord(before, other) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  rules.mode = cudaStreamCaptureModeGlobal;
  REFUSED(no, beside([&] { return cudaMalloc(&p, 64); }));
  REFUSED(no, beside([&] { return cudaEventQuery(before); }));
  REFUSED(no, beside([&] { return cudaStreamSynchronize(other); }));
  for (const auto mode : {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
    rules.mode = mode;
    ALLOWED(beside([&] { return cudaMalloc(&p, 64); }));
    ALLOWED(beside([&] { return cudaEventQuery(before); }));
    ALLOWED(beside([&] { return cudaStreamSynchronize(other); }));
    ALLOWED(beside([&] { return cudaFree(p); }));
  }
  rules.mode = cudaStreamCaptureModeRelaxed;  // a global one beside it forbids all the same
  NewStream theirs;
  cudaGraph_t graph = nullptr;
  std::atomic<int> step{0};
  std::thread thread([&] {
    CHECK(cudaStreamBeginCapture(theirs, cudaStreamCaptureModeGlobal) == cudaSuccess);
    step = 1;
    while (step < 2) std::this_thread::yield();
    CHECK(cudaStreamEndCapture(theirs, &graph) == cudaErrorStreamCaptureInvalidated);
  });
  while (step < 1) std::this_thread::yield();
  rules.begin();
  CHECK(cudaMalloc(&p, 64) == no);
  CHECK(rules.status() == cudaStreamCaptureStatusActive);
  step = 2;
  thread.join();
  rules.end(cudaSuccess);
}

TEST_CASE("a capture: what it allows") {
  Rules rules;
  Array<float> z(64);
  void* pinned = nullptr;
  REQUIRE(cudaMallocHost(&pinned, 256) == cudaSuccess);
  cudaStream_t made = nullptr;
  cudaEvent_t event = nullptr;
  size_t free = 0, total = 0;
  cudaPointerAttributes attributes{};
  NewStream other;
  ALLOWED(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
  ALLOWED(cudaStreamDestroy(made));
  ALLOWED(cudaEventCreate(&event));
  ALLOWED(cudaEventRecord(event, other));
  ALLOWED(cudaEventDestroy(event));
  ALLOWED(cudaMemGetInfo(&free, &total));
  ALLOWED(cudaPointerGetAttributes(&attributes, z.p));
  ALLOWED(scale(rules.x.p, z.p, 64, other));  // work that is not captured
  ALLOWED(large_shared(z.p, true, rules.s));  // cudaFuncSetAttribute
  ALLOWED(cudaMemcpyAsync(pinned, z.p, 256, cudaMemcpyDeviceToHost, rules.s));
  ALLOWED(cudaMemcpyPeerAsync(z.p, 0, rules.x.p, 0, 256, rules.s));
  ALLOWED(cudaMemsetAsync(z.p, 0, 256, rules.s));
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(cudaFreeHost(pinned) == cudaSuccess);
}

TEST_CASE("a capture: the legacy stream is out of use while a stream that blocks is captured") {
  Rules rules;
  Array<float> z(64);
  NewEvent event;
  std::vector<float> host(64);
  const auto legacy = [&](cudaStreamCaptureStatus* status) { return cudaStreamIsCapturing(nullptr, status); };
  cudaStreamCaptureStatus status{};
  ALLOWED(scale(rules.x.p, z.p, 64, nullptr));  // the captured one does not block
  ALLOWED(legacy(&status));
  cudaDeviceSynchronize();
  cudaStreamDestroy(rules.s.s);
  REQUIRE(cudaStreamCreateWithFlags(&rules.s.s, cudaStreamDefault) == cudaSuccess);
  const cudaError_t implicit = cudaErrorStreamCaptureImplicit;
  for (const auto mode : {cudaStreamCaptureModeRelaxed, cudaStreamCaptureModeThreadLocal}) {
    rules.mode = mode;
    REFUSED(implicit, scale(rules.x.p, z.p, 64, nullptr));
    REFUSED(implicit, cudaMemsetAsync(z.p, 0, 256, nullptr));
    REFUSED(implicit, cudaEventRecord(event, nullptr));
    REFUSED(implicit, cudaStreamWaitEvent(nullptr, event));
    REFUSED(implicit, cudaStreamQuery(nullptr));
    REFUSED(implicit, cudaStreamSynchronize(nullptr));
    REFUSED(implicit, beside([&] { return cudaMemcpy(host.data(), z.p, 256, cudaMemcpyDeviceToHost); }));
    rules.begin();
    CHECK(legacy(&status) == implicit);
    CHECK(rules.status() == cudaStreamCaptureStatusActive);
    rules.end(cudaSuccess);
  }
}

TEST_CASE("a capture: where it begins and ends") {
  Rules rules;
  NewStream second;
  NewEvent fork;
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal) == no);  // the legacy stream
  CHECK(cudaStreamEndCapture(rules.s, &graph) == cudaErrorIllegalState);
  rules.begin();
  CHECK(cudaStreamBeginCapture(rules.s, rules.mode) == cudaErrorIllegalState);
  CHECK(beside([&] { return cudaStreamEndCapture(rules.s, &graph); }) == cudaErrorStreamCaptureWrongThread);
  CHECK_FAULT("[cudaStreamDestroy] the stream is captured", cudaStreamDestroy(rules.s));
  rules.end(cudaSuccess);
  rules.mode = cudaStreamCaptureModeRelaxed;  // may end in another thread
  rules.begin();
  CHECK(beside([&] { return cudaStreamEndCapture(rules.s, &graph); }) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);

  const auto branch = [&] {
    CHECK(cudaEventRecord(fork, rules.s) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(second, fork) == cudaSuccess);
  };
  rules.begin(), branch();  // not where it began
  CHECK(cudaStreamEndCapture(second, &graph) == cudaErrorStreamCaptureUnmatched);
  rules.end(cudaErrorStreamCaptureInvalidated);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(scale(rules.x.p, rules.y.p, 64, second) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);

  rules.begin();  // two captures do not meet
  CHECK(cudaStreamBeginCapture(second, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  CHECK(cudaEventRecord(fork, rules.s) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(second, fork) == cudaErrorStreamCaptureMerge);
  rules.end(cudaErrorStreamCaptureInvalidated);
  CHECK(cudaStreamEndCapture(second, &graph) == cudaErrorStreamCaptureInvalidated);
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
