#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "device.h"
#include "graphs.h"

// Page-locked host memory: the device copies from and to it by itself while the host goes on. Locking pages takes a system call and
// more, so blocks are kept, in size classes of 8 steps per power of two. A block that copies have used is given away again only when
// an event recorded at its release has passed on each of their streams.
namespace tapir::inline v0::cuda_kernels {
namespace {

struct HostBlock {
  char* data;
  int64_t bytes;
  struct Use {
    Device device;
    cudaStream_t stream;
    bool operator==(const Use&) const = default;
  };
  std::vector<Use> uses;
  int waits = 0;
};

struct PinnedMemory {
  struct Wait {
    Device device;
    cudaEvent_t event;
    HostBlock* block;
  };
  std::mutex mutex;
  std::map<const char*, HostBlock*> in_use;
  std::multimap<int64_t, HostBlock*> cached;
  std::vector<Wait> waiting;

  void finish_waits(bool wait);
  HostBlock* find(int64_t size);
  HostBlock* lock_pages(int64_t size);
  void give_back();
  HostBlock* block_of(const void* data);
};

PinnedMemory& pinned() {
  static auto* const memory = new PinnedMemory;  // never destroyed: tensors may die after main
  return *memory;
}

int64_t size_class(int64_t bytes) {
  int64_t step = 4096;
  while (bytes > step * 16) step *= 2;
  return (std::max<int64_t>(bytes, 1) + step - 1) / step * step;
}

void PinnedMemory::finish_waits(bool wait) {
  std::erase_if(waiting, [&](const Wait& w) {
    if ((wait ? cudaEventSynchronize(w.event) : cudaEventQuery(w.event)) != cudaSuccess) {
      cudaGetLastError();
      return false;
    }
    return_event(w.device, w.event);
    if (--w.block->waits == 0) cached.emplace(w.block->bytes, w.block);
    return true;
  });
}

HostBlock* PinnedMemory::find(int64_t size) {
  const auto it = cached.lower_bound(size);
  if (it == cached.end() || it->first > size + size / 4) return nullptr;
  HostBlock* b = it->second;
  cached.erase(it);
  return b;
}

HostBlock* PinnedMemory::lock_pages(int64_t size) {
  refuse_capture("allocate");
  void* data = nullptr;
  if (cudaHostAlloc(&data, size_t(size), cudaHostAllocPortable) == cudaSuccess)
    return new HostBlock{static_cast<char*>(data), size, {}};
  cudaGetLastError();
  return nullptr;
}

void PinnedMemory::give_back() {
  finish_waits(true);
  for (const auto& [size, block] : cached) cudaFreeHost(block->data), delete block;
  cached.clear();
}

/// The block in use that the address lies in, or null.
HostBlock* PinnedMemory::block_of(const void* data) {
  const char* at = static_cast<const char*>(data);
  auto it = in_use.upper_bound(at);
  if (it == in_use.begin()) return nullptr;
  HostBlock* b = (--it)->second;
  return at < b->data + b->bytes ? b : nullptr;
}

}  // namespace

void* allocate_pinned(int64_t bytes) {
  if (bytes < 0 || bytes > INT64_MAX / 4) return nullptr;
  PinnedMemory& p = pinned();
  std::lock_guard lock(p.mutex);
  if (!p.waiting.empty() && !captures_here()) p.finish_waits(false);
  const int64_t size = size_class(bytes);
  HostBlock* b = p.find(size);
  if (!b) b = p.lock_pages(size);
  if (!b) [[unlikely]] {
    p.give_back();
    b = p.lock_pages(size);
    if (!b) return nullptr;
  }
  p.in_use.emplace(b->data, b);
  return b->data;
}

void release_pinned(void* data) {
  PinnedMemory& p = pinned();
  std::lock_guard lock(p.mutex);
  const auto it = p.in_use.find(static_cast<char*>(data));
  if (it == p.in_use.end()) return;
  HostBlock* b = it->second;
  p.in_use.erase(it);
  int before = 0;
  if (!b->uses.empty()) cudaGetDevice(&before);
  for (const HostBlock::Use& use : b->uses) {
    ++b->waits;  // where no event can be recorded the driver is gone: the block is never given away again
    cudaSetDevice(use.device.index);
    const cudaEvent_t event = take_event(use.device);
    if (event && cudaEventRecord(event, use.stream) == cudaSuccess) p.waiting.push_back({use.device, event, b});
  }
  if (!b->uses.empty()) cudaSetDevice(before), cudaGetLastError();
  b->uses.clear();
  if (b->waits == 0) p.cached.emplace(b->bytes, b);
}

bool is_pinned(const void* data) {
  PinnedMemory& p = pinned();
  std::lock_guard lock(p.mutex);
  return p.block_of(data) != nullptr;
}

bool note_pinned_use(const void* data, Device device, cudaStream_t stream) {
  PinnedMemory& p = pinned();
  std::lock_guard lock(p.mutex);
  HostBlock* b = p.block_of(data);
  if (!b) return false;
  const HostBlock::Use use{device, stream};
  if (std::find(b->uses.begin(), b->uses.end(), use) == b->uses.end()) b->uses.push_back(use);
  return true;
}

}  // namespace tapir::inline v0::cuda_kernels
