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

#define TAPIR_MODULE(kernel)                                                                                           \
  namespace cuda_emulation {                                                                                           \
  ModuleParts parts;                                                                                                   \
  int barrier(Vote vote, bool predicate, const Site& site) {                                                           \
    return reinterpret_cast<decltype(&barrier)>(parts.barrier)(vote, predicate, site);                                 \
  }                                                                                                                    \
  uint64_t exchange(unsigned mask, uint64_t value, unsigned source, Combine combine, bool orders_memory,               \
                    const Site& site) {                                                                                \
    return reinterpret_cast<decltype(&exchange)>(parts.exchange)(mask, value, source, combine, orders_memory, site);   \
  }                                                                                                                    \
  void note_fence() { reinterpret_cast<decltype(&note_fence)>(parts.note_fence)(); }                                   \
  template <class A> void call(void (*f)(A), const void* arguments) { f(*static_cast<const A*>(arguments)); }          \
  }                                                                                                                    \
  extern "C" __attribute__((visibility("default"))) void tapir_module_parts(const cuda_emulation::ModuleParts* from) { \
    cuda_emulation::parts = *from;                                                                                     \
  }                                                                                                                    \
  extern "C" __attribute__((visibility("default"))) void* tapir_module_kernel() {                                      \
    return reinterpret_cast<void*>(&kernel);                                                                           \
  }                                                                                                                    \
  extern "C" __attribute__((visibility("default"))) void tapir_module_call(const void* arguments) {                    \
    cuda_emulation::call(kernel, arguments);                                                                           \
  }
