#pragma once
// What a profiler's recording holds, and how it is started and ended: Note [Profiler]. Users see train/profiler.h instead.
#include <string>
#include <vector>

#include "device.h"
#include "profiler.h"
#include "simulation.h"
#include "work.h"

namespace tapir::inline v0 {
struct BackendTable;
}

namespace tapir::inline v0::profiler {

struct ProfileOptions {
  bool record_shapes = false;  // of the operations' inputs
  bool profile_memory = true;  // allocations, and the memory in use over time
  bool nvtx = true;            // NVTX ranges too, where the CUDA plugin has them
};

/// One thing that a thread did. Times are nanoseconds since the recording began; events of a thread nest.
struct Event {
  Kind kind;
  const char* name;
  const char* detail = "";  // of a kernel: the operation
  int64_t begin = 0, end = 0;
  int64_t bytes = 0;                          // allocated less released, on all devices; not in what it encloses
  int64_t shapes = -1;                        // where its inputs stand in ThreadRecording::shapes; -1: not recorded
  int64_t span = -1;                          // of a kernel on a device with queues: which of ThreadRecording::spans
  entry::Work work = {};                      // of a kernel
  tapir::detail::Simulation simulation = {};  // of a kernel
};
/// What a kernel took on its device.
struct DeviceSpan {
  Device device;
  void* stream;
  int64_t begin, end;
};
struct MemoryPoint {
  Device device;
  int64_t time, allocated;  // bytes in use
};
struct ThreadRecording {
  std::string name;
  std::vector<Event> events;  // in the order in which they ended
  std::vector<DeviceSpan> spans;
  std::vector<MemoryPoint> memory;
  std::vector<int64_t> shapes;  // the number of inputs, and for each its rank (-1: absent) and sizes
};
struct Recording {
  int64_t duration = 0;
  std::vector<ThreadRecording> threads;  // the one that started it is first
  std::vector<std::vector<char>> texts;  // names that events point to
};

/// ValueError where a recording runs already: there is one for all threads.
void start_recording(const ProfileOptions& options);
/// Ends it, and the scopes that are open with it. Waits for the devices that were used. From the thread that started it.
Recording stop_recording();
/// "matmulBackward", "Optimizer.step#AdamW.step", "Linear", "binary(Mul)".
std::string shown_name(const Event& event);
/// The table that this thread uses from now on where it would use `real`; load_backend() asks.
const BackendTable& observed(const BackendTable& real, DeviceType type);

}  // namespace tapir::inline v0::profiler
