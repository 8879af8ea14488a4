#include <algorithm>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "../../core/error.h"
#include "device.h"
#include "graphs.h"
#include "late_error.h"

// Note [Late errors]
// A kernel meets a bad index long after the call that queued it has returned. Each such kernel gets a place of a ring in device memory,
// where it leaves the bad value of the lowest position, and raises `any`, a word of page-locked memory that the host reads after each
// wait. Only when it is raised does the host look at the ring; it throws the error of the kernel that was launched first, and forgets
// the others, which mostly follow from it.
// A place is used again 4096 kernels later. Until then its kernel must be done: two quarters after a quarter of the ring was handed
// out, an event is recorded on each stream that took places in it, and waited for (mostly long passed) before it is handed out anew.
// Kernels of a graph keep theirs, beside the ring, for as long as the graph lives; a launch of it numbers them anew.
namespace tapir::inline v0::cuda_kernels {
namespace {

constexpr int kPlaces = 4096, kQuarter = kPlaces / 4;
constexpr int kKept = 4096, kAll = kPlaces + kKept;  // of graphs

struct Ring {
  std::mutex mutex;
  LateError* places = nullptr;  // device memory
  int* any = nullptr;           // page-locked, kernels write it
  uint64_t next = 0;            // number of the next place
  uint64_t launches = 0;        // so far, of kernels with a place
  std::deque<int> kept;         // places that no graph has
  struct Place {
    uint64_t launch = 0;
    std::string text;
  } of[kAll];
  struct Quarter {
    std::vector<void*> streams;
    std::vector<cudaEvent_t> events;
  } quarters[4];
  // The first error that nobody was told of.
  bool found = false;
  uint64_t found_launch = 0;
  ErrorWord error;
  std::string text;

  void create();
  void enter(Device device, int quarter);
  void collect(Device device);
  void read_places(Device device);
  LateError* keep(Context& ctx, std::vector<int>& graph);
  bool raised() const { return __atomic_load_n(any, __ATOMIC_ACQUIRE) != 0; }
};

Ring& ring_of(Device device) {
  static Ring* const rings = new Ring[kMaxDevices];  // never destroyed
  return rings[device.index];
}

void Ring::create() {
  void *word = nullptr, *seen = nullptr, *memory = nullptr;
  check_cuda(cudaHostAlloc(&word, sizeof(int), cudaHostAllocMapped), "late_error");
  *static_cast<int*>(word) = 0;
  check_cuda(cudaHostGetDevicePointer(&seen, word, 0), "late_error");
  check_cuda(cudaMalloc(&memory, kAll * sizeof(LateError)), "late_error");
  std::vector<LateError> blank(kAll, LateError{});
  for (LateError& e : blank) e.any = static_cast<int*>(seen);
  check_cuda(cudaMemcpy(memory, blank.data(), kAll * sizeof(LateError), cudaMemcpyHostToDevice), "late_error");
  any = static_cast<int*>(word), places = static_cast<LateError*>(memory);
  for (int i = kPlaces; i < kAll; ++i) kept.push_back(i);
}

/// Before the first place of a quarter is handed out.
void Ring::enter(Device device, int quarter) {
  Quarter& left = quarters[(quarter + 2) % 4];
  for (void* stream : left.streams) {
    const cudaEvent_t event = take_event(device);
    check_cuda(cudaEventRecord(event, stream_of(stream)), "late_error");
    left.events.push_back(event);
  }
  left.streams.clear();
  for (const cudaEvent_t event : quarters[quarter].events) {
    if (cudaEventQuery(event) != cudaSuccess) {
      cudaGetLastError();
      count_host_wait();
      check_cuda(cudaEventSynchronize(event), "late_error");
    }
    return_event(device, event);
  }
  quarters[quarter].events.clear();
  if (raised()) collect(device);
}

/// Moves what kernels have written to `error`, keeping the earliest launch. Rare: may wait for everything.
void Ring::collect(Device device) {
  __atomic_store_n(any, 0, __ATOMIC_RELEASE);  // before looking: a kernel that comes later raises it again
  try {
    read_places(device);
  } catch (...) {
    __atomic_store_n(any, 1, __ATOMIC_RELEASE);  // what was not read is still to be told
    throw;
  }
}

void Ring::read_places(Device device) {
  check_cuda(wait_for_streams(device), "synchronize");
  std::vector<LateError> seen(kAll);
  check_cuda(cudaMemcpy(seen.data(), places, kAll * sizeof(LateError), cudaMemcpyDeviceToHost), "synchronize");
  for (int i = 0; i < kAll; ++i) {
    LateError& e = seen[size_t(i)];
    if (!e.set) continue;
    if (!found || of[i].launch < found_launch) {
      found = true, found_launch = of[i].launch, text = of[i].text;
      error = {true, int64_t(e.position), e.value, e.bound};
    }
    e.lock = e.set = 0;
    check_cuda(cudaMemcpy(places + i, &e, sizeof(e), cudaMemcpyHostToDevice), "synchronize");
  }
}

/// One more place of a graph.
LateError* Ring::keep(Context& ctx, std::vector<int>& graph) {
  check(!kept.empty(), "[capture] expected at most {} kernels that check values in all graphs", kKept);
  const int place = kept.front();
  kept.pop_front();
  graph.push_back(place);
  of[place].text.clear();
  ctx.late_error = place + 1;
  return places + place;
}

}  // namespace

void make_late_errors(Device device) {
  Ring& r = ring_of(device);
  const OnDevice on(device);
  std::lock_guard lock(r.mutex);
  if (!r.places) r.create();
}
void launch_late_errors(Device device, const std::vector<int>& places) {
  Ring& r = ring_of(device);
  std::lock_guard lock(r.mutex);
  for (int place : places) r.of[place].launch = r.launches++;
}
void free_late_errors(Device device, const std::vector<int>& places) {
  Ring& r = ring_of(device);
  std::lock_guard lock(r.mutex);
  r.kept.insert(r.kept.end(), places.begin(), places.end());
}

LateError* late_error(Context& ctx) {
  Ring& r = ring_of(ctx.device);
  const OnDevice on(ctx.device);
  std::lock_guard lock(r.mutex);
  if (!r.places) r.create();
  if (std::vector<int>* const graph = captured_late_errors()) return r.keep(ctx, *graph);
  const int place = int(r.next++ % kPlaces);
  if (place % kQuarter == 0) r.enter(ctx.device, place / kQuarter);
  r.of[place].launch = r.launches++;
  r.of[place].text.clear();
  auto& streams = r.quarters[place / kQuarter].streams;
  if (std::find(streams.begin(), streams.end(), ctx.stream) == streams.end()) streams.push_back(ctx.stream);
  ctx.late_error = place + 1;
  return r.places + place;
}

void name_late_error(const Context& ctx, std::string_view text) {
  Ring& r = ring_of(ctx.device);
  std::lock_guard lock(r.mutex);
  r.of[ctx.late_error - 1].text = text;
}

void throw_late_errors(Device device) {
  Ring& r = ring_of(device);
  std::unique_lock lock(r.mutex);
  if (!r.places) return;
  if (r.raised()) [[unlikely]] {
    const OnDevice on(device);
    r.collect(device);
  }
  if (!r.found) [[likely]]
    return;
  r.found = false;
  const ErrorWord error = r.error;
  const std::string text =
      r.text.empty() ? "[cuda] a kernel met the value {value} at position {position}, expected one in range of {bound}"
                     : std::move(r.text);
  r.text.clear();
  lock.unlock();
  fail_values(error, text);
}

}  // namespace tapir::inline v0::cuda_kernels
