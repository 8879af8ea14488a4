// Streams and events. Every stream keeps a vector clock: how much of each other stream's work must be done when its next work begins.
#include <cuda_runtime_api.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <unordered_set>
#include <utility>

#include "count.h"
#include "runtime.h"

using namespace cuda_emulation;

struct CUevent_st {
  unsigned flags;
  int device;
  bool recorded = false;
  Clock known;
  CapturedEvent captured{};
  std::chrono::steady_clock::time_point when;
};

namespace cuda_emulation {
RuntimeMutex runtime;
Work* work = nullptr;
Clock& host = *new Clock;  // never destroyed, as all state here: a plugin may wait for events while the process ends
namespace {
pthread_t worker;
int next_id = 0;
auto& free_ids = *new std::vector<int>;  // of destroyed streams: a number goes on counting where it stopped
using Streams = std::vector<std::unique_ptr<Stream>>;
auto &defaults = *new Streams, &streams = *new Streams;
auto& events = *new std::unordered_set<cudaEvent_t>;
auto& orphans = *new Clock;  // the work of destroyed streams
auto& host_functions = *new std::vector<std::thread>;

void merge(Clock& into, const Clock& from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}
Stream* default_stream(int device) {
  while (defaults.size() <= size_t(device))
    defaults.emplace_back(new Stream{next_id++, int(defaults.size()), 0, cudaStreamDefault, {}});
  return defaults[size_t(device)].get();
}
/// The legacy default stream waits for all blocking streams of its device, and they for it.
void order_with_default_stream(Stream& s) {
  if (is_default(s)) {
    for (auto& other : streams)
      if (other->device == s.device && !(other->flags & cudaStreamNonBlocking)) merge(s.known, other->known);
  } else if (!(s.flags & cudaStreamNonBlocking)) {
    merge(s.known, default_stream(s.device)->known);
  }
}
bool host_knows(const Clock& c) {
  for (size_t i = 0; i < c.size(); ++i)
    if (!knows(host, int(i), c[i])) return false;
  return true;
}
/// "Not ready" is a true answer, now and then, until the host has waited.
cudaError_t query(const Clock& c) {
  if (awaits_calls(c) || (!host_knows(c) && random_below(2))) return cudaErrorNotReady;
  return host_learns(c), cudaSuccess;
}
void join_host_functions() {
  std::vector<std::thread> running;
  {
    const std::lock_guard lock(runtime);
    running.swap(host_functions);
  }
  for (auto& t : running) t.join();
}
}  // namespace

bool is_default(const Stream& s) {
  return size_t(s.device) < defaults.size() && defaults[size_t(s.device)].get() == &s;
}
bool knows(const Clock& clock, int stream, uint64_t time) {
  return stream < 0 || time == 0 || (size_t(stream) < clock.size() && clock[size_t(stream)] >= time);
}
bool another_stream_knows(int stream, uint64_t time) {
  for (const auto* list : {&defaults, &streams})
    for (const auto& s : *list)
      if (s->id != stream && knows(s->known, stream, time)) return true;
  return false;
}
void host_learns(const Clock& clock) {
  merge(host, clock);
  settle_copies();
}
Stream* stream_of(cudaStream_t s) {
  if (!s || s == cudaStreamLegacy) return current_device() < 0 ? nullptr : default_stream(current_device());
  for (auto& known : streams)
    if (known.get() == s) return s;
  for (auto& known : defaults)
    if (known.get() == s) return s;
  return nullptr;
}

void RuntimeMutex::wait() {
  const int depth = std::exchange(depth_, 1);
  for (int i = 1; i < depth; ++i) mutex_.unlock();
  std::unique_lock lock(mutex_, std::adopt_lock);
  depth_ = 0;
  changed_.wait(lock);
  lock.release();
  for (int i = 1; i < depth; ++i) mutex_.lock();
  depth_ = depth;
}

Work::Work(Label label, Stream& stream) : label(label), stream(stream), lock_(runtime) {
  if (!work) {
    merge(stream.known, host);
    if (!streams.empty()) order_with_default_stream(stream);
    wait_for_calls(Clock(stream.known));
  }
  begin();
}
Work::Work(Label label, Stream& stream, Later) : label(label), stream(stream), lock_(runtime) { begin(); }
Work::Work(Label label, Stream& stream, uint64_t time)
    : label(label), stream(stream), time(time), checked(true), behind(std::exchange(stream.orderly, 0)),
      lock_(runtime) {
  watch_memory();
  worker = pthread_self(), work = this;
}
void Work::begin() {
  if (work) throw Fault("[" + label.text() + "] was called inside " + work->label.text());
  if (stream.capture) throw Fault("[" + label.text() + "] cannot be captured");
  watch_memory();
  merge(stream.known, host);
  if (!streams.empty()) order_with_default_stream(stream);
  if (stream.known.size() <= size_t(stream.id)) stream.known.resize(size_t(stream.id) + 1);
  time = ++stream.known[size_t(stream.id)];
  behind = std::exchange(stream.orderly, 0);
  worker = pthread_self(), work = this;
}
Work::~Work() {
  close_all();
  work = nullptr;
}
bool works_here() { return work && pthread_equal(worker, pthread_self()); }
}  // namespace cuda_emulation

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int priority) {
  const std::lock_guard lock(runtime);
  if (current_device() < 0) return report(cudaErrorNoDevice);
  if (!out || flags > cudaStreamNonBlocking) return report(cudaErrorInvalidValue);
  for (int d = 0; d < device_count(); ++d) default_stream(d);
  int id = next_id;
  if (free_ids.empty()) ++next_id;
  else id = free_ids.back(), free_ids.pop_back();
  streams.emplace_back(new Stream{id, current_device(), std::clamp(priority, -5, 0), flags, {}});
  Clock& known = streams.back()->known;
  known.resize(size_t(id) + 1);
  if (size_t(id) < orphans.size()) known[size_t(id)] = orphans[size_t(id)];
  return *out = streams.back().get(), cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
  return cudaStreamCreateWithPriority(s, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* s) { return cudaStreamCreateWithPriority(s, cudaStreamDefault, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  const std::lock_guard lock(runtime);
  if (stream_of(s)) wait_for_calls(Clock(s->known));  // the driver keeps it until its work is done
  const auto at = std::find_if(streams.begin(), streams.end(), [&](auto& p) { return p.get() == s; });
  if (at == streams.end()) return report(cudaErrorInvalidResourceHandle);
  if (s->capture) throw Fault("[cudaStreamDestroy] the stream is captured");
  merge(orphans, s->known);
  free_ids.push_back(s->id);
  return streams.erase(at), cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  {
    const std::lock_guard lock(runtime);
    Stream* s = stream_of(handle);
    if (const cudaError_t e = refuse_use(s); e != cudaSuccess) return e;
    if (const cudaError_t e = refuse_to_wait_for(*s); e != cudaSuccess) return e;
    if (counting()) count_wait("stream");
    order_with_default_stream(*s);
    const Clock known = s->known;
    wait_for_calls(known);
    host_learns(known);
  }
  return join_host_functions(), cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const std::lock_guard lock(runtime);
  Stream* s = stream_of(handle);
  if (const cudaError_t e = refuse_use(s); e != cudaSuccess) return e;
  if (const cudaError_t e = refuse_to_wait_for(*s); e != cudaSuccess) return e;
  return query(s->known);  // NotReady is an answer, no error to remember
}
cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* out) {
  const std::lock_guard lock(runtime);
  Stream* s = stream_of(handle);
  return s ? (*out = s->priority, cudaSuccess) : report(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* out) {
  const std::lock_guard lock(runtime);
  Stream* s = stream_of(handle);
  return s ? (*out = s->flags, cudaSuccess) : report(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t e, unsigned) {
  const std::lock_guard lock(runtime);
  Stream* s = stream_of(handle);
  if (!s || !events.contains(e)) return report(cudaErrorInvalidResourceHandle);
  if (const cudaError_t error = refuse_use(s); error != cudaSuccess) return error;
  if (s->capture || e->captured.capture) return wait_captured(*s, e->captured);
  return merge(s->known, e->known), cudaSuccess;
}
/// On a thread of its own, as the driver would; waits of the host wait for it too.
cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* user) {
  const std::lock_guard lock(runtime);
  if (!function) return report(cudaErrorInvalidValue);
  if (const cudaError_t e = refuse_use(stream_of(handle)); e != cudaSuccess) return e;
  if (is_captured(handle)) return keep(handle, [=](cudaStream_t s) { return cudaLaunchHostFunc(s, function, user); });
  host_functions.emplace_back(function, user);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  {
    const std::lock_guard lock(runtime);
    const int device = current_device();
    if (device < 0) return report(cudaErrorNoDevice);
    if (const cudaError_t e = refuse_to_wait_for_device(device); e != cudaSuccess) return e;
    if (counting()) count_wait("device");
    Clock all = default_stream(device)->known;
    merge(all, orphans);
    for (auto& s : streams)
      if (s->device == device) merge(all, s->known);
    wait_for_calls(all);
    host_learns(all);
  }
  return join_host_functions(), cudaSuccess;
}
cudaError_t cudaDeviceReset() { return cudaDeviceSynchronize(); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  const std::lock_guard lock(runtime);
  if (current_device() < 0) return report(cudaErrorNoDevice);
  if (!out) return report(cudaErrorInvalidValue);
  return *out = *events.insert(new CUevent_st{flags, current_device(), false, {}, {}, {}}).first, cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* out) { return cudaEventCreateWithFlags(out, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  const std::lock_guard lock(runtime);
  if (!events.erase(e)) return report(cudaErrorInvalidResourceHandle);
  return delete e, cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t handle) {
  const std::lock_guard lock(runtime);
  Stream* s = stream_of(handle);
  if (!s || !events.contains(e) || e->device != s->device) return report(cudaErrorInvalidResourceHandle);
  if (const cudaError_t error = refuse_use(s); error != cudaSuccess) return error;
  if (s->capture) return record_captured(*s, e->captured);
  e->captured = {};
  merge(s->known, host);
  order_with_default_stream(*s);
  e->known = s->known, e->recorded = true, e->when = std::chrono::steady_clock::now();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  {
    const std::lock_guard lock(runtime);
    if (!events.contains(e)) return report(cudaErrorInvalidResourceHandle);
    if (const cudaError_t error = refuse_to_ask(e->captured); error != cudaSuccess) return error;
    if (counting()) count_wait("event");
    const Clock known = e->known;  // it may be recorded again meanwhile
    wait_for_calls(known);
    host_learns(known);
  }
  return join_host_functions(), cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  const std::lock_guard lock(runtime);
  if (!events.contains(e)) return report(cudaErrorInvalidResourceHandle);
  if (const cudaError_t error = refuse_to_ask(e->captured); error != cudaSuccess) return error;
  return query(e->known);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const std::lock_guard lock(runtime);
  for (cudaEvent_t e : {start, end})
    if (!events.contains(e) || (!e->recorded && !e->captured.capture) || (e->flags & cudaEventDisableTiming))
      return report(cudaErrorInvalidResourceHandle);
  for (cudaEvent_t e : {start, end})
    if (const cudaError_t error = refuse_to_ask(e->captured); error != cudaSuccess) return error;
  if (!host_knows(start->known) || !host_knows(end->known)) return cudaErrorNotReady;
  return *milliseconds = std::chrono::duration<float, std::milli>(end->when - start->when).count(), cudaSuccess;
}
