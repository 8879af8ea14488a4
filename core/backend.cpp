#include "backend.h"

#include <atomic>
#include <mutex>
#include <string>

#include "allocator.h"
#include "cuda.h"
#include "error.h"
#include "trace.h"

namespace tapir::inline v0 {
namespace {

std::atomic<const BackendTable*> loaded[kNumDeviceTypes];
std::mutex error_word;  // of every context: bad values are rare

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
  const BackendTable& table = traced(built_in(device), device.type);
  modes.tables[int(device.type)] = &table;
  return table;
}

Context& context(Device device) {
  static thread_local Context contexts[kNumDeviceTypes];
  Context& c = contexts[int(device.type)];
  c.free_scratch();
  c.device = device;
  c.deterministic = modes.deterministic;
  c.error.set = false;
  return c;
}

// Scratch belongs to the kernel, not to the program that a recorder writes down: it bypasses the thread's table.
void* Context::scratch(int64_t bytes) {
  check_internal(count_ < kMaxScratch, "[scratch] expected at most {} blocks in one kernel", kMaxScratch);
  void* block = built_in(device).allocate(bytes, device);
  if (!block) fail_out_of_memory(bytes, device);
  blocks_[count_] = block;
  bytes_[count_++] = bytes;
  return block;
}

void Context::free_scratch() {
  while (count_ > 0) {
    --count_;
    built_in(device).release(blocks_[count_], bytes_[count_], device);
  }
}

void Context::bad_value(int64_t position, int64_t value, int64_t bound) {
  std::lock_guard lock(error_word);  // pieces of a parallel loop may call at once
  if (!error.set || position < error.position) error = {true, position, value, bound};
}

void fail_values(const ErrorWord& error, std::string_view text) {
  std::string message(text);
  const auto put = [&](std::string_view name, int64_t number) {
    for (size_t at = 0; (at = message.find(name, at)) != std::string::npos;)
      message.replace(at, name.size(), std::to_string(number));
  };
  put("{value}", error.value);
  put("{position}", error.position);
  put("{bound}", error.bound);
  throw ValueError(message);
}

}  // namespace tapir::inline v0
