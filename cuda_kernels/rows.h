#pragma once
#include <cstdint>

#include "kernel.h"
#include "launch.h"

// What kernels share that take a row of neighbouring elements with a group of threads: 1 to 32 of a warp, or a whole block.
namespace tapir::inline v0::cuda_kernels {

template <int W, class T> __device__ __forceinline__ void load_pack(const T* from, Compute<T> (&v)[W]) {
  if constexpr (W == 1) {
    v[0] = widen(*from);
  } else {
    const Pack<T, W> pack = *reinterpret_cast<const Pack<T, W>*>(from);
#pragma unroll
    for (int i = 0; i < W; ++i) v[i] = widen(pack.of[i]);
  }
}
template <int W, class T> __device__ __forceinline__ void store_pack(T* to, const Compute<T> (&v)[W]) {
  if constexpr (W == 1) {
    *to = narrow<T>(v[0]);
  } else {
    Pack<T, W> pack;
#pragma unroll
    for (int i = 0; i < W; ++i) pack.of[i] = narrow<T>(v[i]);
#ifdef __CUDA_ARCH__  // where paths meet before the store, nvcc forgets that 16 bytes go to an aligned place
    if constexpr (sizeof(pack) == 16) {
      uint4 words;
      memcpy(&words, &pack, 16);
      __stwb(reinterpret_cast<uint4*>(to), words);
      return;
    }
#endif
    *reinterpret_cast<Pack<T, W>*>(to) = pack;
  }
}

/// Elements before the first address that a 16-byte access may use.
template <class T> __device__ __forceinline__ int64_t head_of(const T* p) {
  return int64_t((16 - reinterpret_cast<uintptr_t>(p) % 16) % 16 / sizeof(T));
}
template <class A, class B> __device__ __forceinline__ bool same_alignment(const A* a, const B* b) {
  return (reinterpret_cast<uintptr_t>(a) - reinterpret_cast<uintptr_t>(b)) % 16 == 0;
}

/// f.operator()<W>(i) for pieces of W elements from i on, which make up [0, n): V at once behind `head`, single ones elsewhere.
/// head < 0: single ones throughout. This thread takes its share, being `lane` of `lanes`.
template <int V, class F>
__device__ __forceinline__ void for_packs(int64_t n, int64_t head, int lane, int lanes, F&& f) {
  if (head < 0 || head > n) head = n;
  for (int64_t i = lane; i < head; i += lanes) f.template operator()<1>(i);
  const int64_t whole = head + (n - head) / V * V;
  for (int64_t i = head + int64_t(lane) * V; i < whole; i += int64_t(lanes) * V) f.template operator()<V>(i);
  for (int64_t i = whole + lane; i < n; i += lanes) f.template operator()<1>(i);
}

/// The same by all threads of the block.
template <int V, class F> __device__ __forceinline__ void for_packs(int64_t n, int64_t head, F&& f) {
  for_packs<V>(n, head, int(threadIdx.x), int(blockDim.x), f);
}

/// Over the threads of a group; all threads of the block call it. `shared` holds 32 values.
template <class T, class Op> __device__ __forceinline__ T group_fold(T v, T identity, T* shared, int lanes, Op op) {
  return lanes > 32 ? block_fold(v, identity, shared, op) : warp_fold(v, op, lanes);
}

/// Threads for a row of n elements, about `each` to a thread: a power of two, `most` for a block of so many.
inline int lanes_for(int64_t n, int64_t each, int most) {
  int lanes = 1;
  while (lanes < most && lanes * each < n) lanes *= 2;
  return lanes;
}
/// A grid for `rows` rows: blocks of one row, or of several where a row takes part of a warp.
inline Grid row_grid(int64_t rows, int lanes) {
  const int threads = lanes > 32 ? lanes : 128;
  return grid_of(rows * lanes, threads);
}
/// The same inside a kernel: rows first, first + step, ... are this group's, and `lane` is the thread's place in it. All threads of a
/// block loop alike: while (at.base < rows) { if (at.row() < rows) ...; at.next(); }
struct RowGroups {
  int lane, group, groups;
  int64_t base;
  __device__ explicit RowGroups(int lanes)
      : lane(int(threadIdx.x) % lanes), group(int(threadIdx.x) / lanes), groups(int(blockDim.x) / lanes),
        base(int64_t(blockIdx.x) * groups) {}
  __device__ int64_t row() const { return base + group; }
  __device__ void next() { base += int64_t(gridDim.x) * groups; }
};

}  // namespace tapir::inline v0::cuda_kernels
