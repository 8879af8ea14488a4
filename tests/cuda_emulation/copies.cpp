// Copies and fills. A copy to pinned memory arrives, and one from pinned memory is over, only when the host has waited for it; one
// between a device and ordinary host memory waits by itself, as CUDA's does.
#include <cuda_runtime_api.h>

#include <cstring>
#include <list>
#include <string_view>

#include "count.h"
#include "runtime.h"

namespace cuda_emulation {
namespace {
struct LateWrite {  // device to pinned
  char* to;
  std::vector<char> bytes;
  int stream;
  uint64_t time;
};
struct LateRead {  // pinned to device
  const char* from;
  size_t size, hash;
  int stream;
  uint64_t time;
};
auto& late_writes = *new std::list<LateWrite>;
auto& late_reads = *new std::list<LateRead>;
constexpr size_t kMostLate = size_t(256) << 20;  // bytes of late writes; beyond it the host is taken to have waited
size_t late_bytes = 0;

size_t hash(const void* p, size_t n) { return std::hash<std::string_view>()({static_cast<const char*>(p), n}); }
bool overlap(const void* a, size_t n, const void* b, size_t m) {
  return static_cast<const char*>(a) < static_cast<const char*>(b) + m &&
         static_cast<const char*>(b) < static_cast<const char*>(a) + n;
}
void deliver(const LateWrite& w) {
  std::memcpy(w.to, w.bytes.data(), w.bytes.size());
  late_bytes -= w.bytes.size();
}
/// What the stream itself has done to that memory is in order: late bytes that it will read arrive, sources that it overwrites are done with.
void settle_overlap(const void* p, size_t n, bool write) {
  const Clock& known = work->stream.known;
  late_writes.remove_if([&](const LateWrite& w) {
    const bool arrives = overlap(w.to, w.bytes.size(), p, n) && knows(known, w.stream, w.time);
    if (arrives) deliver(w);
    return arrives;
  });
  if (write)
    late_reads.remove_if(
        [&](const LateRead& r) { return overlap(r.from, r.size, p, n) && knows(known, r.stream, r.time); });
}
void move(char* to, const char* from, size_t n) {
  const bool to_host = !is_device_pointer(to), from_host = !is_device_pointer(from);
  if (to_host && is_pinned(to, n)) settle_overlap(to, n, true);
  if (from_host && is_pinned(from, n)) settle_overlap(from, n, false);
  if (overlap(to, n, from, n)) fail("source and destination overlap");
  if (to_host && is_pinned(to, n)) {
    late_writes.push_back({to, {from, from + n}, work->stream.id, work->time});
    late_bytes += n;
    std::memset(to, 0xff, n);
    if (late_bytes > kMostLate) host_learns(work->stream.known);
    return;
  }
  std::memcpy(to, from, n);
  if (from_host && is_pinned(from, n)) late_reads.push_back({from, n, hash(from, n), work->stream.id, work->time});
  else if (to_host) host_learns(work->stream.known);
}
/// Note [Counting].
void count_copy(const char* name, char* to, size_t to_pitch, const char* from, size_t from_pitch, size_t width,
                size_t height) {
  const bool up = !is_device_pointer(from), down = !is_device_pointer(to);
  const double bytes = double(width * height);
  count_call(up ? "up" : down ? "down" : "copy", name, {.read = bytes, .written = bytes});
  if (width * height <= kCounted)
    for (size_t row = 0; row < height; ++row) std::memcpy(to + row * to_pitch, from + row * from_pitch, width);
}
bool fits(cudaMemcpyKind kind, const void* to, const void* from) {
  return kind == cudaMemcpyDefault || int(is_device_pointer(from)) * 2 + int(is_device_pointer(to)) == int(kind);
}
cudaError_t copy(const char* name, char* to, size_t to_pitch, const char* from, size_t from_pitch, size_t width,
                 size_t height, cudaMemcpyKind kind, cudaStream_t handle) {
  const std::lock_guard lock(runtime);
  Stream* stream = stream_of(handle);
  if (const cudaError_t e = refuse_use(stream); e != cudaSuccess) return e;
  if (width == 0 || height == 0) return cudaSuccess;
  if (!to || !from || (height > 1 && (to_pitch < width || from_pitch < width))) return report(cudaErrorInvalidValue);
  if (!fits(kind, to, from)) return report(cudaErrorInvalidMemcpyDirection);
  if (stream->capture) {
    const auto lasting = [](const char* p) { return is_device_pointer(p) || is_pinned(p); };
    if (!lasting(to) || !lasting(from)) return refuse_to_wait_for(*stream);
    return keep(handle,
                [=](cudaStream_t s) { return copy(name, to, to_pitch, from, from_pitch, width, height, kind, s); });
  }
  Work now({.call = name}, *stream);
  if (counting()) return count_copy(name, to, to_pitch, from, from_pitch, width, height), cudaSuccess;
  claim(from, (height - 1) * from_pitch + width, false, true);
  claim(to, (height - 1) * to_pitch + width, true, true);
  for (size_t row = 0; row < height; ++row) move(to + row * to_pitch, from + row * from_pitch, width);
  check_margins();
  return cudaSuccess;
}
}  // namespace

void settle_copies() {
  late_writes.remove_if([](const LateWrite& w) {
    const bool done = knows(host, w.stream, w.time);
    if (done) deliver(w);
    return done;
  });
  bool changed = false;
  late_reads.remove_if([&](const LateRead& r) {
    const bool done = knows(host, r.stream, r.time);
    changed = changed || (done && hash(r.from, r.size) != r.hash);
    return done;
  });
  if (changed)
    throw Fault("[cudaMemcpyAsync] the host changed the pinned source of a copy before it had waited for its end");
}
}  // namespace cuda_emulation

using namespace cuda_emulation;

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind kind, cudaStream_t s) {
  return copy("cudaMemcpyAsync", static_cast<char*>(to), n, static_cast<const char*>(from), n, n, 1, kind, s);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t s) {
  return copy("cudaMemcpy2DAsync", static_cast<char*>(to), to_pitch, static_cast<const char*>(from), from_pitch, width,
              height, kind, s);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t n, cudaStream_t s) {
  {
    const std::lock_guard lock(runtime);
    for (const auto& [p, device] : {std::pair<const void*, int>{to, to_device}, {from, from_device}}) {
      const Allocation* a = is_device_pointer(p) ? find(p) : nullptr;
      if (n && a && a->device != device) return report(cudaErrorInvalidValue);
    }
  }
  return copy("cudaMemcpyPeerAsync", static_cast<char*>(to), n, static_cast<const char*>(from), n, n, 1,
              cudaMemcpyDeviceToDevice, s);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind kind) {
  if (const cudaError_t e = refuse_in_capture(); e != cudaSuccess) return e;
  const cudaError_t error =
      copy("cudaMemcpy", static_cast<char*>(to), n, static_cast<const char*>(from), n, n, 1, kind, nullptr);
  const bool inside = is_device_pointer(to) && is_device_pointer(from);  // the one that does not wait
  return error != cudaSuccess || inside ? error : cudaStreamSynchronize(nullptr);
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t n, cudaStream_t handle) {
  const std::lock_guard lock(runtime);
  Stream* stream = stream_of(handle);
  if (const cudaError_t e = refuse_use(stream); e != cudaSuccess) return e;
  if (n == 0) return cudaSuccess;
  if (!is_device_pointer(to) && !is_pinned(to, n)) return report(cudaErrorInvalidValue);
  if (stream->capture) return keep(handle, [=](cudaStream_t s) { return cudaMemsetAsync(to, value, n, s); });
  Work now({.call = "cudaMemsetAsync"}, *stream);
  if (counting()) count_call("fill", "cudaMemsetAsync", {.written = double(n)});
  if (counting() && n > kCounted) return cudaSuccess;
  if (!counting()) claim(to, n, true);
  std::memset(to, value, n);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int value, size_t n) {
  const cudaError_t refused = refuse_in_capture();
  return refused != cudaSuccess ? refused : cudaMemsetAsync(to, value, n, nullptr);
}
