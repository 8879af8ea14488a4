#include <cstdlib>
#include <new>
#include <utility>

#include "allocator.h"

// Small blocks for tensor and tape nodes. They die where they were made, mostly, so each thread keeps its own lists, by size in
// steps of 64 bytes; no lock, no counter. A list of full length, a thread that has ended and a sanitizer's build use malloc.
namespace tapir::inline v0 {
namespace {

constexpr int kClasses = 16, kKept = 4096;
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kUnpooled = true;  // every block is then watched by itself
#else
constexpr bool kUnpooled = false;
#endif

struct FreeLink {
  FreeLink* next;
};
struct Pool {
  FreeLink* heads[kClasses] = {};
  int counts[kClasses] = {};
  bool live = false, gone = false;
};
constinit thread_local Pool pool;

/// Frees the lists when its thread ends; other destructors of that thread may run later and then use malloc.
struct AtExit {
  ~AtExit() {
    pool.live = false, pool.gone = true;
    for (FreeLink*& head : pool.heads)
      while (head) std::free(std::exchange(head, head->next));
  }
};

[[gnu::noinline]] bool enter_pool() {
  if (pool.gone) return false;
  static thread_local AtExit at_exit;
  (void)&at_exit;
  return pool.live = true;
}

[[gnu::noinline]] void* from_system(std::size_t bytes) {
  void* block = std::malloc(bytes ? bytes : 1);
  if (!block) [[unlikely]] {
    trim_memory();
    block = std::malloc(bytes ? bytes : 1);
    if (!block) fail_out_of_memory(int64_t(bytes), kCPU);
  }
  return block;
}

}  // namespace

void* pool_allocate(std::size_t bytes) {
  const std::size_t index = (bytes - 1) / 64;
  if (kUnpooled || index >= kClasses) [[unlikely]]
    return from_system(bytes);
  FreeLink* block = pool.heads[index];
  if (!block) [[unlikely]]
    return from_system((index + 1) * 64);
  pool.heads[index] = block->next;
  --pool.counts[index];
  return block;
}

void pool_release(void* block, std::size_t bytes) noexcept {
  if (!block) return;
  const std::size_t index = (bytes - 1) / 64;
  if (kUnpooled || index >= kClasses || !(pool.live || enter_pool()) || pool.counts[index] >= kKept) [[unlikely]]
    return std::free(block);
  pool.heads[index] = new (block) FreeLink{pool.heads[index]};
  ++pool.counts[index];
}

}  // namespace tapir::inline v0
