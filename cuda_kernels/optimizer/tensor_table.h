#pragma once
#include <span>

#include "../kernel.h"
#include "../kernels.h"
#include "../launch.h"
#include "../layout.h"

// Note [Many tensors in few launches]
// Tensors without gaps, each of a dtype of its own, travel to the kernel as a table in its arguments, as many as these hold: nothing is
// copied to the device. Their elements are cut into chunks, one to a block. Tensors with gaps have a launch of their own.
namespace tapir::inline v0::cuda_kernels {

inline constexpr int kTableThreads = 256;
inline constexpr int64_t kTableChunk = 8192;  // elements
/// Tensors of K operands in 4,000 of the 4,096 bytes that a kernel's arguments may have everywhere.
template <int K> inline constexpr int kTableTensors = 4000 / (K * 9 + 8);

/// K operands of each tensor, all of them dense and in one order.
template <int K> struct TensorTable {
  void* data[K][kTableTensors<K>];
  uint32_t first[kTableTensors<K> + 1];  // chunk of each tensor; behind the last one, their number
  uint32_t rest[kTableTensors<K>];       // elements in its last chunk
  DType dtypes[K][kTableTensors<K>];
  int count;
};
/// The piece of a tensor that is chunk c.
struct TableChunk {
  int tensor;
  int64_t begin;
  int size;
};
template <int K> __device__ TableChunk chunk_at(const TensorTable<K>& t, uint32_t c) {
  int low = 0, high = t.count - 1;  // the last tensor that starts at c or before
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (t.first[middle] <= c) low = middle;
    else high = middle - 1;
  }
  return {low, int64_t(c - t.first[low]) * kTableChunk, int(c + 1 < t.first[low + 1] ? kTableChunk : t.rest[low])};
}
/// Where operand k of that piece begins.
template <class T, int K> __device__ T* data_at(const TensorTable<K>& t, int k, const TableChunk& at) {
  return static_cast<T*>(t.data[k][at.tensor]) + at.begin;
}

/// No gaps and one order in all views: a flat loop serves.
template <int K> bool is_flat(const TensorView* const (&views)[K]) {
  const Layout<K> l = layout_of<K>(views);
  for (int k = 0; k < K; ++k)
    if (!(l.numel <= 1 || (l.rank == 1 && l.strides[k][0] == 1))) return false;
  return true;
}

inline int64_t chunks_of(V x) { return (x.numel() + kTableChunk - 1) / kTableChunk; }

/// Fills tables and calls run(table, chunks) for each. `operand(i, k)`: view k of tensor i; `takes(i)`: tensor i belongs here.
template <int K, class Operand, class Takes, class Run>
void for_tables(size_t tensors, Operand operand, Takes takes, Run run) {
  static_assert(sizeof(TensorTable<K>) <= 4016);
  TensorTable<K> table = {};  // what is not used too: arguments hold no addresses of the host
  uint32_t chunks = 0;
  const auto flush = [&] {
    table.first[table.count] = chunks;
    if (chunks > 0) run(table, chunks);
    table.count = 0, chunks = 0;
  };
  for (size_t i = 0; i < tensors; ++i) {
    const int64_t n = operand(i, 0).numel();
    if (n == 0 || !takes(i)) continue;
    if (table.count == kTableTensors<K>) flush();
    for (int k = 0; k < K; ++k) {
      V x = operand(i, k);
      table.data[k][table.count] = x.data, table.dtypes[k][table.count] = x.dtype;
    }
    table.rest[table.count] = uint32_t((n - 1) % kTableChunk + 1), table.first[table.count++] = chunks;
    chunks += uint32_t(chunks_of(operand(i, 0)));
  }
  flush();
}
inline Grid table_grid(uint32_t chunks) { return grid_of(int64_t(chunks) * kTableThreads, kTableThreads); }

}  // namespace tapir::inline v0::cuda_kernels
