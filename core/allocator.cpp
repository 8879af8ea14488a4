#include "allocator.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "error.h"

// Note [The caching allocator]
// Blocks come in size classes: multiples of 64 bytes up to 512, then 8 steps per power of two (at most 1/8 of a block is lost).
// - Small blocks, up to 1 MiB: freed ones go to a list of the freeing thread, a full list to the shared one.
// - Large blocks: mapped on 2 MiB borders for huge pages, kept in one table by size; a cached block of up to 1.25 times the size
//   serves. Page faults are what costs in a training step, so nothing goes back to the system but by trim_memory(), or when the
//   system has no more.
// Nothing here is ever destroyed: blocks may be freed by threads that end and by destructors that run after main.
namespace tapir::inline v0 {
namespace {

constexpr int64_t kAlign = 64, kSmallLimit = int64_t(1) << 20, kHugePage = int64_t(1) << 21;
constexpr int kSmallClasses = 8 + 11 * 8;
constexpr bool kDirect =  // sanitizers see every block when nothing is cached
#if defined(__SANITIZE_ADDRESS__)
    true;
#else
    false;
#endif

struct SizeClass {
  int index;
  int64_t bytes;
};
/// Of 1 byte or more.
constexpr SizeClass class_of(int64_t bytes) {
  if (bytes <= 512) return {int((bytes - 1) / 64), (bytes + 63) / 64 * 64};
  const int log = 63 - std::countl_zero(uint64_t(bytes - 1)), shift = log - 3;
  const int step = int((bytes - 1) >> shift) - 8;
  return {8 + (log - 9) * 8 + step, int64_t(step + 9) << shift};
}
static_assert(class_of(kSmallLimit).index == kSmallClasses - 1 && class_of(kSmallLimit).bytes == kSmallLimit);
static_assert(class_of(513).bytes == 576 && class_of(513).index == 8 && class_of(1).index == 0);

/// What a large request takes from the system.
constexpr int64_t large_size(int64_t bytes) {
  const int64_t size = class_of(bytes).bytes;
  return size < 2 * kHugePage ? size : (size + kHugePage - 1) / kHugePage * kHugePage;
}

// ---- statistics ----
// Each thread counts for itself, since cores that count together wait for each other: a shared number made two threads of small operations
// 1.6 times as fast as one. What a thread has counted is moved to the shared numbers in lumps, under the mutex, where readers are too.
// Sums are exact while no other thread allocates. A peak may be wrong by kLump for each other thread.
constexpr int64_t kLump = int64_t(256) << 10;
struct alignas(64) Counts {           // written by one thread, or under the mutex
  std::atomic<int64_t> allocated{0};  // since the last lump
  std::atomic<int64_t> peak{0};       // the largest `allocated` of this time
  std::atomic<int64_t> allocations{0};
  Counts* next = nullptr;  // of those whose threads have ended
};
struct Counters {
  std::atomic<int64_t> allocated{0}, reserved{0}, max_allocated{0}, max_reserved{0}, system_allocations{0};
};
constinit Counters counters;

void raise_to(std::atomic<int64_t>& peak, int64_t value) {
  int64_t seen = peak.load(std::memory_order_relaxed);
  while (seen < value && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {}
}
/// `own` has `allocated` bytes to move. Under the mutex.
void move_lump(Counts& own, int64_t allocated) {
  const int64_t before = counters.allocated.load(std::memory_order_relaxed);
  raise_to(counters.max_allocated, before + std::max(allocated, own.peak.load(std::memory_order_relaxed)));
  counters.allocated.store(before + allocated, std::memory_order_relaxed);
  own.allocated.store(0, std::memory_order_relaxed);
  own.peak.store(0, std::memory_order_relaxed);
}
void count_reserved(int64_t bytes) {
  raise_to(counters.max_reserved, counters.reserved.fetch_add(bytes, std::memory_order_relaxed) + bytes);
  if (bytes > 0) counters.system_allocations.fetch_add(1, std::memory_order_relaxed);
}

// ---- the machine ----
/// A number of bytes that stands alone in a file; -1 where there is none ("max" too).
int64_t number_in(const char* path) {
  int64_t n = -1;
  std::ifstream file(path);
  return file >> n ? n : -1;
}

/// Bytes that this process can still get: what the kernel calls available, swap, and the control group's limit.
int64_t available_bytes() {
  int64_t available = INT64_MAX;
  if (std::ifstream info("/proc/meminfo"); info) {
    int64_t sum = 0, kib = 0;
    bool found = false;
    for (std::string name, rest; info >> name >> kib; std::getline(info, rest))
      if (name == "MemAvailable:" || name == "SwapFree:") sum += kib * 1024, found |= name[0] == 'M';
    if (found) available = sum;
  }
  for (const auto& [limit_file, used_file] :
       {std::pair{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
        std::pair{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}}) {
    const int64_t limit = number_in(limit_file), used = number_in(used_file);
    if (limit >= 0 && used >= 0) available = std::min(available, std::max<int64_t>(limit - used, 0));
  }
  return available;
}

/// Mapped by us but not touched yet: the kernel still counts it as available.
int64_t untouched_bytes() {
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return std::max<int64_t>(0, counters.reserved.load(std::memory_order_relaxed) - resident * sysconf(_SC_PAGESIZE));
}

/// Would the machine hold that much more? Overcommit would grant it and kill the process later. Looked up for big blocks and once
/// per 256 MiB of small ones.
bool fits(int64_t bytes) {
  constexpr int64_t kUnchecked = int64_t(256) << 20;
  static std::atomic<int64_t> unchecked{0};
  if (bytes < kUnchecked / 4 && unchecked.fetch_add(bytes, std::memory_order_relaxed) + bytes < kUnchecked) return true;
  unchecked.store(0, std::memory_order_relaxed);
  const int64_t available = available_bytes();
  return available == INT64_MAX || bytes <= available - untouched_bytes();
}

/// A small block: malloc's, from its next border of 64 bytes on, with malloc's address before it. Not aligned_alloc, which before glibc 2.38
/// hardly uses again what was freed (its bug 14581): a process that trims again and again would become twice as large.
void* aligned_from_malloc(int64_t size) {
  if (kDirect) return std::aligned_alloc(kAlign, size_t(size));
  char* const raw = static_cast<char*>(std::malloc(size_t(size + kAlign)));
  if (!raw) return nullptr;
  char* const block =
      raw + kAlign - reinterpret_cast<uintptr_t>(raw) % kAlign;  // malloc's borders: 16 bytes or more are before it
  reinterpret_cast<void**>(block)[-1] = raw;
  return block;
}
void aligned_to_malloc(void* block) { std::free(kDirect ? block : static_cast<void**>(block)[-1]); }

void* from_system(int64_t size) {
  if (!fits(size)) return nullptr;
  if (size <= kSmallLimit || kDirect) {
    void* block = aligned_from_malloc(size);
    if (block) count_reserved(size);
    return block;
  }
  // A 2 MiB border lies somewhere in size + 2 MiB; what is left on both sides goes back at once.
  void* raw = mmap(nullptr, size_t(size + kHugePage), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  char* const start = static_cast<char*>(raw);
  char* const block =
      reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(start) + kHugePage - 1) / kHugePage * kHugePage);
  if (block > start) munmap(start, size_t(block - start));
  if (char* end = start + size + kHugePage; block + size < end) munmap(block + size, size_t(end - block - size));
  madvise(block, size_t(size), MADV_HUGEPAGE);
  count_reserved(size);
  return block;
}

void to_system(void* block, int64_t size) {
  counters.reserved.fetch_sub(size, std::memory_order_relaxed);
  if (size <= kSmallLimit || kDirect) aligned_to_malloc(block);
  else munmap(block, size_t(size));
}

// ---- small blocks ----
struct FreeBlock {
  FreeBlock* next;
};
struct FreeList {
  FreeBlock* head = nullptr;
  int64_t count = 0;
  void push(void* block) { head = new (block) FreeBlock{head}, ++count; }
  void* pop() {
    FreeBlock* block = head;
    if (block) head = block->next, --count;
    return block;
  }
};

struct Shared {
  std::mutex mutex;
  FreeList small[kSmallClasses];
  std::multimap<int64_t, void*> large;          // cached, by size
  std::unordered_map<void*, int64_t> large_of;  // in use: the size of each
  std::deque<Counts> counts{1};                 // the first is that of threads that begin or end, under the mutex
  Counts* free_counts = nullptr;
};
Shared& shared() {
  static Shared* const s = [] {
    static Shared* made = new Shared;
    pthread_atfork([] { made->mutex.lock(); }, [] { made->mutex.unlock(); }, [] { made->mutex.unlock(); });
    return made;
  }();
  return *s;
}

enum class ThreadState : uint8_t { New, Live, Gone };
struct ThreadCache {
  FreeList lists[kSmallClasses];
  Counts* counts = nullptr;
  ThreadState state = ThreadState::New;
};
constinit thread_local ThreadCache cache;

/// How many blocks of a class a thread keeps: 512 KiB worth, from 2 to 64.
constexpr int64_t kept_of(int64_t size) { return std::clamp<int64_t>((int64_t(512) << 10) / size, 2, 64); }

void flush_list(FreeList& list, FreeList& into, int64_t keep) {
  while (list.count > keep) into.push(list.pop());
}
void flush_cache() {
  std::lock_guard lock(shared().mutex);
  for (int i = 0; i < kSmallClasses; ++i) flush_list(cache.lists[i], shared().small[i], 0);
}

/// Counts for this thread; nullptr where the system has no memory for them.
Counts* take_counts() {
  Shared& s = shared();
  std::lock_guard lock(s.mutex);
  if (Counts* own = s.free_counts) return s.free_counts = own->next, own;
  try {
    return &s.counts.emplace_back();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void give_counts(Counts* own) {
  Shared& s = shared();
  std::lock_guard lock(s.mutex);
  move_lump(*own, own->allocated.load(std::memory_order_relaxed));
  own->next = s.free_counts;
  s.free_counts = own;
}

/// True when this thread may keep blocks: its cache then is flushed when it ends. Not under the mutex.
bool cache_is_live() {
  if (cache.state == ThreadState::Live) [[likely]]
    return true;
  if (cache.state == ThreadState::Gone) return false;
  cache.counts = take_counts();
  if (!cache.counts) return false;
  struct AtExit {
    ~AtExit() {
      flush_cache();
      cache.state = ThreadState::Gone;
      give_counts(std::exchange(cache.counts, nullptr));
    }
  };
  static thread_local AtExit at_exit;
  (void)&at_exit;
  cache.state = ThreadState::Live;
  return true;
}

[[gnu::noinline]] void count_lump(Counts& own, int64_t allocated, bool locked) {
  std::unique_lock<std::mutex> lock;
  if (!locked) lock = std::unique_lock(shared().mutex);
  move_lump(own, allocated);
}
void count_in(Counts& own, int64_t bytes, bool locked) {
  const int64_t now = own.allocated.load(std::memory_order_relaxed) + bytes;
  if (bytes > 0) own.allocations.store(own.allocations.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (now > kLump || now < -kLump) [[unlikely]]
    return count_lump(own, now, locked);
  own.allocated.store(now, std::memory_order_relaxed);
  if (now > own.peak.load(std::memory_order_relaxed)) own.peak.store(now, std::memory_order_relaxed);
}
/// In a thread that begins or ends.
[[gnu::noinline]] void count_without_cache(int64_t bytes) {
  if (cache_is_live()) return count_in(*cache.counts, bytes, false);
  std::lock_guard lock(shared().mutex);
  count_in(shared().counts.front(), bytes, true);
}
/// `bytes` more, or fewer where negative.
void count(int64_t bytes) {
  if (Counts* own = cache.counts) [[likely]]
    return count_in(*own, bytes, false);
  count_without_cache(bytes);
}

[[gnu::noinline]] void* refill_small(SizeClass c) {
  Shared& s = shared();
  const bool live = cache_is_live();
  {
    std::lock_guard lock(s.mutex);
    FreeList& list = s.small[c.index];
    void* block = list.pop();
    if (block) {
      if (live)
        for (int64_t more = kept_of(c.bytes) / 2; more > 1 && list.count > 0; --more)
          cache.lists[c.index].push(list.pop());
      return block;
    }
  }
  return from_system(c.bytes);
}

void* allocate_small(SizeClass c) {
  if (void* block = cache.lists[c.index].pop()) [[likely]]
    return block;
  return refill_small(c);
}

void release_small(void* block, SizeClass c) {
  if (!cache_is_live()) [[unlikely]] {
    std::lock_guard lock(shared().mutex);
    return shared().small[c.index].push(block);
  }
  FreeList& list = cache.lists[c.index];
  list.push(block);
  if (const int64_t kept = kept_of(c.bytes); list.count > kept) [[unlikely]] {
    std::lock_guard lock(shared().mutex);
    flush_list(list, shared().small[c.index], kept / 2);
  }
}

// ---- large blocks ----
/// The size of the block is left in `size`.
void* allocate_large(int64_t& size) {
  Shared& s = shared();
  std::lock_guard lock(s.mutex);
  void* block = nullptr;
  if (auto it = s.large.lower_bound(size); it != s.large.end() && it->first <= size + size / 4) {
    size = it->first, block = it->second;
    s.large.erase(it);
  } else {
    block = from_system(size);
  }
  if (block) s.large_of.emplace(block, size);
  return block;
}

/// Returns the size of the block.
int64_t release_large(void* block) {
  Shared& s = shared();
  std::lock_guard lock(s.mutex);
  const auto it = s.large_of.find(block);
  check_internal(it != s.large_of.end(), "[release] expected a block of this allocator");
  const int64_t size = it->second;
  s.large_of.erase(it);
  s.large.emplace(size, block);
  return size;
}

void* allocate_once(int64_t bytes, int64_t& size) {
  if (bytes > kSmallLimit) return size = large_size(bytes), kDirect ? from_system(size) : allocate_large(size);
  const SizeClass c = class_of(bytes);
  size = c.bytes;
  return kDirect ? from_system(size) : allocate_small(c);
}

}  // namespace

void* cpu_allocate(int64_t bytes) {
  if (bytes < 0 || bytes > INT64_MAX / 4) return nullptr;
  int64_t size = 0;
  void* block = allocate_once(std::max<int64_t>(bytes, 1), size);
  if (!block) [[unlikely]] {
    trim_memory();
    block = allocate_once(std::max<int64_t>(bytes, 1), size);
    if (!block) return nullptr;
  }
  count(size);
  return block;
}

void cpu_release(void* data, int64_t bytes) {
  if (!data) return;
  bytes = std::max<int64_t>(bytes, 1);
  int64_t size = class_of(bytes).bytes;
  if (kDirect) to_system(data, size = bytes > kSmallLimit ? large_size(bytes) : size);
  else if (bytes > kSmallLimit) size = release_large(data);
  else release_small(data, class_of(bytes));
  count(-size);
}

void trim_memory() {
  flush_cache();
  Shared& s = shared();
  std::lock_guard lock(s.mutex);
  for (int i = 0; i < kSmallClasses; ++i) {
    const int64_t size = i < 8 ? (i + 1) * 64 : int64_t((i - 8) % 8 + 9) << ((i - 8) / 8 + 6);
    while (void* block = s.small[i].pop()) to_system(block, size);
  }
  for (const auto& [size, block] : s.large) to_system(block, size);
  s.large.clear();
}

MemoryStats memory_stats() {
  const auto get = [](const std::atomic<int64_t>& a) { return a.load(std::memory_order_relaxed); };
  Shared& s = shared();
  std::lock_guard lock(s.mutex);
  MemoryStats stats{.allocated = get(counters.allocated), .reserved = get(counters.reserved)};
  int64_t peak = stats.allocated;
  for (const Counts& c : s.counts)
    stats.allocated += get(c.allocated), peak += get(c.peak), stats.allocations += get(c.allocations);
  raise_to(counters.max_allocated, std::max(peak, stats.allocated));
  stats.max_allocated = get(counters.max_allocated), stats.max_reserved = get(counters.max_reserved);
  stats.system_allocations = get(counters.system_allocations);
  return stats;
}

void reset_peak_memory_stats() {
  Shared& s = shared();
  std::lock_guard lock(s.mutex);
  int64_t allocated = counters.allocated.load(std::memory_order_relaxed);
  for (Counts& c : s.counts) {
    const int64_t own = c.allocated.load(std::memory_order_relaxed);
    c.peak.store(own, std::memory_order_relaxed);
    allocated += own;
  }
  counters.max_allocated.store(allocated, std::memory_order_relaxed);
  counters.max_reserved.store(counters.reserved.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

std::string readable_bytes(int64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double v = double(bytes);
  int unit = 0;
  while (v >= 1024 && unit < 4) v /= 1024, ++unit;
  char text[48];
  std::snprintf(text, sizeof(text), unit ? "%.2f %s" : "%.0f %s", v, units[unit]);
  return text;
}

std::string memory_table(std::string_view title, const MemoryStats& s, int64_t available) {
  std::string out =
      tapir::format("{}{}now         peak\n", title, std::string(title.size() < 21 ? 21 - title.size() : 1, ' '));
  const auto row = [&](const char* name, const std::string& now, const std::string& peak) {
    char line[96];
    std::snprintf(line, sizeof(line), peak.empty() ? "%-11s%13s\n" : "%-11s%13s%13s\n", name, now.c_str(),
                  peak.c_str());
    out += line;
  };
  row("allocated", readable_bytes(s.allocated), readable_bytes(s.max_allocated));
  row("cached", readable_bytes(s.reserved - s.allocated), "");
  row("reserved", readable_bytes(s.reserved), readable_bytes(s.max_reserved));
  row("available", available == INT64_MAX ? "unknown" : readable_bytes(available), "");
  row("calls", std::to_string(s.allocations), "");
  row("to system", std::to_string(s.system_allocations), "");
  return out;
}

std::string memory_summary() { return memory_table("CPU memory", memory_stats(), available_bytes()); }

void fail_out_of_memory(int64_t bytes, Device device) {
  const MemoryStats s = memory_stats();
  const int64_t available = available_bytes();
  rlimit space{};
  std::string limit;
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
    limit = ", address space limited to " + readable_bytes(int64_t(space.rlim_cur));
  fail(ErrorKind::OutOfMemory,
       "[allocate] expected {} bytes ({}) of memory on {}, got none: {} allocated, {} reserved, {} cached, the machine "
       "has {} available{}",
       bytes, readable_bytes(bytes), device, readable_bytes(s.allocated), readable_bytes(s.reserved),
       readable_bytes(s.reserved - s.allocated),
       available == INT64_MAX ? "an unknown amount" : readable_bytes(available), limit);
}

}  // namespace tapir::inline v0
