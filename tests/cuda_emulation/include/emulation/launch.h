// How a kernel gets from cudaLaunchKernelEx to the fibers that run it, and the place of a running thread.
#pragma once
#include <stdexcept>
#include <tuple>
#include <type_traits>

#include "../cuda_runtime_api.h"
#include "pointers.h"

#define __constant__ __attribute__((unused))
// The bound is written into the program, as a NOP before the kernel for each 32 threads: launch_bounds.cpp reads it. 33 more say that it
// flushes denormal numbers.
#ifdef TAPIR_EMULATED_FTZ
#define __launch_bounds__(threads, ...) \
  __attribute__((patchable_function_entry(33 + ((threads) + 31) / 32, 33 + ((threads) + 31) / 32)))
#else
#define __launch_bounds__(threads, ...) \
  __attribute__((patchable_function_entry(((threads) + 31) / 32, ((threads) + 31) / 32)))
#endif
#define __grid_constant__
#define __shared__ thread_local  // static storage, and legal after `extern`: a launch runs on one host thread

namespace cuda_emulation {
/// What every detected mistake throws. The text begins with the kernel or the call.
struct __attribute__((visibility("default"))) Fault : std::runtime_error {
  using runtime_error::runtime_error;
};
/// Chooses the order of blocks, threads and wake-ups. A right kernel gives the same bits under every seed.
void set_seed(unsigned seed);

/// A kernel with its types erased: `args` are copied for each thread and given to `invoke`.
struct Argument {
  size_t offset, size;
  const size_t* pointers;  // offsets of the pointers in it
  size_t count;
};
struct Call {
  const void* kernel;
  void (*invoke)(const void* args);
  const void* args;
  size_t size;
  const Argument* arguments;
  size_t count;
};
#pragma GCC visibility push(hidden)
cudaError_t launch(const cudaLaunchConfig_t& config, const Call& call);
#pragma GCC visibility pop
}  // namespace cuda_emulation

#pragma GCC visibility push(hidden)
extern uint3 threadIdx, blockIdx;  // of the running fiber
extern dim3 blockDim, gridDim;
#pragma GCC visibility pop
constexpr int warpSize = 32;

template <class... P, class... A>
__attribute__((no_sanitize("thread"))) cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config,
                                                                      void (*kernel)(P...), A&&... args) {
  static_assert((std::is_trivially_copyable_v<P> && ...), "a kernel's arguments travel as bytes");
  static_assert((sizeof(P) + ... + 0) <= 32764, "a kernel's arguments are at most 32764 bytes");
  struct Pack {
    void (*kernel)(P...);
    std::tuple<P...> args;
  } pack{kernel, {static_cast<A&&>(args)...}};
  const auto invoke = [](const void* p) {
    auto& c = *static_cast<const Pack*>(p);
    std::apply(c.kernel, c.args);
  };
  const auto describe = [&](const auto&... of) {
    const cuda_emulation::Argument none{};
    const cuda_emulation::Argument arguments[] = {
        {size_t(reinterpret_cast<const char*>(&of) - reinterpret_cast<const char*>(&pack)), sizeof of,
         cuda_emulation::pointers_in<std::remove_cvref_t<decltype(of)>>().data(),
         cuda_emulation::pointers_in<std::remove_cvref_t<decltype(of)>>().size()}...,
        none};
    return cuda_emulation::launch(
        *config, {reinterpret_cast<const void*>(kernel), invoke, &pack, sizeof pack, arguments, sizeof...(of)});
  };
  return std::apply(describe, pack.args);
}
