// Graphs: what is queued on a captured stream is kept and runs when the graph is launched, on the stream of the launch and on streams of
// the graph's own for those that joined the capture by an event, under the same checks as without a graph.
// Note [What a capture forbids]
// By the programming guide's "Prohibited and Unhandled Operations" and cudaThreadExchangeStreamCaptureMode's page. A refused call spoils the
// captures that it meets; the streams of a spoilt one take nothing more until cudaStreamEndCapture.
// - Waiting for a captured stream or its device, or asking after it: always. After an event that was last recorded in a capture: always,
//   that capture being over or not (cudaErrorCapturedEvent).
// - Calls that act at once (memory taken, given back or page-locked; copies and fills that wait; questions about events and streams that
//   nobody captures; modules loaded): of the thread that captures unless in relaxed mode, of all others where the mode is global. NVIDIA
//   has no list of them. That cudaEventQuery is one: pytorch #104487; module loading, with drivers before CUDA 12.3: Warp's
//   capture_begin(). Making streams and events, attributes of kernels, cuMemCreate and cuMemMap are none.
// - The legacy stream, where a captured one of its device blocks: always, but asking whether it is captured spoils nothing.
// - Dependencies that cross the border: waits for events from outside, of one capture for another, forks that never join.
#include <cuda_runtime_api.h>
#include <pthread.h>

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
  pthread_t thread = pthread_self();  // that began it
  std::vector<Stream*> streams;       // that take part
  std::vector<Clock> known;           // of each: how many nodes of each stream are before its next one
  cudaError_t spoilt = cudaSuccess;
  size_t number(const Stream& s) const {
    return size_t(std::find(streams.begin(), streams.end(), &s) - streams.begin());
  }
};

namespace {
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
bool is_live(const Capture* c) { return std::find(live.begin(), live.end(), c) != live.end(); }
bool blocks_legacy_stream(const Capture& c, const Stream& s) {
  return is_default(s) && std::any_of(c.streams.begin(), c.streams.end(), [&](const Stream* captured) {
           return captured->device == s.device && !(captured->flags & cudaStreamNonBlocking);
         });
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
  const std::lock_guard lock(runtime);
  cudaError_t error = cudaSuccess;
  for (Capture* c : live)
    if (c->mode == cudaStreamCaptureModeGlobal ||
        (c->mode == cudaStreamCaptureModeThreadLocal && pthread_equal(c->thread, pthread_self())))
      error = spoil(*c, cudaErrorStreamCaptureUnsupported);
  return error;
}
cudaError_t refuse_use(const Stream* s) {
  if (!s) return report(cudaErrorInvalidResourceHandle);
  cudaError_t error = cudaSuccess;
  for (Capture* c : live)
    if (blocks_legacy_stream(*c, *s)) error = spoil(*c, cudaErrorStreamCaptureImplicit);
  return error;
}
cudaError_t refuse_to_ask(const CapturedEvent& e) {
  if (!e.capture) return refuse_in_capture();
  return is_live(e.capture) ? spoil(*e.capture, cudaErrorCapturedEvent) : report(cudaErrorCapturedEvent);
}
cudaError_t refuse_to_wait_for(const Stream& s) {
  return s.capture ? spoil(*s.capture, cudaErrorStreamCaptureUnsupported) : refuse_in_capture();
}
cudaError_t refuse_to_wait_for_device(int device) {
  for (Capture* c : live)
    if (c->work->device == device) return spoil(*c, cudaErrorStreamCaptureUnsupported);
  return refuse_in_capture();
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
  if (!is_live(e.capture)) return report(cudaErrorCapturedEvent);
  Capture& c = *e.capture;
  if (s.capture && s.capture != &c)
    return spoil(*s.capture, cudaErrorStreamCaptureMerge), spoil(c, cudaErrorStreamCaptureMerge);
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
  if (is_default(*s)) return report(cudaErrorStreamCaptureUnsupported);
  if (s->capture) return report(cudaErrorIllegalState);
  auto* c = new Capture;
  c->mode = mode, c->work->device = s->device;
  join(*c, *s);
  live.push_back(c);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* out) {
  const std::lock_guard lock(runtime);
  Stream* s = stream_of(handle);
  if (!s || !out) return report(cudaErrorInvalidValue);
  *out = nullptr;
  if (!s->capture) return report(cudaErrorIllegalState);
  if (s->capture->streams[0] != s) return spoil(*s->capture, cudaErrorStreamCaptureUnmatched);
  if (!pthread_equal(s->capture->thread, pthread_self()) && s->capture->mode != cudaStreamCaptureModeRelaxed)
    return report(cudaErrorStreamCaptureWrongThread);
  const std::unique_ptr<Capture> c(s->capture);
  std::erase(live, c.get());
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
  if (std::any_of(live.begin(), live.end(), [&](const Capture* c) { return blocks_legacy_stream(*c, *s); }))
    return report(cudaErrorStreamCaptureImplicit);
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
  if (const cudaError_t e = refuse_use(s); e != cudaSuccess) return e;
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
