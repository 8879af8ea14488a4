#pragma once
#include <cuda_runtime.h>

namespace tapir::inline v0::cuda_kernels {

/// Where pack `pack` of a row, of P elements in 16 bytes, stands in a tile of rows of D elements: packs change places by rows, so that one
/// pack of each of eight rows lies in banks of its own.
template <int D, int P = 8> __device__ __forceinline__ int place(int row, int pack) {
  return row * D + (pack ^ (row & 7)) * P;
}

}  // namespace tapir::inline v0::cuda_kernels
