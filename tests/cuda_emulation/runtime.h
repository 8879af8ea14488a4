// What the sources of the emulation share. Note [Emulation]
// A launch runs at once, on the thread that asks for it, one at a time in the process; what is asynchronous is only the bookkeeping.
// Device memory is closed to everybody (PROT_NONE) except while a piece of work that touches it runs, and every touch is compared
// with what the stream is known to have waited for.
#pragma once
#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "capture_errors.h"
#include "include/emulation/launch.h"

namespace cuda_emulation {
using Clock = std::vector<uint64_t>;  // [stream id]: how much of that stream's work is known to be done
struct Capture;
/// What an event means that was recorded on a captured stream.
struct CapturedEvent {
  Capture* capture = nullptr;
  cudaEvent_t own = nullptr;  // the graph's
  Clock known = {};
};
}  // namespace cuda_emulation

#pragma GCC visibility push(hidden)
/// `known` grows by every event that the stream waits for; known[id] counts its own work.
struct CUstream_st {
  int id, device, priority;
  unsigned flags;
  std::vector<uint64_t> known;
  cuda_emulation::Capture* capture = nullptr;  // what is queued goes there
  uint32_t orderly = 0;  // its last work, if that is a launch that let the next one begin only after its own wait
};

namespace cuda_emulation {

// ---- fault.cpp: failing, and what an unexpected access to memory means
/// The operation that a message blames: a call, or a kernel whose name is looked up only when it is needed.
struct Label {
  const char* call = nullptr;
  const void* kernel = nullptr;
  std::string text() const;
};
/// The mangled name of the kernel, or nothing; `own`: only where this library or program holds it.
std::string symbol_of(const void* kernel, bool own = false);
/// Ends the operation in progress: a Fault for its caller, with the block and thread where a kernel runs.
[[noreturn]] void fail(const std::string& why);
/// Makes the fault handler ours on this thread and in this process, whoever has set another one meanwhile.
void watch_memory();

// ---- order.cpp: streams, events and what is known to be done
using Stream = CUstream_st;
bool is_default(const Stream& s);
Stream* stream_of(cudaStream_t s);  // null where it is not a live one; the default stream is of the current device
bool knows(const Clock& clock, int stream, uint64_t time);
bool another_stream_knows(int stream, uint64_t time);
void host_learns(const Clock& clock);
extern Clock& host;  // what some host thread has waited for

/// Of all state here; a thread may take it again, and let go of it as a whole while it waits.
class RuntimeMutex {
 public:
  void lock() { mutex_.lock(), ++depth_; }
  void unlock() { --depth_, mutex_.unlock(); }
  /// By the thread that has it, until somebody calls notify_all().
  void wait();
  void notify_all() { changed_.notify_all(); }

 private:
  std::recursive_mutex mutex_;
  std::condition_variable_any changed_;
  int depth_ = 0;
};

/// One piece of work on a stream: ordered after what came before, the only one in the process while it lives.
class Work {
 public:
  Work(Label label, Stream& stream);
  /// A call beside the plugin, which ends later: nothing is waited for.
  struct Later {};
  Work(Label label, Stream& stream, Later);
  /// That call again, when it runs: its accesses were checked before.
  Work(Label label, Stream& stream, uint64_t time);
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  Label label;
  Stream& stream;
  uint64_t time;         // of this work on its stream
  bool checked = false;  // before
  uint32_t behind;       // the orderly launch before it; 0: none
 private:
  void begin();
  std::unique_lock<RuntimeMutex> lock_;
};
extern Work* work;  // in progress
bool works_here();  // ... on this thread
extern RuntimeMutex runtime;

// ---- graphs.cpp: capturing streams. Note [What a capture forbids]
using Queued = std::function<cudaError_t(cudaStream_t)>;
bool is_captured(cudaStream_t s);
cudaError_t keep(cudaStream_t captured, Queued call);  // for the launches of the graph
/// cudaSuccess; or an error, which also spoils the captures that forbid it: for calls that act at once.
cudaError_t refuse_in_capture();
/// The same for any use of a stream: not a live one (null), or the legacy stream beside a captured stream that blocks.
cudaError_t refuse_use(const Stream* s);
/// For questions about an event.
cudaError_t refuse_to_ask(const CapturedEvent& e);
/// For waits and questions: of a stream that is captured, or a device with one.
cudaError_t refuse_to_wait_for(const Stream& s);
cudaError_t refuse_to_wait_for_device(int device);
cudaError_t record_captured(Stream& s, CapturedEvent& e);
cudaError_t wait_captured(Stream& s, const CapturedEvent& e);  // one of both is captured; the stream joins

// ---- memory.cpp
struct Allocation {
  char *pages = nullptr, *begin = nullptr;
  size_t size = 0, bytes = 0;  // as asked for; of the pages
  int device = 0;
  bool by_driver = false;  // cuMemMap's, not cudaMalloc's
  enum { Unmapped, Closed, Readable, Writable } state = Unmapped;
  struct Use {
    int stream;
    uint64_t time;
  };
  std::vector<Use> reads;  // since the last write
  Use written{-1, 0};
  Label by;  // who wrote
};
char* take_addresses(size_t bytes, size_t alignment);  // never given out before, a guard page behind them
bool count_bytes(int device, long bytes);  // more or less memory of it in use; false when it has not so much
void open_pages(char* pages, size_t bytes, int device);  // an allocation made of whole pages
void close_pages(char* pages);                           // Fault where the device may still work on it
bool is_device_pointer(const void* p);
bool is_pinned(const void* p, size_t bytes = 1);
/// The allocation whose pages, or guard page, hold the address; null where there is none.
Allocation* find(const void* p);
std::string describe(const Allocation& a);
/// A touch by the work in progress: checks device and order, opens the pages.
void touch(Allocation& a, bool write, bool of_any_device = false);
/// The same for a range that a copy names; host memory passes.
void claim(const void* p, size_t bytes, bool write, bool of_any_device = false);
[[noreturn]] void fail_outside(const void* p, const Allocation* a);
void check_margins();  // of what the work in progress wrote
/// Copies to and from pinned memory whose end the host has now waited for: their bytes arrive, their sources were left alone.
void settle_copies();
void close_all();
// ---- beside.cpp: calls of a library beside the plugin
/// Fault where one uses it still.
void check_held(const char* call, const Allocation& a);
/// Is one of those that `known` has waited for still on its way?
bool awaits_calls(const Clock& known);
/// Until none is: what would wait on the device waits here, in the host. The caller has `runtime`.
void wait_for_calls(const Clock& known);
int current_device();
int device_count();
bool has_kernel_image();                // for its architecture
void bind_context();                    // to this thread
bool has_context();                     // what the driver's functions want; the runtime's see to it themselves
cudaError_t report(cudaError_t error);  // remembers it for cudaGetLastError

// ---- fibers.cpp
bool kernel_runs();  // on this thread, and not its host side
/// Leaves the running kernel for good; launch() throws `message`.
[[noreturn]] void abandon_kernel(const std::string& message);
std::string place();  // of the running thread in its grid
bool in_own_stack(const void* p);
uint64_t random_below(uint64_t n);
unsigned char* dynamic_shared();  // of this thread: 227 KiB
constexpr size_t kSharedLimit = 227 << 10, kSharedDefault = 48 << 10;

// ---- launch_bounds.cpp, launch_log.cpp
unsigned launch_bound(const void* kernel);  // threads of a block, by its __launch_bounds__ (1024)
bool flushes_denormals(const void* kernel);
void log_launch(const cudaLaunchConfig_t& config, const void* kernel);

// ---- checks.cpp
/// Who makes an access: threads of one warp are ordered by __syncwarp, those of a block by barriers, blocks by launches.
struct Actor {
  uint32_t launch, block;
  uint16_t epoch, warp_epoch;  // barriers of the block, __syncwarps of the thread, so far
  uint8_t warp, lane;
};
Actor actor();
/// An access of a kernel that was compiled while the program runs.
void check_module_access(const void* p, size_t size, bool write, const void* by);

}  // namespace cuda_emulation
#pragma GCC visibility pop
