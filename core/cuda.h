#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "device.h"

namespace tapir::inline v0 {
struct MemoryStats;
class Tensor;
}  // namespace tapir::inline v0

/// CUDA devices, streams and memory, under PyTorch's names. The backend is a plugin, libtapir_cuda.so, opened at the first call; without
/// it, without a driver or a device is_available() is false and everything on the CPU works on. Functions with `device = -1` mean the
/// current device. All but the first four throw ValueError, with why_not(), where no device is available.
namespace tapir::inline v0::cuda {

/// Is there a CUDA device that Tapir can use? Never throws.
bool is_available();
int device_count();
/// Why is_available() is false, with each place where a library was looked for; empty when it is true.
std::string why_not();
/// CUDA's libraries (but NCCL), their versions and files, and what became of the calls of cuBLASLt and cuDNN: how many each served, and the
/// signatures that it refused (the 40 most frequent) in its own words; kernels of Tapir's ran instead. For people. Works without a device.
std::string library_report();

struct DeviceProperties {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int64_t total_memory = 0;  // bytes
  int multi_processor_count = 0, max_threads_per_multi_processor = 0, warp_size = 32;
  int64_t shared_memory_per_block = 0, l2_cache_size = 0;
  int driver_version = 0, runtime_version = 0;  // 13000 is 13.0
};
DeviceProperties get_device_properties(int device = -1);
std::string get_device_name(int device = -1);
/// The device that functions here mean when none is named, and where new streams and events live; of this thread, 0 at first.
int current_device();
void set_device(int device);
/// set_device() for a scope.
class [[nodiscard]] DeviceGuard {
 public:
  explicit DeviceGuard(int device) : before_(current_device()) { set_device(device); }
  ~DeviceGuard() { set_device(before_); }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int before_;
};
/// Waits for everything on the device, and throws what its kernels met (an index out of range).
void synchronize(int device = -1);
/// How often the host has waited for a device so far: 0 more in a training step is the goal.
int64_t synchronizations();

class Event;
/// A queue of work: a handle, copies mean the same queue. `Stream s;` takes a new one from the current device; queues live as long as the
/// program.
class Stream {
 public:
  /// A lower priority number goes first (-1 before 0).
  explicit Stream(int device = -1, int priority = 0);
  int device() const { return device_; }
  void synchronize() const;
  /// True when nothing is left to do.
  bool query() const;
  void wait_event(const Event& event) const;
  /// Work put here from now on waits for what `other` holds now.
  void wait_stream(const Stream& other) const;
  Event record_event() const;
  void* handle() const { return handle_; }  // cudaStream_t
  bool operator==(const Stream&) const = default;

 private:
  friend Stream current_stream(int), default_stream(int);
  Stream(int device, void* handle) : device_(device), handle_(handle) {}
  int device_;
  void* handle_;
};
/// The stream that kernels go to when nothing else is said.
Stream default_stream(int device = -1);
/// Where this thread's kernels on that device go.
Stream current_stream(int device = -1);
void set_stream(const Stream& stream);
/// Kernels of this thread go to `stream` in this scope.
class [[nodiscard]] StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream) : before_(current_stream(stream.device())) { set_stream(stream); }
  ~StreamGuard() { set_stream(before_); }
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Stream before_;
};

/// A point in a stream: others wait for it, and two of them measure time.
class Event {
 public:
  explicit Event(bool enable_timing = false, int device = -1);
  ~Event();
  Event(Event&& o) noexcept;
  Event& operator=(Event&& o) noexcept;
  void record(const Stream& stream = current_stream());
  void synchronize() const;
  /// True when the point was passed, or nothing was recorded.
  bool query() const;
  /// Milliseconds from this event to `end`; both with enable_timing and passed.
  double elapsed_time(const Event& end) const;
  void* handle() const { return handle_; }  // cudaEvent_t
  int device() const { return device_; }

 private:
  int device_ = 0;
  void* handle_ = nullptr;
};

// Memory, in bytes.
int64_t memory_allocated(int device = -1);
int64_t max_memory_allocated(int device = -1);
int64_t memory_reserved(int device = -1);
int64_t max_memory_reserved(int device = -1);
MemoryStats memory_stats(int device = -1);
void reset_peak_memory_stats(int device = -1);
/// A table of the above for people.
std::string memory_summary(int device = -1);
/// Gives cached blocks back to the driver.
void empty_cache(int device = -1);
struct MemoryInfo {
  int64_t free, total;
};
/// What the driver says of the whole device, other processes included.
MemoryInfo mem_get_info(int device = -1);
/// At most this part of the device's memory; above it there is an OutOfMemoryError. ValueError outside (0, 1].
void set_per_process_memory_fraction(double fraction, int device = -1);
/// A block of the caching allocator.
struct MemoryBlock {
  uint64_t address, segment;  // of the block, and of the driver's allocation that it lies in
  int64_t bytes, requested;   // requested: what was asked for, 0 when the block is free
  void* stream;
  bool in_use;
};
std::vector<MemoryBlock> memory_snapshot(int device = -1);
/// The tensor's memory is not given to others before `stream` has passed this point: for tensors used on a stream other than that they
/// were made on.
void record_stream(const Tensor& x, const Stream& stream);
/// What the current stream of `waiter` does from now on waits for what the current stream of `other` holds now.
void wait_for_device(Device waiter, Device other);

}  // namespace tapir::inline v0::cuda

namespace tapir::inline v0::backends::cuda {
/// float32 products and convolutions in TF32 (10 bits of mantissa): three switches with PyTorch's names and defaults.
void set_matmul_allow_tf32(bool on);
bool matmul_allow_tf32();
void set_cudnn_allow_tf32(bool on);
bool cudnn_allow_tf32();
/// Try cuDNN's plans for each new shape and keep the fastest.
void set_cudnn_benchmark(bool on);
bool cudnn_benchmark();
}  // namespace tapir::inline v0::backends::cuda
