#pragma once
#include <span>

#include "../kernel.h"
#include "../kernels.h"
#include "../launch.h"
#include "../layout.h"

// Note [Many tensors in few launches]
// Tensors without gaps travel to the kernel as a table in its arguments, 64 at a time: nothing is copied to the device. Their elements
// are cut into chunks, one to a block. Tensors with gaps have a launch of their own.
namespace tapir::inline v0::cuda_kernels {

inline constexpr int kTableTensors = 64, kTableThreads = 256;
inline constexpr int64_t kTableChunk = 8192;  // elements

/// K operands of each tensor, all of them dense and in one order.
template <int K> struct TensorTable {
  void* data[K][kTableTensors] = {};
  int64_t sizes[kTableTensors];
  uint32_t first[kTableTensors + 1];  // chunk of each tensor; behind the last one, their number
  int count = 0;
};
/// The piece of a tensor that is chunk c.
struct TableChunk {
  int tensor;
  int64_t begin, end;
};
template <int K> __device__ TableChunk chunk_at(const TensorTable<K>& t, uint32_t c) {
  int low = 0, high = t.count - 1;  // the last tensor that starts at c or before
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (t.first[middle] <= c) low = middle;
    else high = middle - 1;
  }
  const int64_t begin = int64_t(c - t.first[low]) * kTableChunk, end = begin + kTableChunk;
  return {low, begin, end < t.sizes[low] ? end : t.sizes[low]};
}

/// No gaps and one order in all views: a flat loop serves.
template <int K> bool is_flat(const TensorView* const (&views)[K]) {
  const Layout<K> l = layout_of<K>(views);
  for (int k = 0; k < K; ++k)
    if (!(l.numel <= 1 || (l.rank == 1 && l.strides[k][0] == 1))) return false;
  return true;
}

/// Fills tables and calls run(table, chunks) for each. `operand(i, k)`: view k of tensor i; `takes(i)`: tensor i belongs here.
template <int K, class Operand, class Takes, class Run>
void for_tables(size_t tensors, Operand operand, Takes takes, Run run) {
  TensorTable<K> table;
  uint32_t chunks = 0;
  const auto flush = [&] {
    table.first[table.count] = chunks;
    if (chunks > 0) run(table, chunks);
    table.count = 0, chunks = 0;
  };
  for (size_t i = 0; i < tensors; ++i) {
    V first = operand(i, 0);
    const int64_t n = first.numel(), own = (n + kTableChunk - 1) / kTableChunk;
    if (n == 0 || !takes(i)) continue;
    if (table.count == kTableTensors) flush();
    for (int k = 0; k < K; ++k) table.data[k][table.count] = operand(i, k).data;
    table.sizes[table.count] = n, table.first[table.count++] = chunks;
    chunks += uint32_t(own);
  }
  flush();
}
inline Grid table_grid(uint32_t chunks) { return grid_of(int64_t(chunks) * kTableThreads, kTableThreads); }

}  // namespace tapir::inline v0::cuda_kernels
