#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "../../core/allocator.h"
#include "../../core/error.h"
#include "device.h"
#include "graphs.h"
#include "virtual_memory.h"

// Note [CUDA memory]
// cudaMalloc takes 50 us and cudaFree waits for the device, so blocks are kept. The driver gives segments: 2 MiB for requests of up to
// 1 MiB, 20 MiB for those of up to 10 MiB, else the request's own size; a segment is a chain of blocks, cut from the best fitting free
// one and merged with free neighbours when they come back. Sizes are multiples of 512 bytes.
// - A segment belongs to the stream it was taken for: work is ordered within a stream, so a block that its owner has dropped can be
//   given to the next one on the same stream at once, though the device is still busy with it.
// - A block used on other streams (record_stream) is free when an event recorded on each of them at its release has passed.
// - When the driver has no more: wait for all streams, give back every segment that is wholly free, try again, then a segment of just
//   the size asked for, then OutOfMemoryError.
// - TAPIR_CUDA_ALLOCATOR=expandable: a segment is a range of addresses as large as the device's memory, one for each stream and kind
//   (small, large), whose pages of 2 or 20 MiB get memory where blocks need them. It grows in place, so that a request that is larger than
//   every one before needs only what is missing beside the free block at its end, and wholly free pages go back one by one. The chain of
//   blocks then has blocks without memory (mapped is false); they begin and end at pages. Where the driver cannot do that: as without.
//   Not the default: mapping 1 GiB is some 150 driver calls in place of one, and no GPU has run it yet (docs/gpu_results.md).
// - TAPIR_CUDA_ALLOCATOR=direct: every block is a cudaMalloc of its own and goes back at its release (cudaFree waits for the device). For
//   compute-sanitizer and the host emulation, which then see every access beyond a block's end.
// Nothing here is destroyed at exit, and a release never throws: tensors may die after main and after the driver.
namespace tapir::inline v0::cuda_kernels {
namespace {

constexpr int64_t kRound = 512, kMiB = int64_t(1) << 20;
constexpr int64_t kSmall = kMiB, kSmallSegment = 2 * kMiB, kMiddle = 10 * kMiB, kMiddleSegment = 20 * kMiB;

constexpr int64_t rounded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

struct Block {
  char* data = nullptr;
  int64_t bytes = 0, requested = 0;  // requested: 0 when the block is free
  void* stream = nullptr;
  char* segment = nullptr;
  Block *before = nullptr, *after = nullptr;  // neighbours in the segment
  bool small = false, listed = false;         // listed: in a free list
  bool mapped = true;                         // false: addresses without memory
  int waits = 0;                              // events that must pass before the block is free
  std::vector<void*> users;                   // other streams, from record_stream
};

/// Free blocks of a stream lie together, the smallest first.
struct BySize {
  using is_transparent = void;
  using Key = std::tuple<void*, int64_t, char*>;
  static Key key(const Block* b) { return {b->stream, b->bytes, b->data}; }
  static const Key& key(const Key& k) { return k; }
  template <class A, class B> bool operator()(const A& a, const B& b) const { return key(a) < key(b); }
};

/// Addresses without memory of a stream, the lowest first.
struct ByAddress {
  using is_transparent = void;
  using Key = std::pair<void*, char*>;
  static Key key(const Block* b) { return {b->stream, b->data}; }
  static const Key& key(const Key& k) { return k; }
  template <class A, class B> bool operator()(const A& a, const B& b) const { return key(a) < key(b); }
};

enum class Strategy { Caching, Expandable, Direct };
Strategy strategy() {
  static const Strategy chosen = [] {
    const char* text = std::getenv("TAPIR_CUDA_ALLOCATOR");
    const std::string_view name = text && *text ? text : "caching";
    check(name == "caching" || name == "expandable" || name == "direct",
          "[allocate] expected TAPIR_CUDA_ALLOCATOR=caching, expandable or direct, got {}", name);
    return name == "direct" ? Strategy::Direct : name == "expandable" ? Strategy::Expandable : Strategy::Caching;
  }();
  return chosen;
}
bool is_direct() { return strategy() == Strategy::Direct; }

int64_t page_of(bool small) { return small ? kSmallSegment : kMiddleSegment; }

class DeviceMemory {
 public:
  explicit DeviceMemory(Device device) : device_(device) {}
  void* allocate(int64_t bytes, void* stream);
  void release(void* data);
  void record_stream(void* data, void* stream);
  void empty_cache();
  MemoryStats stats();
  void reset_peak();
  void set_fraction(double fraction);
  std::vector<cuda::MemoryBlock> snapshot();

 private:
  Block* find(int64_t size, void* stream);
  Block* take_segment(int64_t size, int64_t segment, void* stream);
  Block* cut(Block* b, int64_t size);
  Block* split(Block* b, int64_t at);
  bool is_expandable();
  Block* grow(int64_t size, void* stream);
  Block* room(int64_t size, bool small, void* stream);
  Block* reserve(int64_t size, bool small, void* stream);
  bool map_front(Block* b, int64_t bytes);
  void unmap_pages(Block* b);
  void retire(Block* b);
  void merge_after(Block* b);
  void unlist(Block* b) { lists_[b->small].erase(b), b->listed = false; }
  void free_segment(Block* b);
  void wait_for_users(Block* b);
  void finish_waits(bool wait);
  void give_back(const char* op);
  [[noreturn]] void fail_allocate(int64_t bytes);

  const Device device_;
  std::mutex mutex_;
  std::set<Block*, BySize> lists_[2];         // free blocks: of large and of small segments
  std::set<Block*, ByAddress> unmapped_[2];   // of expandable segments
  std::unordered_map<void*, Block*> in_use_;  // by address
  std::map<char*, Block*> segments_;          // first block of each
  std::map<void*, std::deque<std::pair<cudaEvent_t, Block*>>>
      waiting_;  // released, but other streams' work is before them
  MemoryStats stats_;
  int64_t limit_ = INT64_MAX;
  int expandable_ = -1;  // not asked yet
};

Block* DeviceMemory::find(int64_t size, void* stream) {
  auto& list = lists_[size <= kSmall];
  const auto it = list.lower_bound(BySize::Key{stream, size, nullptr});
  if (it == list.end() || (*it)->stream != stream) return nullptr;
  Block* b = *it;
  list.erase(it), b->listed = false;
  return cut(b, size);
}

/// A new segment from the driver; null when it has none, or the limit is reached.
Block* DeviceMemory::take_segment(int64_t size, int64_t segment, void* stream) {
  if (stats_.reserved > limit_ - segment) return nullptr;
  refuse_capture("allocate");
  const OnDevice on(device_);
  void* data = nullptr;
  if (const cudaError_t error = cudaMalloc(&data, size_t(segment)); error != cudaSuccess) {
    if (error != cudaErrorMemoryAllocation) fail_cuda(error, "allocate");
    cudaGetLastError();
    return nullptr;
  }
  auto* b = new Block;
  b->data = b->segment = static_cast<char*>(data), b->bytes = segment, b->stream = stream;
  b->small = size <= kSmall;
  segments_.emplace(b->data, b);
  stats_.reserved += segment, stats_.max_reserved = std::max(stats_.max_reserved, stats_.reserved);
  ++stats_.system_allocations;
  return is_direct() ? b : cut(b, size);
}

/// b, shortened to `size` where the rest is worth keeping apart.
Block* DeviceMemory::cut(Block* b, int64_t size) {
  const int64_t rest = b->bytes - size;
  if (b->small ? rest < kRound : rest <= kSmall) return b;
  Block* r = split(b, size);
  lists_[r->small].insert(r), r->listed = true;
  return b;
}

/// b ends at that byte; what follows is a new block, in no list.
Block* DeviceMemory::split(Block* b, int64_t at) {
  auto* r = new Block;
  r->data = b->data + at, r->bytes = b->bytes - at, r->stream = b->stream, r->segment = b->segment, r->small = b->small;
  r->mapped = b->mapped;
  r->before = b, r->after = b->after;
  if (r->after) r->after->before = r;
  b->after = r, b->bytes = at;
  return r;
}

bool DeviceMemory::is_expandable() {
  if (expandable_ < 0)
    expandable_ = strategy() == Strategy::Expandable && virtual_memory::is_available(device_, kSmallSegment) &&
                  virtual_memory::is_available(device_, kMiddleSegment);
  return expandable_ != 0;
}

/// A block of that size, for which free neighbours join and pages get memory; null when there is none.
Block* DeviceMemory::grow(int64_t size, void* stream) {
  const bool small = size <= kSmall;
  const int64_t page = page_of(small);
  Block* b = room(size, small, stream);
  if (!b) return nullptr;
  if (b->mapped) unlist(b);
  else if (!map_front(b, std::min(rounded(size, page), b->bytes))) return nullptr;
  while (b->bytes < size) {
    Block* r = b->after;
    if (r->mapped) {
      unlist(r);
    } else if (!map_front(r, std::min(rounded(size - b->bytes, page), r->bytes))) {
      retire(b);
      return nullptr;
    }
    merge_after(b);
  }
  ++stats_.system_allocations;
  return cut(b, size);
}

/// The first of free neighbours, with memory or without, of that size together.
Block* DeviceMemory::room(int64_t size, bool small, void* stream) {
  const auto& list = unmapped_[small];
  for (auto it = list.lower_bound(ByAddress::Key{stream, nullptr}); it != list.end() && (*it)->stream == stream; ++it) {
    Block* first = *it;
    if (first->before && first->before->listed) first = first->before;
    int64_t bytes = 0;
    for (Block* b = first; b && (b->listed || !b->mapped) && bytes < size; b = b->after) bytes += b->bytes;
    if (bytes >= size) return first;
  }
  return reserve(size, small, stream);
}

/// Addresses for more than the device holds: blocks in use may lie anywhere between.
Block* DeviceMemory::reserve(int64_t size, bool small, void* stream) {
  int64_t free = 0, total = 0;
  mem_get_info(device_, free, total);
  const int64_t bytes = rounded(std::max(total + total / 8, size), page_of(small));
  const OnDevice on(device_);
  char* const at = virtual_memory::reserve(bytes);
  if (!at) return nullptr;
  auto* b = new Block;
  b->data = b->segment = at, b->bytes = bytes, b->stream = stream, b->small = small, b->mapped = false;
  segments_.emplace(at, b);
  unmapped_[small].insert(b);
  return b;
}

/// Memory for the first `bytes` of b, or for as many pages of them as there is memory; false when there is none.
bool DeviceMemory::map_front(Block* b, int64_t bytes) {
  const OnDevice on(device_);
  const int64_t page = page_of(b->small);
  int64_t done = 0;
  while (done < bytes && stats_.reserved <= limit_ - page && virtual_memory::map(device_, b->data + done, page))
    done += page, stats_.reserved += page;
  stats_.max_reserved = std::max(stats_.max_reserved, stats_.reserved);
  if (done == 0) return false;
  unmapped_[b->small].erase(b);
  if (done < b->bytes) unmapped_[b->small].insert(split(b, done));
  b->mapped = true;
  return true;
}

/// The whole pages of a block that is free and in no list go back; what is left of it stays free.
void DeviceMemory::unmap_pages(Block* b) {
  const int64_t page = page_of(b->small), at = b->data - b->segment;
  const int64_t first = rounded(at, page) - at, last = (at + b->bytes) / page * page - at;
  const auto keep = [&](Block* part) { lists_[part->small].insert(part), part->listed = true; };
  if (first >= last) return keep(b);
  if (last < b->bytes) keep(split(b, last));
  if (first > 0) {
    Block* const head = b;
    b = split(head, first);
    keep(head);
  }
  for (int64_t done = 0; done < b->bytes; done += page) virtual_memory::unmap(b->data + done, page);
  stats_.reserved -= b->bytes;
  b->mapped = false;
  auto& list = unmapped_[b->small];
  if (Block* r = b->after; r && !r->mapped) list.erase(r), merge_after(b);
  if (Block* l = b->before; l && !l->mapped) merge_after(l);
  else list.insert(b);
}

void DeviceMemory::merge_after(Block* b) {
  Block* r = b->after;
  b->bytes += r->bytes, b->after = r->after;
  if (b->after) b->after->before = b;
  delete r;
}

/// A block that nobody uses: to the free list, one with its free neighbours.
void DeviceMemory::retire(Block* b) {
  if (Block* r = b->after; r && r->listed) unlist(r), merge_after(b);
  if (Block* l = b->before; l && l->listed) unlist(l), merge_after(l), b = l;
  lists_[b->small].insert(b), b->listed = true;
}

/// Back to the driver: b is the whole segment and in no list. After exit's beginning the driver may be gone: nothing to do then.
void DeviceMemory::free_segment(Block* b) {
  cudaFree(b->data);
  cudaGetLastError();
  stats_.reserved -= b->bytes;
  segments_.erase(b->data);
  delete b;
}

/// Recorded events that have passed free their blocks; all of them, when `wait` is set. Those of one stream pass in their order.
void DeviceMemory::finish_waits(bool wait) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    auto& queue = it->second;
    while (!queue.empty()) {
      const auto [event, b] = queue.front();
      if ((wait ? cudaEventSynchronize(event) : cudaEventQuery(event)) != cudaSuccess) {
        cudaGetLastError();
        break;
      }
      queue.pop_front();
      return_event(device_, event);
      if (--b->waits == 0) retire(b);
    }
    it = queue.empty() ? waiting_.erase(it) : std::next(it);
  }
}

/// Wholly free segments, or pages, to the driver.
void DeviceMemory::give_back(const char* op) {
  refuse_capture(op);
  const OnDevice on(device_);
  if (wait_for_streams(device_) != cudaSuccess) {  // free blocks may have work of their own stream before them
    cudaGetLastError();
    return;
  }
  finish_waits(true);
  if (is_expandable()) {
    std::vector<Block*> free;
    for (auto& list : lists_) free.insert(free.end(), list.begin(), list.end());
    for (Block* b : free) unlist(b), unmap_pages(b);
    return;
  }
  for (auto& list : lists_)
    for (auto it = list.begin(); it != list.end();) {
      Block* b = *it;
      if (b->before || b->after) {
        ++it;
        continue;
      }
      it = list.erase(it);
      free_segment(b);
    }
}

void* DeviceMemory::allocate(int64_t bytes, void* stream) {
  std::lock_guard lock(mutex_);
  if (bytes < 0 || bytes > INT64_MAX / 4) fail_allocate(bytes);
  if (!waiting_.empty() && !captures_here()) finish_waits(false);
  const bool direct = is_direct();
  const int64_t size = direct ? std::max<int64_t>(bytes, 1) : rounded(std::max<int64_t>(bytes, 1), kRound);
  const int64_t tight = size <= kSmall ? kSmallSegment : rounded(size, 2 * kMiB);
  const int64_t segment = direct ? size : size > kSmall && size <= kMiddle ? kMiddleSegment : tight;
  Block* b = direct ? nullptr : find(size, stream);
  const auto take = [&](int64_t bytes) {
    return is_expandable() ? grow(size, stream) : take_segment(size, bytes, stream);
  };
  if (!b) b = take(segment);
  if (!b) [[unlikely]] {
    give_back("allocate");
    if (!direct) b = find(size, stream);
    if (!b) b = take(segment);
    if (!b && tight < segment) b = take(tight);
    if (!b) fail_allocate(bytes);
  }
  b->requested = std::max<int64_t>(bytes, 1);
  in_use_.emplace(b->data, b);
  stats_.allocated += b->bytes, stats_.max_allocated = std::max(stats_.max_allocated, stats_.allocated);
  ++stats_.allocations;
  return b->data;
}

void DeviceMemory::fail_allocate(int64_t bytes) {
  int64_t free = 0, total = 0, largest = 0;
  mem_get_info(device_, free, total);
  for (const auto& list : lists_)
    for (const Block* b : list) largest = std::max(largest, b->bytes);
  std::string limit;
  if (limit_ != INT64_MAX) limit = ", limited to " + readable_bytes(limit_) + " by set_per_process_memory_fraction()";
  fail(ErrorKind::OutOfMemory,
       "[allocate] expected {} ({} bytes) of memory on {}, got none: {} free of {}; this process holds {}{}: {} in use "
       "by "
       "tensors, {} cached (largest block {}). What helps: smaller batches, amp::Autocast, checkpoint(), NoGrad where "
       "no "
       "gradient is needed, dropping tensors earlier",
       readable_bytes(bytes), bytes, device_, readable_bytes(free), readable_bytes(total),
       readable_bytes(stats_.reserved), limit, readable_bytes(stats_.allocated),
       readable_bytes(stats_.reserved - stats_.allocated), readable_bytes(largest));
}

void DeviceMemory::release(void* data) {
  std::lock_guard lock(mutex_);
  const auto it = in_use_.find(data);
  if (it == in_use_.end()) return;
  Block* b = it->second;
  in_use_.erase(it);
  stats_.allocated -= b->bytes;
  b->requested = 0;
  if (is_direct() || !b->users.empty()) wait_for_users(b);
  else retire(b);
}

/// No throw here: where no event can be recorded the driver is gone, and the block stays out of use.
void DeviceMemory::wait_for_users(Block* b) {
  int before = 0;
  cudaGetDevice(&before);
  cudaSetDevice(device_.index);
  if (is_direct()) {
    free_segment(b);
  } else {
    for (void* user : b->users) {
      ++b->waits;
      const cudaEvent_t event = take_event(device_);
      if (event && cudaEventRecord(event, stream_of(user)) == cudaSuccess) waiting_[user].emplace_back(event, b);
    }
    b->users.clear();
  }
  cudaSetDevice(before);
  cudaGetLastError();
}

void DeviceMemory::record_stream(void* data, void* stream) {
  std::lock_guard lock(mutex_);
  auto it = in_use_.find(data);
  if (it == in_use_.end())  // a slice of a storage: the block that it lies in
    it = std::find_if(in_use_.begin(), in_use_.end(), [&](const auto& entry) {
      const Block& b = *entry.second;
      return data >= b.data && data < b.data + b.bytes;
    });
  if (it == in_use_.end()) return;  // not ours
  Block* b = it->second;
  if (stream != b->stream && std::find(b->users.begin(), b->users.end(), stream) == b->users.end())
    b->users.push_back(stream);
}

void DeviceMemory::empty_cache() {
  std::lock_guard lock(mutex_);
  give_back("empty_cache");
}

MemoryStats DeviceMemory::stats() {
  std::lock_guard lock(mutex_);
  return stats_;
}

void DeviceMemory::reset_peak() {
  std::lock_guard lock(mutex_);
  stats_.max_allocated = stats_.allocated, stats_.max_reserved = stats_.reserved;
}

void DeviceMemory::set_fraction(double fraction) {
  int64_t free = 0, total = 0;
  mem_get_info(device_, free, total);
  std::lock_guard lock(mutex_);
  limit_ = fraction < 1 ? int64_t(fraction * double(total)) : INT64_MAX;
}

std::vector<cuda::MemoryBlock> DeviceMemory::snapshot() {
  std::lock_guard lock(mutex_);
  std::vector<cuda::MemoryBlock> blocks;
  for (const auto& [address, first] : segments_) {
    const char* segment = address;  // of an expandable one: where a run of pages with memory begins
    for (const Block* b = first; b; b = b->after) {
      if (!b->mapped) segment = b->data + b->bytes;
      else
        blocks.push_back({uint64_t(uintptr_t(b->data)), uint64_t(uintptr_t(segment)), b->bytes, b->requested, b->stream,
                          b->requested > 0});
    }
  }
  return blocks;
}

DeviceMemory& memory_of(Device device) {
  static DeviceMemory* const* const all = [] {
    auto** made = new DeviceMemory*[kMaxDevices];
    for (int i = 0; i < kMaxDevices; ++i) made[i] = new DeviceMemory({DeviceType::CUDA, int8_t(i)});
    return made;
  }();
  return *all[device.index];
}

}  // namespace

void* allocate(int64_t bytes, Device device, void* stream) { return memory_of(device).allocate(bytes, stream); }
void release(void* data, int64_t, Device device) {
  if (data) memory_of(device).release(data);
}
void record_stream(Device device, void* data, void* stream) { memory_of(device).record_stream(data, stream); }
void empty_cache(Device device) { memory_of(device).empty_cache(); }
MemoryStats memory_stats(Device device) { return memory_of(device).stats(); }
void reset_peak(Device device) { memory_of(device).reset_peak(); }
void set_memory_fraction(Device device, double fraction) { memory_of(device).set_fraction(fraction); }

void mem_get_info(Device device, int64_t& free, int64_t& total) {
  const OnDevice on(device);
  size_t f = 0, t = 0;
  check_cuda(cudaMemGetInfo(&f, &t), "mem_get_info");
  free = int64_t(f), total = int64_t(t);
}

void for_each_block(Device device, void (*visit)(void* user, const cuda::MemoryBlock&), void* user) {
  for (const cuda::MemoryBlock& b : memory_of(device).snapshot()) visit(user, b);
}

}  // namespace tapir::inline v0::cuda_kernels
