// Access checks, for .cu files compiled with -fsanitize=thread: the compiler announces every access, and the functions that it calls
// stand here (libtsan is not linked). Each 4-byte word remembers its last write and last read; two accesses by different threads, one
// of them a write, are a race unless both are atomic or a barrier lies between.
#include <link.h>

#include <algorithm>
#include <cstring>

#include "count.h"
#include "fibers.h"
#include "include/emulation/atomics.h"
#include "include/emulation/warp.h"
#include "runtime.h"

namespace cuda_emulation {
namespace {

struct Trace {
  Actor by;
  uint8_t bytes;  // of the word, a bit each
  bool atomic;
};
struct Word {
  uintptr_t address;
  Trace write, read;
};
constexpr uint8_t kMany = 255;  // in place of a lane or warp: more than one
constexpr size_t kWords = 1 << 20;
uint32_t fenced_launch = 0;  // some thread of that launch has called __threadfence

struct Range {
  uintptr_t begin = 0;
  size_t size = 0;
  bool contains(uintptr_t p) const { return p - begin < size; }
};
struct Module {
  Range image, shared;  // of this program or library; its thread_local storage on this thread
};
const Module& module() {
  static thread_local Module found;
  if (found.image.size) return found;
  dynamic_shared();  // the storage exists from its first use on
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        Module m;
        uintptr_t low = ~uintptr_t(0), high = 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& h = info->dlpi_phdr[i];
          if (h.p_type == PT_TLS) m.shared = {reinterpret_cast<uintptr_t>(info->dlpi_tls_data), h.p_memsz};
          if (h.p_type != PT_LOAD) continue;
          low = std::min(low, uintptr_t(info->dlpi_addr + h.p_vaddr));
          high = std::max(high, uintptr_t(info->dlpi_addr + h.p_vaddr + h.p_memsz));
        }
        m.image = {low, high - low};
        if (!m.image.contains(reinterpret_cast<uintptr_t>(&fenced_launch))) return 0;
        *static_cast<Module*>(out) = m;
        return 1;
      },
      &found);
  return found;
}

void check_word(uintptr_t word, uint8_t bytes, bool write, bool atomic, bool global) {
  static auto& words =
      *new std::vector<Word>(kWords);  // direct-mapped by address: an eviction can miss a race, never invent one
  Word& w = words[(word >> 2) % kWords];
  if (w.address != word) w = {word, {}, {}};
  if (global && !has_waited() && w.write.by.launch == work->behind)
    fail("an early kernel reads, before it has waited, what the kernel before it wrote");
  Trace now{actor(), bytes, atomic};
  const auto unordered = [&](const Trace& t) {
    if (t.by.launch != now.by.launch || !(t.bytes & bytes)) return false;
    if (t.by.block != now.by.block) return global && fenced_launch != now.by.launch;
    return t.by.epoch == now.by.epoch &&
           (t.by.warp != now.by.warp || (t.by.lane != now.by.lane && t.by.warp_epoch >= now.by.warp_epoch));
  };
  const auto race = [&](const Trace& t) { return unordered(t) && !(t.atomic && atomic); };
  if (race(w.write) || (write && race(w.read)))
    fail(std::string("data race on ") + (global ? "global" : "shared") + " memory: it " + (write ? "writes" : "reads") +
         " what another thread " + (race(w.write) ? "wrote" : "read") + ", with no barrier between");
  Trace& slot = write ? w.write : w.read;
  if (!write && unordered(slot)) {
    now.by.lane = kMany;
    now.by.warp = slot.by.warp == now.by.warp ? now.by.warp : kMany;
  }
  slot = now;
}

/// Shared memory begins without values in every block.
void check_shared_word(uintptr_t word, bool write) {
  struct Owner {
    uint32_t launch, block;
  };
  static auto& written = *new std::vector<Owner>;
  const Range& shared = module().shared;
  const size_t i = word / 4 - shared.begin / 4;
  if (written.size() <= i) written.resize(shared.size / 4 + 2);
  const Actor now = actor();
  if (write) written[i] = {now.launch, now.block};
  else if (written[i].launch != now.launch || written[i].block != now.block)
    fail("reads shared memory that no thread of the block has written");
}

void check_access(const void* p, size_t size, bool write, bool atomic, const void* by) {
  if (!kernel_runs() || in_own_stack(p)) return;  // host code of the same file; a thread's own variables
  const auto a = reinterpret_cast<uintptr_t>(p);
  const bool global = is_device_pointer(p);
  if (counting()) {  // what is nowhere else is a generated kernel's shared memory
    if (!global && !module().shared.contains(a) && (module().image.contains(a) || is_pinned(p, size))) return;
    return count_access(p, size, write, global, by);
  }
  if (global && !has_waited() && (write || !work->behind))
    fail("an early kernel uses device memory before it has waited for those before it");
  if (global) {
    const Allocation* m = find(p);
    if (!m || p < m->begin || static_cast<const char*>(p) + size > m->begin + m->size) fail_outside(p, m);
  } else if (!module().shared.contains(a)) {
    if (module().image.contains(a) || is_pinned(p, size)) return;
    fail("touches host memory: a host pointer was passed, perhaps inside a struct");
  }
  for (uintptr_t w = a & ~uintptr_t(3); w < a + size; w += 4) {
    uint8_t bytes = 0;
    for (unsigned i = 0; i < 4; ++i) bytes = uint8_t(bytes | unsigned(w + i >= a && w + i < a + size) << i);
    if (!global) check_shared_word(w, write);
    check_word(w, bytes, write, atomic, global);
  }
}
}  // namespace

void note_fence() {
  if (kernel_runs()) fenced_launch = actor().launch;
}
void note_atomic(const void* p, size_t size) {
  if (counting()) check_access(p, size, false, true, __builtin_return_address(0));
  check_access(p, size, true, true, __builtin_return_address(0));
}
void check_module_access(const void* p, size_t size, bool write, const void* by) {
  check_access(p, size, write, false, by);
}
}  // namespace cuda_emulation

// ---- what the instrumented code calls
#pragma GCC visibility push(hidden)
using cuda_emulation::check_access;
#define TAPIR_BY __builtin_return_address(0)
#define TAPIR_HOOK(n)                                                                               \
  extern "C" void __tsan_read##n(void* p) { check_access(p, n, false, false, TAPIR_BY); }           \
  extern "C" void __tsan_write##n(void* p) { check_access(p, n, true, false, TAPIR_BY); }           \
  extern "C" void __tsan_unaligned_read##n(void* p) { check_access(p, n, false, false, TAPIR_BY); } \
  extern "C" void __tsan_unaligned_write##n(void* p) { check_access(p, n, true, false, TAPIR_BY); } \
  extern "C" void __tsan_volatile_read##n(void* p) { check_access(p, n, false, true, TAPIR_BY); }   \
  extern "C" void __tsan_volatile_write##n(void* p) { check_access(p, n, true, true, TAPIR_BY); }
TAPIR_HOOK(1)
TAPIR_HOOK(2)
TAPIR_HOOK(4)
TAPIR_HOOK(8)
TAPIR_HOOK(16)
extern "C" void __tsan_read_range(void* p, size_t n) { check_access(p, n, false, false, TAPIR_BY); }
extern "C" void __tsan_write_range(void* p, size_t n) { check_access(p, n, true, false, TAPIR_BY); }
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_vptr_update(void**, void*) {}
extern "C" void __tsan_vptr_read(void**) {}

// Atomics of the host code in those files (reference counts, guards of static variables) stay what they are.
#define TAPIR_HOST_ATOMIC(bits, T)                                                                                    \
  extern "C" T __tsan_atomic##bits##_load(const T* p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }           \
  extern "C" void __tsan_atomic##bits##_store(T* p, T v, int) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }           \
  extern "C" T __tsan_atomic##bits##_exchange(T* p, T v, int) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); } \
  extern "C" T __tsan_atomic##bits##_fetch_add(T* p, T v, int) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); } \
  extern "C" T __tsan_atomic##bits##_fetch_sub(T* p, T v, int) { return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST); } \
  extern "C" T __tsan_atomic##bits##_fetch_and(T* p, T v, int) { return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST); } \
  extern "C" T __tsan_atomic##bits##_fetch_or(T* p, T v, int) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); }   \
  extern "C" T __tsan_atomic##bits##_fetch_xor(T* p, T v, int) { return __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST); } \
  extern "C" int __tsan_atomic##bits##_compare_exchange_strong(T* p, T* e, T v, int, int) {                           \
    return __atomic_compare_exchange_n(p, e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                           \
  }                                                                                                                   \
  extern "C" int __tsan_atomic##bits##_compare_exchange_weak(T* p, T* e, T v, int, int) {                             \
    return __atomic_compare_exchange_n(p, e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                           \
  }
TAPIR_HOST_ATOMIC(8, uint8_t)
TAPIR_HOST_ATOMIC(16, uint16_t)
TAPIR_HOST_ATOMIC(32, uint32_t)
TAPIR_HOST_ATOMIC(64, uint64_t)
extern "C" void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
extern "C" void __tsan_atomic_signal_fence(int) {}
#pragma GCC visibility pop
