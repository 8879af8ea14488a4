// Note [Integer products on tensor cores]
// Tiles of 64 or 128 rows and 128 columns, 64 bytes of k at a time, which come by asynchronous copies two ahead. A row is `channels`
// neighbours at each position of a convolution's kernel, so that an image is read where it lies. Sums of the weights, which zero points need,
// are made beside the products, of the registers that these read.
#include <cuda_pipeline_primitives.h>
#include <warp_matrix.h>

#include "../divider.h"
#include "quant_device.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

constexpr int kThreads = 256, kColumns = 128, kDepth = 64, kStages = 3;  // columns and bytes of a tile
constexpr int kLoadedRows = kThreads / (kDepth / 16);                    // by all threads at once

/// Where 16 bytes of a row stand in a tile: eight rows of one column lie in banks of their own.
__device__ __forceinline__ int tile_place(int row, int chunk) { return row * kDepth + (chunk ^ (row / 2 & 3)) * 16; }

/// Row i's coordinates by strides.
__device__ __forceinline__ int64_t place_of(const QuantTiles& p, int64_t i, const QuantPlaces& places) {
  int64_t at = 0;
#pragma unroll
  for (int d = 2; d >= 0; --d) at += i % p.out[d] * places.strides[d + 1], i /= p.out[d];
  return at + i * places.strides[0];
}

/// Dividers of what positions are counted by.
struct Positions {
  Divider chunks, last, middle;
  __device__ __forceinline__ int64_t offset(const QuantTiles& p, uint32_t chunk) const {
    const uint32_t position = chunks.quotient(chunk), line = last.quotient(position), plane = middle.quotient(line);
    return int64_t(chunk - position * chunks.d) * 16 + int64_t(position - line * last.d) * p.step[2] +
           int64_t(line - plane * middle.d) * p.step[1] + int64_t(plane) * p.step[0];
  }
};

/// 16 bytes of each of R kLoadedRows rows that this thread brings into a tile.
template <int R> struct Source {
  const int8_t* rows[R];
  bool inside[R];
  /// row(i): where row i of the matrix begins, below `end`.
  template <class Row> __device__ __forceinline__ Source(int64_t first, int64_t end, Row&& row) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int64_t i = first + int(threadIdx.x) / (kDepth / 16) + r * kLoadedRows;
      inside[r] = i < end, rows[r] = row(inside[r] ? i : 0);
    }
  }
  __device__ __forceinline__ void fetch(int8_t* tile, int64_t offset, bool there) const {
    const int row = int(threadIdx.x) / (kDepth / 16), chunk = int(threadIdx.x) % (kDepth / 16);
#pragma unroll
    for (int r = 0; r < R; ++r)
      copy_async(tile + tile_place(row + r * kLoadedRows, chunk), rows[r] + (there ? offset : 0), inside[r] && there);
  }
};

/// What a warp makes: 16 M rows and 32 columns, and the sums of these columns' weights.
template <int M> struct WarpSums {
  int32_t sums[M][4][4] = {}, of_weights[4] = {};

  /// Of tiles a and b from these rows on.
  __device__ __forceinline__ void add(const int8_t* a, int row, const int8_t* b, int column) {
    const int lane = int(threadIdx.x) % 32;
#pragma unroll 1
    for (int half = 0; half < kDepth / 32; ++half) {
      uint32_t right[2][4];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int at = column + 16 * n + lane % 8 + lane / 16 * 8;
        load_matrices<false>(right[n], b + tile_place(at, 2 * half + lane / 8 % 2));
#pragma unroll
        for (int l = 0; l < 4; ++l)
          of_weights[2 * n + l / 2] = __dp4a(int(right[n][l]), 0x01010101, of_weights[2 * n + l / 2]);
      }
#pragma unroll
      for (int i = 0; i < M; ++i) {
        uint32_t left[4];
        load_matrices<false>(left, a + tile_place(row + 16 * i + lane % 16, 2 * half + lane / 16));
#pragma unroll
        for (int n = 0; n < 4; ++n)
          multiply_add(sums[i][n], left, right[n / 2][2 * (n % 2)], right[n / 2][2 * (n % 2) + 1]);
      }
    }
  }
  __device__ __forceinline__ void write(const QuantTiles& p, int64_t group, int64_t row, int64_t column) {
    const int lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
    int32_t weights[4][2];  // of this lane's columns
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int32_t total = warp_fold(of_weights[n], Plus{}, 4);
#pragma unroll
      for (int e = 0; e < 2; ++e) weights[n][e] = __shfl_sync(0xffffffffu, total, 8 * t + 4 * e);
    }
#pragma unroll
    for (int i = 0; i < M; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t at = row + 16 * i + g + 8 * half;
        if (at >= p.m) continue;
        const FinishedRow finished(p.finish, at);
        const int64_t place = place_of(p, at, p.to);
#pragma unroll
        for (int n = 0; n < 4; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int64_t j = column + 8 * n + 2 * t + e, o = group * p.n + j;
            if (j < p.n) finished.write(o, sums[i][n][2 * half + e], weights[n][e], place + o * p.y_column);
          }
      }
  }
};

/// A warp has one of two shares of the rows, one of four of the columns.
template <int M> __global__ void __launch_bounds__(kThreads, M == 4 ? 1 : 2)
    quant_tiles_kernel(QuantTiles p, int64_t tiles_m, int64_t tiles_n, Positions positions) {
  constexpr int kRows = 32 * M, kStage = (kRows + kColumns) * kDepth;
  __shared__ __align__(16) int8_t tiles[kStages * kStage];
  const int warp = int(threadIdx.x) / 32, row = warp / 4 * 16 * M, column = warp % 4 * 32;
  const int steps = int((p.k + kDepth - 1) / kDepth), chunk = int(threadIdx.x) % (kDepth / 16);
  for (int64_t tile = blockIdx.x; tile < tiles_m * tiles_n * p.groups; tile += gridDim.x) {
    const int64_t j0 = tile % tiles_n * kColumns, i0 = tile / tiles_n % tiles_m * kRows, g = tile / tiles_n / tiles_m;
    const Source<kRows / kLoadedRows> a(i0, p.m,
                                        [&](int64_t i) { return p.x + g * p.group_step + place_of(p, i, p.from); });
    const Source<kColumns / kLoadedRows> b(j0, p.n, [&](int64_t j) { return p.w + (g * p.n + j) * p.k; });
    const auto fetch = [&](int step) {
      int8_t* const to = tiles + step % kStages * kStage;
      const int64_t at = int64_t(step) * kDepth + chunk * 16;
      if (step < steps) {
        a.fetch(to, positions.offset(p, uint32_t(at / 16)), at < p.k);
        b.fetch(to + kRows * kDepth, at, at < p.k);
      }
      __pipeline_commit();
    };
    for (int step = 0; step < kStages - 1; ++step) fetch(step);
    WarpSums<M> sums;
    for (int step = 0; step < steps; ++step) {
      __pipeline_wait_prior(kStages - 2);
      __syncthreads();
      fetch(step + kStages - 1);
      const int8_t* const from = tiles + step % kStages * kStage;
      sums.add(from, row, from + kRows * kDepth, column);
    }
    __pipeline_wait_prior(0);
    __syncthreads();  // all copies have come, all tiles are used up
    sums.write(p, g, i0 + row, j0 + column);
  }
}

template <int M> void run(Context& ctx, const char* op, const QuantTiles& p) {
  const int64_t tiles_m = (p.m + 32 * M - 1) / (32 * M), tiles_n = (p.n + kColumns - 1) / kColumns;
  const Positions positions{Divider(uint32_t(p.channels / 16)), Divider(uint32_t(p.kernel[2])),
                            Divider(uint32_t(p.kernel[1]))};
  const Grid grid{grid_of(tiles_m * tiles_n * p.groups, 1).blocks, dim3(kThreads)};
  launch(ctx, op, grid, quant_tiles_kernel<M>, p, tiles_m, tiles_n, positions);
}

}  // namespace

bool suits_quant_tiles(Device device, int64_t m, int64_t n) {
  constexpr int64_t kLeast = 9, kMany = 65;
  return m >= kMany || (m >= kLeast && (n + kColumns - 1) / kColumns >= multiprocessors(device));
}
void quant_tiles(Context& ctx, const char* op, const QuantTiles& p) {
  const int64_t large = (p.m + 127) / 128 * ((p.n + kColumns - 1) / kColumns) * p.groups;
  large >= 2 * multiprocessors(ctx.device) ? run<4>(ctx, op, p) : run<2>(ctx, op, p);
}

}  // namespace tapir::inline v0::cuda_kernels
