// Device memory, pinned host memory, copies' view of both. Every allocation ends at a guard page; its first touch maps it, filled with
// NaN; addresses are never used twice. The pages of an allocation are a mapping of their own with nothing beside them: opening and
// closing then neither splits nor merges mappings, which would cost three times as much.
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "count.h"
#include "runtime.h"

namespace cuda_emulation {
namespace {

constexpr size_t kPage = 4096, kArena = size_t(1) << 45;
constexpr unsigned char kPoison = 0xff;  // NaN in every float format: what was never written shows
// Far from everything that a process maps by itself, and not where a pair of small integers would look like an address.
char* const arena = reinterpret_cast<char*>(uintptr_t(0x2b5d) << 32);
char* unused = arena;
// Never destroyed: a plugin may free memory while the process ends.
auto& live = *new std::map<const char*, Allocation>;  // by first page
auto& pinned = *new std::map<const char*, size_t>;    // begin, bytes
auto& touched = *new std::vector<Allocation*>;        // by the work in progress
size_t used[64];                                      // bytes of each device

size_t limit() {
  const char* text = std::getenv("TAPIR_EMULATED_MEMORY");
  return text ? std::strtoull(text, nullptr, 10) : size_t(4) << 30;
}
bool order_is_checked() {
  static const bool on = [] {
    const char* text = std::getenv("TAPIR_EMULATED_ORDER");
    return !text || std::strcmp(text, "0") != 0;
  }();
  return on;
}
size_t whole(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }
void protect(Allocation& a, int protection) {
  if (mprotect(a.pages, a.bytes, protection) != 0) fail("cannot open " + describe(a) + ": " + std::strerror(errno));
}
void map_filled(Allocation& a) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  if (mmap(a.pages, a.bytes, PROT_READ | PROT_WRITE, flags, -1, 0) != a.pages)
    fail("cannot map " + describe(a) + ": " + std::strerror(errno) + " (" + std::to_string(live.size()) +
         " allocations are live; vm.max_map_count limits them)");
  if (!counting()) std::memset(a.pages, kPoison, a.bytes);
}
/// Note [Counting]: open to everybody from the beginning.
void keep(Allocation a) {
  watch_memory();
  if (counting()) map_filled(a), a.state = Allocation::Writable;
  live.emplace(a.pages, std::move(a));
}
void check_order(Allocation& a, bool write) {
  if (work->checked) return;
  const auto unknown = [](const Allocation::Use& u) { return !knows(work->stream.known, u.stream, u.time); };
  const char* verb = write ? "writes " : "reads ";
  if (order_is_checked() && unknown(a.written))
    fail(verb + describe(a) + " that " + a.by.text() +
         " wrote on another stream: no event or synchronization orders the two");
  if (order_is_checked() && write && std::any_of(a.reads.begin(), a.reads.end(), unknown))
    fail("writes " + describe(a) + " while another stream still reads it: no event or synchronization orders the two");
  const Allocation::Use now{work->stream.id, work->time};
  if (write) {
    a.written = now, a.by = work->label, a.reads.clear();
    return;
  }
  for (auto& r : a.reads)
    if (r.stream == now.stream) return void(r = now);
  a.reads.push_back(now);
}
bool only_poison(const char* from, const char* to) {
  static const std::vector<char> poison(kPage, char(kPoison));
  for (; from < to; from += kPage)
    if (std::memcmp(from, poison.data(), std::min(size_t(to - from), kPage)) != 0) return false;
  return true;
}
}  // namespace

char* take_addresses(size_t bytes, size_t alignment) {
  unused += (alignment - uintptr_t(unused) % alignment) % alignment;
  char* const begin = unused;
  unused += bytes + kPage;
  return begin;
}
bool count_bytes(int device, long bytes) {
  if (bytes > 0 && used[device] + size_t(bytes) > limit()) return false;
  return used[device] += size_t(bytes), true;
}
void open_pages(char* pages, size_t bytes, int device) {
  Allocation a;
  a.pages = a.begin = pages, a.size = a.bytes = bytes, a.device = device, a.by_driver = true;
  keep(std::move(a));
}
void close_pages(char* pages) {
  const Allocation& a = live.at(pages);
  const auto done = [](const Allocation::Use& u) { return knows(host, u.stream, u.time); };
  if (order_is_checked() && !(done(a.written) && std::all_of(a.reads.begin(), a.reads.end(), done)))
    throw Fault("[cuMemUnmap] work on " + describe(a) + " may not be done: the host has not waited for it");
  check_held("cuMemUnmap", a);
  if (a.state != Allocation::Unmapped) munmap(a.pages, a.bytes);
  live.erase(pages);
}
bool is_device_pointer(const void* p) { return size_t(static_cast<const char*>(p) - arena) < kArena; }
bool is_pinned(const void* p, size_t bytes) {
  auto it = pinned.upper_bound(static_cast<const char*>(p));
  if (it == pinned.begin()) return false;
  --it;
  return static_cast<const char*>(p) + bytes <= it->first + it->second;
}
Allocation* find(const void* p) {
  auto it = live.upper_bound(static_cast<const char*>(p));
  if (it == live.begin()) return nullptr;
  Allocation& a = std::prev(it)->second;
  return static_cast<const char*>(p) < a.pages + a.bytes + kPage ? &a : nullptr;
}
std::string describe(const Allocation& a) {
  return "the allocation of " + std::to_string(a.size) + " bytes" +
         (a.device ? " of device " + std::to_string(a.device) : "");
}
void fail_outside(const void* p, const Allocation* a) {
  if (!a) fail("touches device memory that is not allocated (freed, or a stray pointer)");
  const long d = static_cast<const char*>(p) - a->begin;
  fail("touches " + describe(*a) +
       (d < 0 ? " " + std::to_string(-d) + " bytes before its begin" : " at byte " + std::to_string(d)));
}
void touch(Allocation& a, bool write, bool of_any_device) {
  if (a.device != work->stream.device && !of_any_device)
    fail("touches " + describe(a) + ": it belongs to device " + std::to_string(a.device) +
         ", the work runs on device " + std::to_string(work->stream.device));
  write = write || a.state == Allocation::Unmapped;  // nothing to read there yet
  check_order(a, write);
  if (a.state == Allocation::Unmapped) map_filled(a);
  else protect(a, write ? PROT_READ | PROT_WRITE : PROT_READ);
  if (a.state < Allocation::Readable) touched.push_back(&a);
  a.state = write ? Allocation::Writable : Allocation::Readable;
}
void claim(const void* p, size_t bytes, bool write, bool of_any_device) {
  if (!is_device_pointer(p) || !bytes) return;
  const char *at = static_cast<const char*>(p), *const end = at + bytes;
  while (at < end) {  // mappings may lie side by side
    Allocation* a = find(at);
    if (!a || at < a->begin || at >= a->begin + a->size) fail_outside(at, a);
    if (a->state < (write ? Allocation::Writable : Allocation::Readable)) touch(*a, write, of_any_device);
    at = a->begin + a->size;
  }
}
void check_margins() {
  for (const Allocation* a : touched)
    if (a->state == Allocation::Writable &&
        !(only_poison(a->pages, a->begin) && only_poison(a->begin + a->size, a->pages + a->bytes)))
      fail("wrote just outside " + describe(*a));
}
void close_all() {
  for (Allocation* a : touched) mprotect(a->pages, a->bytes, PROT_NONE), a->state = Allocation::Closed;
  touched.clear();
}

}  // namespace cuda_emulation

using namespace cuda_emulation;

cudaError_t cudaMalloc(void** pointer, size_t size) {
  const std::lock_guard lock(runtime);
  const int device = current_device();
  if (!pointer) return report(cudaErrorInvalidValue);
  if (device < 0) return report(cudaErrorNoDevice);
  if (const cudaError_t e = refuse_in_capture(); e != cudaSuccess) return e;
  *pointer = nullptr;
  if (size == 0) return cudaSuccess;
  if (size > limit() || !count_bytes(device, long(whole(size, 512)))) return report(cudaErrorMemoryAllocation);
  const size_t content = whole(size, 256), bytes = whole(content, kPage);
  Allocation a;
  a.pages = take_addresses(bytes, kPage);
  a.begin = a.pages + bytes - content;  // 256-aligned, its end as near to the guard page as that allows
  a.size = size, a.bytes = bytes, a.device = device;
  *pointer = a.begin;
  keep(std::move(a));
  return cudaSuccess;
}

/// The real one may wait for the device; a program that relies on that is not wrong, so nothing is checked and nothing is learnt.
cudaError_t cudaFree(void* p) {
  bind_context();
  const std::lock_guard lock(runtime);
  if (const cudaError_t e = refuse_in_capture(); e != cudaSuccess) return e;
  if (!p) return cudaSuccess;
  Allocation* a = is_device_pointer(p) ? find(p) : nullptr;
  if (!a || a->begin != p || a->by_driver) throw Fault("[cudaFree] not the begin of a live allocation");
  check_held("cudaFree", *a);
  if (a->state != Allocation::Unmapped) munmap(a->pages, a->bytes);
  count_bytes(a->device, -long(whole(a->size, 512)));
  live.erase(a->pages);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const std::lock_guard lock(runtime);
  const int device = current_device();
  if (device < 0) return report(cudaErrorNoDevice);
  return *total = limit(), *free = *total - std::min(*total, used[device]), cudaSuccess;
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  const std::lock_guard lock(runtime);
  *pointer = nullptr;
  if (current_device() < 0) return report(cudaErrorNoDevice);
  if (const cudaError_t e = refuse_in_capture(); e != cudaSuccess) return e;
  if (!bytes) return cudaSuccess;
  void* p =
      mmap(nullptr, whole(bytes, kPage), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return report(cudaErrorMemoryAllocation);
  if (!counting()) std::memset(p, kPoison, whole(bytes, kPage));
  return pinned[static_cast<char*>(p)] = whole(bytes, kPage), *pointer = p, cudaSuccess;
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) { return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault); }
cudaError_t cudaFreeHost(void* p) {
  if (!p) return cudaSuccess;
  if (const cudaError_t e = refuse_in_capture(); e != cudaSuccess) return e;
  cudaDeviceSynchronize();
  const std::lock_guard lock(runtime);
  const auto it = pinned.find(static_cast<char*>(p));
  if (it == pinned.end()) return report(cudaErrorInvalidValue);
  munmap(p, it->second);
  return pinned.erase(it), cudaSuccess;
}
cudaError_t cudaHostRegister(void* p, size_t bytes, unsigned) {
  const std::lock_guard lock(runtime);
  if (!p || !bytes || is_device_pointer(p)) return report(cudaErrorInvalidValue);
  if (const cudaError_t e = refuse_in_capture(); e != cudaSuccess) return e;
  if (is_pinned(p)) return report(cudaErrorHostMemoryAlreadyRegistered);
  return pinned[static_cast<char*>(p)] = bytes, cudaSuccess;
}
cudaError_t cudaHostUnregister(void* p) {
  const std::lock_guard lock(runtime);
  if (const cudaError_t e = refuse_in_capture(); e != cudaSuccess) return e;
  return pinned.erase(static_cast<char*>(p)) ? cudaSuccess : report(cudaErrorHostMemoryNotRegistered);
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  const std::lock_guard lock(runtime);
  return is_pinned(host) ? (*device = host, cudaSuccess) : report(cudaErrorInvalidValue);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* p) {
  const std::lock_guard lock(runtime);
  void* const q = const_cast<void*>(p);
  const Allocation* a = is_device_pointer(p) ? find(p) : nullptr;
  if (a) *out = {cudaMemoryTypeDevice, a->device, q, nullptr};
  else if (is_pinned(p)) *out = {cudaMemoryTypeHost, std::max(current_device(), 0), q, q};
  else *out = {cudaMemoryTypeUnregistered, -1, nullptr, q};
  return cudaSuccess;
}
