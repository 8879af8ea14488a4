// What a kernel that is compiled while the program runs is compiled against (../../vendor/nvrtc.cpp): the headers as they are, but what
// stands behind them is in the library that loads the kernel, which hands over its addresses.
#pragma once
#include "launch.h"
#include "module_parts.h"
#define threadIdx (*cuda_emulation::parts.thread_index)
#define blockIdx (*cuda_emulation::parts.block_index)
#define blockDim (*cuda_emulation::parts.block_size)
#define gridDim (*cuda_emulation::parts.grid_size)
namespace cuda_emulation {
extern ModuleParts parts;
}  // namespace cuda_emulation
#include "../cuda_runtime.h"

#ifdef __SANITIZE_THREAD__  // what the compiler announces, but for this library's own constants: ../../checks.cpp
extern "C" __attribute__((visibility("hidden"))) char __ehdr_start[], _end[];
#define TAPIR_MODULE_HOOK __attribute__((no_sanitize("thread"))) void
#define TAPIR_MODULE_TELL(n, write)                                                                 \
  if (static_cast<char*>(p) < __ehdr_start || static_cast<char*>(p) >= _end)                        \
  reinterpret_cast<void (*)(const void*, size_t, bool, const void*)>(cuda_emulation::parts.access)( \
      p, n, write, __builtin_return_address(0))
#define TAPIR_MODULE_HOOKS_OF(n)                                                       \
  TAPIR_MODULE_HOOK __tsan_read##n(void* p) { TAPIR_MODULE_TELL(n, false); }           \
  TAPIR_MODULE_HOOK __tsan_write##n(void* p) { TAPIR_MODULE_TELL(n, true); }           \
  TAPIR_MODULE_HOOK __tsan_unaligned_read##n(void* p) { TAPIR_MODULE_TELL(n, false); } \
  TAPIR_MODULE_HOOK __tsan_unaligned_write##n(void* p) { TAPIR_MODULE_TELL(n, true); } \
  TAPIR_MODULE_HOOK __tsan_volatile_read##n(void* p) { TAPIR_MODULE_TELL(n, false); }  \
  TAPIR_MODULE_HOOK __tsan_volatile_write##n(void* p) { TAPIR_MODULE_TELL(n, true); }
#define TAPIR_MODULE_HOOKS                                                                \
  extern "C" {                                                                            \
  TAPIR_MODULE_HOOKS_OF(1)                                                                \
  TAPIR_MODULE_HOOKS_OF(2)                                                                \
  TAPIR_MODULE_HOOKS_OF(4)                                                                \
  TAPIR_MODULE_HOOKS_OF(8)                                                                \
  TAPIR_MODULE_HOOKS_OF(16)                                                               \
  TAPIR_MODULE_HOOK __tsan_read_range(void* p, size_t n) { TAPIR_MODULE_TELL(n, false); } \
  TAPIR_MODULE_HOOK __tsan_write_range(void* p, size_t n) { TAPIR_MODULE_TELL(n, true); } \
  TAPIR_MODULE_HOOK __tsan_init() {}                                                      \
  TAPIR_MODULE_HOOK __tsan_func_entry(void*) {}                                           \
  TAPIR_MODULE_HOOK __tsan_func_exit() {}                                                 \
  }
#else
#define TAPIR_MODULE_HOOKS
#endif

/// What it computes, in words.
#define TAPIR_MODULE_TEXT(text) \
  extern "C" __attribute__((visibility("default"))) const char* tapir_module_text() { return text; }
#define TAPIR_MODULE(kernel)                                                                                         \
  namespace cuda_emulation {                                                                                         \
  ModuleParts parts;                                                                                                 \
  int barrier(Vote vote, bool predicate, const Site& site) {                                                         \
    return reinterpret_cast<decltype(&barrier)>(parts.barrier)(vote, predicate, site);                               \
  }                                                                                                                  \
  uint64_t exchange(unsigned mask, uint64_t value, unsigned source, Combine combine, bool orders_memory,             \
                    const Site& site) {                                                                              \
    return reinterpret_cast<decltype(&exchange)>(parts.exchange)(mask, value, source, combine, orders_memory, site); \
  }                                                                                                                  \
  void note_fence() { reinterpret_cast<decltype(&note_fence)>(parts.note_fence)(); }                                 \
  template <class A> void call(void (*f)(A), const void* arguments) { f(*static_cast<const A*>(arguments)); }        \
  }                                                                                                                  \
  TAPIR_MODULE_HOOKS                                                                                                 \
  extern "C" __attribute__((visibility("default"), no_sanitize("thread"))) void tapir_module_parts(                  \
      const cuda_emulation::ModuleParts* from) {                                                                     \
    cuda_emulation::parts = *from;                                                                                   \
  }                                                                                                                  \
  extern "C" __attribute__((visibility("default"))) void* tapir_module_kernel() {                                    \
    return reinterpret_cast<void*>(&kernel);                                                                         \
  }                                                                                                                  \
  extern "C" __attribute__((visibility("default"))) void tapir_module_call(const void* arguments) {                  \
    cuda_emulation::call(kernel, arguments);                                                                         \
  }
