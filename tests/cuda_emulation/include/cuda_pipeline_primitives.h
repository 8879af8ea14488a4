// A stand-in for CUDA's header of the same name: copies from device memory to shared memory that are there after a wait.
#pragma once
#include <cassert>

#include "cuda_runtime.h"

namespace cuda_emulation {
#pragma GCC visibility push(hidden)
/// Keeps the bytes for `to` until the thread waits for them.
void begin_async_copy(void* to, const void* bytes, size_t size);
void end_async_group();
void wait_for_async_groups(size_t but_the_last);
#pragma GCC visibility pop
template <size_t N> struct alignas(N) AsyncBytes { unsigned char of[N]; };
/// The thread reads now. `to` holds NaN until the wait.
template <size_t N> void async_copy(void* to, const void* from, size_t zeros) {
  AsyncBytes<N> bytes{}, nan;
  if (zeros == 0) bytes = *static_cast<const AsyncBytes<N>*>(from);
  else
    for (size_t i = 0; i + zeros < N; ++i) bytes.of[i] = static_cast<const unsigned char*>(from)[i];
  std::memset(&nan, 0xff, N);
  *static_cast<AsyncBytes<N>*>(to) = nan;
  begin_async_copy(to, &bytes, N);
}
}  // namespace cuda_emulation

inline void __pipeline_memcpy_async(void* to, const void* from, size_t size, size_t zeros = 0) {
  assert((size == 4 || size == 8 || size == 16) && zeros <= size);
  if (size == 4) cuda_emulation::async_copy<4>(to, from, zeros);
  else if (size == 8) cuda_emulation::async_copy<8>(to, from, zeros);
  else cuda_emulation::async_copy<16>(to, from, zeros);
}
inline void __pipeline_commit() { cuda_emulation::end_async_group(); }
inline void __pipeline_wait_prior(size_t but_the_last) { cuda_emulation::wait_for_async_groups(but_the_last); }
