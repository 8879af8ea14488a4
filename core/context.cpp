#include <mutex>
#include <string>

#include "allocator.h"
#include "backend.h"
#include "device_table.h"
#include "error.h"

// What a kernel calls of its Context: apart from the rest of backend.cpp, so that a plugin needs nothing more.
namespace tapir::inline v0 {

constinit thread_local ScratchPool* scratch_pool = nullptr;
constexpr int64_t kPooled = -1;  // stands for the bytes of what the pool gave
static std::mutex error_word;    // of every context: bad values are rare

// Scratch belongs to the kernel, not to the program that a recorder writes down: it bypasses the thread's table.
void* Context::scratch(int64_t bytes) {
  check_internal(count_ < kMaxScratch, "[scratch] expected at most {} blocks in one kernel", kMaxScratch);
  const bool pooled = scratch_pool && !device.is_cpu();
  void* block = pooled ? scratch_pool->take(bytes) : table->allocate(bytes, device, stream);
  if (!block) fail_out_of_memory(bytes, device);
  blocks_[count_] = block;
  bytes_[count_++] = pooled ? kPooled : bytes;
  return block;
}

void Context::free_scratch() {
  while (count_ > 0) {
    --count_;
    if (bytes_[count_] != kPooled) table->release(blocks_[count_], bytes_[count_], device);
    else if (scratch_pool) scratch_pool->give(blocks_[count_]);
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

void name_late_error(const Context& ctx, std::string_view text) { ctx.table->device->name_late_error(ctx, text); }

}  // namespace tapir::inline v0
