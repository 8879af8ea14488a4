#pragma once
#include <cuda_pipeline_primitives.h>
#include <warp_matrix.h>

#include "../kernel.h"
#include "../swizzle.h"

// Note [Convolutions as products]
// A convolution is a product of matrices that nobody writes down (Chetlur et al. 2014, arXiv 1410.0759): rows are pixels of the result,
// columns its channels, and what is summed over is (kernel position, channel). Both operands have their channels innermost, in whole packs of
// 16 bytes, so that a pack is of one position: it is copied from where it lies, or is zeros where the kernel sees padding.
// The gradient of the input is the same product, of dy and a transposed copy of the weight; a stride parts the pixels into phases, each of
// which meets every stride-th kernel position and no others. The gradient of the weight sums over pixels: its rows are output channels, its
// columns (kernel position, channel). Blocks share out the pixels and leave sums in scratch memory, which are added up in a fixed order.
// Products are those of tensor cores in 16 bits, of registers in float32. Tiles come by asynchronous copies, kStages - 1 ahead.
namespace tapir::inline v0::cuda_kernels {

constexpr int kConvThreads = 256, kStages = 3;
template <class T>
inline constexpr int kDepth = int(128 / sizeof(T));  // what a tile holds of the axis that is summed over

/// Sums of a block: BM rows by BN columns. kAlong: rows of the tiles are those of the operands, kDepth long; else they are what is summed
/// over, and BM and BN long.
template <class T, int BM, int BN, bool kAlong> class ConvSums {
 public:
  /// Adds the product of two tiles.
  __device__ __forceinline__ void add(const T* a, const T* b) {
#pragma unroll 1  // more would hoist loads of shared memory until registers run out
    for (int step = 0; step < kDepth<T> / 16; ++step) {
      uint32_t left[kRows / 16][4];
#pragma unroll
      for (int i = 0; i < kRows / 16; ++i) load_matrices<!kAlong>(left[i], a + left_place(row() + 16 * i, step));
#pragma unroll
      for (int n = 0; n < kColumns / 16; ++n) {
        uint32_t right[4];
        load_matrices<!kAlong>(right, b + right_place(column() + 16 * n, step));
#pragma unroll
        for (int i = 0; i < kRows / 16; ++i) {
          multiply_add<T>(sums_[i][2 * n], left[i], right[0], right[1]);
          multiply_add<T>(sums_[i][2 * n + 1], left[i], right[2], right[3]);
        }
      }
    }
  }
  /// f(row, column, sum) for those of this thread.
  template <class F> __device__ __forceinline__ void for_each(F&& f) const {
    const int lane = int(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i)
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          f(row() + 16 * i + lane / 4 + e / 2 * 8, column() + 8 * n + lane % 4 * 2 + e % 2, sums_[i][n][e]);
  }

 private:
  static constexpr int kAcross = BN / 32, kDown = kConvThreads / 32 / kAcross;  // warps
  static constexpr int kRows = BM / kDown, kColumns = 32;                       // of a warp

  __device__ static int row() { return int(threadIdx.x) / 32 / kAcross * kRows; }
  __device__ static int column() { return int(threadIdx.x) / 32 % kAcross * kColumns; }
  __device__ static int left_place(int row, int step) {
    const int lane = int(threadIdx.x) % 32;
    if constexpr (kAlong) return place<kDepth<T>>(row + lane % 16, 2 * step + lane / 16);
    else return place<BM>(16 * step + lane % 8 + lane / 16 * 8, row / 8 + lane / 8 % 2);
  }
  __device__ static int right_place(int column, int step) {
    const int lane = int(threadIdx.x) % 32;
    if constexpr (kAlong) return place<kDepth<T>>(column + lane % 8 + lane / 16 * 8, 2 * step + lane / 8 % 2);
    else return place<BN>(16 * step + lane % 16, column / 8 + lane / 16);
  }

  float sums_[kRows / 16][kColumns / 8][4] = {};
};

/// In float32: 16 x 16 threads, each with rows and columns that lie 16 apart, or packs of four that lie 64 apart.
template <int BM, int BN, bool kAlong> class ConvSums<float, BM, BN, kAlong> {
 public:
  __device__ __forceinline__ void add(const float* a, const float* b) {
    if constexpr (kAlong) add_along(a, b);
    else add_across(a, b);
  }
  template <class F> __device__ __forceinline__ void for_each(F&& f) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j) f(number(ty(), i), number(tx(), j), sums_[i][j]);
  }

 private:
  static constexpr int kRows = BM / 16, kColumns = BN / 16, kDeep = kDepth<float>;
  using Four = Pack<float, 4>;

  __device__ static int ty() { return int(threadIdx.x) / 16; }
  __device__ static int tx() { return int(threadIdx.x) % 16; }
  __device__ static int number(int thread, int i) { return kAlong ? thread + 16 * i : i / 4 * 64 + thread * 4 + i % 4; }
  __device__ static const Four& four(const float* at) { return *reinterpret_cast<const Four*>(at); }

  __device__ __forceinline__ void add_along(const float* a, const float* b) {
#pragma unroll 1  // more would take registers that sums need
    for (int pack = 0; pack < kDeep / 4; ++pack) {
      Four left[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) left[i] = four(a + place<kDeep, 4>(ty() + 16 * i, pack));
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const Four right = four(b + place<kDeep, 4>(tx() + 16 * j, pack));
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
          for (int i = 0; i < kRows; ++i) sums_[i][j] += left[i].of[k] * right.of[k];
      }
    }
  }
  __device__ __forceinline__ void add_across(const float* a, const float* b) {
#pragma unroll 2
    for (int k = 0; k < kDeep; ++k) {
      Four left[kRows / 4], right[kColumns / 4];
#pragma unroll
      for (int i = 0; i < kRows / 4; ++i) left[i] = four(a + place<BM, 4>(k, 16 * i + ty()));
#pragma unroll
      for (int j = 0; j < kColumns / 4; ++j) right[j] = four(b + place<BN, 4>(k, 16 * j + tx()));
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int j = 0; j < kColumns; ++j) sums_[i][j] += left[i / 4].of[i % 4] * right[j / 4].of[j % 4];
    }
  }

  float sums_[kRows][kColumns] = {};
};

/// Sums tiles 0 to steps - 1, of `size` elements for both operands: load(tile) queues the copies of the next one.
template <class T, class Sums, class Load>
__device__ __forceinline__ void sum_tiles(Sums& sums, T* tiles, int first, int size, int steps, Load&& load) {
  __syncthreads();  // whatever was in the tiles is used up
#pragma unroll
  for (int k = 0; k < kStages - 1; ++k) {
    if (k < steps) load(tiles + k * size);
    __pipeline_commit();
  }
  for (int k = 0; k < steps; ++k) {
    __pipeline_wait_prior(kStages - 2);
    __syncthreads();
    const int next = k + kStages - 1;
    if (next < steps) load(tiles + next % kStages * size);
    __pipeline_commit();
    sums.add(tiles + k % kStages * size, tiles + k % kStages * size + first);
  }
  __pipeline_wait_prior(0);
  __syncthreads();
}

}  // namespace tapir::inline v0::cuda_kernels
