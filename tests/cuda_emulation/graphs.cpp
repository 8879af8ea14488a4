// Graphs: what is queued on a captured stream is kept and runs when the graph is launched, on the stream of the launch and on streams of
// the graph's own for those that joined the capture by an event, under the same checks as without a graph.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>

#include "count.h"
#include "runtime.h"

using namespace cuda_emulation;

namespace cuda_emulation {
/// One call that was kept; `stream` counts those of the capture, 0 is the one where it began.
struct GraphNode {
  int stream;
  Queued run;
};
struct GraphWork {
  int device = 0;
  std::vector<GraphNode> nodes;
  std::vector<cudaStream_t> streams{nullptr};  // of its own; the first is the launch's
  std::vector<cudaEvent_t> events;
  ~GraphWork() {
    for (cudaStream_t s : streams)
      if (s) cudaStreamDestroy(s);
    for (cudaEvent_t e : events) cudaEventDestroy(e);
  }
};
struct Capture {
  std::shared_ptr<GraphWork> work = std::make_shared<GraphWork>();
  cudaStreamCaptureMode mode;
  std::vector<Stream*> streams;  // that take part
  std::vector<Clock> known;      // of each: how many nodes of each stream are before its next one
  cudaError_t spoilt = cudaSuccess;
  size_t number(const Stream& s) const {
    return size_t(std::find(streams.begin(), streams.end(), &s) - streams.begin());
  }
};

namespace {
thread_local Capture* mine = nullptr;  // that this thread began
auto& live = *new std::vector<Capture*>;

cudaError_t spoil(Capture& c, cudaError_t error) {
  if (c.spoilt == cudaSuccess) c.spoilt = cudaErrorStreamCaptureInvalidated;
  return report(error);
}
cudaError_t add(Capture& c, size_t stream, Queued run) {
  if (c.spoilt != cudaSuccess) return report(c.spoilt);
  c.work->nodes.push_back({int(stream), std::move(run)});
  ++c.known[stream][stream];
  return cudaSuccess;
}
void join(Capture& c, Stream& s) {
  s.capture = &c;
  c.streams.push_back(&s);
  for (Clock& k : c.known) k.resize(c.streams.size());
  c.known.emplace_back(c.streams.size());
}
void merge(Clock& into, const Clock& from) {
  for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}
}  // namespace

bool is_captured(cudaStream_t handle) {
  const std::lock_guard lock(runtime);
  const Stream* s = stream_of(handle);
  return s && s->capture;
}
cudaError_t keep(cudaStream_t handle, Queued run) {
  const std::lock_guard lock(runtime);
  const Stream& s = *stream_of(handle);
  return add(*s.capture, s.capture->number(s), std::move(run));
}
cudaError_t refuse_in_capture() {
  return mine && mine->mode != cudaStreamCaptureModeRelaxed ? spoil(*mine, cudaErrorStreamCaptureUnsupported)
                                                            : cudaSuccess;
}
cudaError_t refuse_to_wait_for(const Stream& s) {
  return s.capture ? spoil(*s.capture, cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}
cudaError_t refuse_to_wait_for_device(int device) {
  for (Capture* c : live)
    if (c->work->device == device) return spoil(*c, cudaErrorStreamCaptureUnsupported);
  return cudaSuccess;
}

cudaError_t record_captured(Stream& s, CapturedEvent& e) {
  Capture& c = *s.capture;
  cudaEvent_t own = nullptr;
  cudaEventCreateWithFlags(&own, cudaEventDisableTiming);
  c.work->events.push_back(own);
  const size_t i = c.number(s);
  e = {&c, own, c.known[i]};
  e.known[i] += 1;
  return add(c, i, [own](cudaStream_t stream) { return cudaEventRecord(own, stream); });
}
cudaError_t wait_captured(Stream& s, const CapturedEvent& e) {
  if (!e.capture) return spoil(*s.capture, cudaErrorStreamCaptureIsolation);  // work from before the capture
  if (std::find(live.begin(), live.end(), e.capture) == live.end()) return report(cudaErrorCapturedEvent);
  Capture& c = *e.capture;
  if (s.capture && s.capture != &c) return spoil(c, cudaErrorStreamCaptureMerge);
  if (!s.capture) join(c, s);
  const size_t i = c.number(s);
  merge(c.known[i], e.known);
  return add(c, i, [own = e.own](cudaStream_t stream) { return cudaStreamWaitEvent(stream, own); });
}
}  // namespace cuda_emulation

struct CUgraph_st {
  std::shared_ptr<GraphWork> work;
};
struct CUgraphExec_st {
  std::shared_ptr<GraphWork> work;
};

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  const std::lock_guard lock(runtime);
  Stream* s = stream_of(handle);
  if (!s) return report(cudaErrorInvalidResourceHandle);
  if (!handle || handle == cudaStreamLegacy) return report(cudaErrorStreamCaptureUnsupported);
  if (s->capture || mine) return report(cudaErrorIllegalState);
  auto* c = new Capture;
  c->mode = mode, c->work->device = s->device;
  join(*c, *s);
  live.push_back(c);
  return mine = c, cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* out) {
  const std::lock_guard lock(runtime);
  Stream* s = stream_of(handle);
  if (!s || !out) return report(cudaErrorInvalidValue);
  *out = nullptr;
  if (!s->capture || s->capture->streams[0] != s) return report(cudaErrorIllegalState);
  if (mine != s->capture && s->capture->mode != cudaStreamCaptureModeRelaxed)
    return report(cudaErrorStreamCaptureWrongThread);
  const std::unique_ptr<Capture> c(s->capture);
  std::erase(live, c.get());
  if (mine == c.get()) mine = nullptr;
  for (Stream* stream : c->streams) stream->capture = nullptr;
  if (c->spoilt != cudaSuccess) return report(c->spoilt);
  for (size_t i = 1; i < c->streams.size(); ++i)
    if (c->known[0][i] < c->known[i][i]) return report(cudaErrorStreamCaptureUnjoined);
  for (size_t i = 1; i < c->streams.size(); ++i) {
    c->work->streams.push_back(nullptr);
    if (const cudaError_t e = cudaStreamCreateWithFlags(&c->work->streams.back(), cudaStreamNonBlocking);
        e != cudaSuccess)
      return e;
  }
  return *out = new CUgraph_st{c->work}, cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* out) {
  const std::lock_guard lock(runtime);
  const Stream* s = stream_of(handle);
  if (!s || !out) return report(cudaErrorInvalidValue);
  *out = !s->capture                         ? cudaStreamCaptureStatusNone
         : s->capture->spoilt == cudaSuccess ? cudaStreamCaptureStatusActive
                                             : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  if (!graph || !count || nodes) return report(cudaErrorInvalidValue);  // the nodes themselves are not to be had here
  return *count = graph->work->nodes.size(), cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  if (!out || !graph) return report(cudaErrorInvalidValue);
  return *out = new CUgraphExec_st{graph->work}, cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  const std::lock_guard lock(runtime);
  Stream* s = stream_of(handle);
  if (!exec || !s || s->device != exec->work->device) return report(cudaErrorInvalidResourceHandle);
  if (s->capture) return refuse_to_wait_for(*s);  // graphs within graphs are not there
  GraphWork& w = *exec->work;
  const CountedGraph counted;
  for (const GraphNode& node : w.nodes)
    if (const cudaError_t e = node.run(node.stream ? w.streams[size_t(node.stream)] : handle); e != cudaSuccess)
      return e;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return delete exec, cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
