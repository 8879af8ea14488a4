#include "backend.h"

#include <atomic>

#include "cuda.h"
#include "denormals.h"
#include "error.h"
#include "recording.h"
#include "trace.h"

namespace tapir::inline v0 {
namespace {

std::atomic<const BackendTable*> loaded[kNumDeviceTypes];

/// The device's own table, whatever this thread's modes put before it.
const BackendTable& built_in(Device device) {
  auto& slot = loaded[int(device.type)];
  const BackendTable* table = slot.load(std::memory_order_acquire);
  if (table) [[likely]]
    return *table;
  table = built_in_backend(device.type);
  if (!table) fail(ErrorKind::Value, "[{}] expected a device that this program can use: {}", device, cuda::why_not());
  slot.store(table, std::memory_order_release);
  return *table;
}

}  // namespace

const BackendTable& load_backend(Device device) {
  const BackendTable& table = profiler::observed(traced(built_in(device), device.type), device.type);
  modes.tables[int(device.type)] = &table;
  return table;
}

Context& context(Device device) {
  static thread_local Context contexts[kNumDeviceTypes];
  Context& c = contexts[int(device.type)];
  detail::follow_flush_denormal();
  c.free_scratch();
  c.device = device;
  c.deterministic = modes.deterministic, c.autotune = modes.autotune;
  c.stream = current_stream(device);
  c.table = &built_in(device);
  c.error.set = false;
  c.late_error = 0;
  return c;
}

}  // namespace tapir::inline v0
