#pragma once
#include <cuda_pipeline_primitives.h>
#include <warp_matrix.h>

#include "problem.h"

// Note [Attention on tensor cores]
// As in Note [Attention by tiles], for 16-bit floats, with tensor cores (Dao 2023, arXiv 2307.08691). Each warp of a block owns 16 or 32 rows of
// its tile; tiles of the other side come by asynchronous copies, one ahead. Scores never leave the registers: as a product leaves them, and
// rounded to 16 bits, they are the left operand of the next product. They are in units of log2(e), so that their exponential is a power of 2.
// Backward: two passes, whose rows are keys (dk, dv) and queries (dq). Seven products where one pass with atomic additions has five, but
// every sum has one owner and a fixed order.
namespace tapir::inline v0::cuda_kernels {

constexpr int kWarps = 4, kWarpThreads = 32 * kWarps;
constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

/// Where pack `pack` of eight elements of a row stands in a tile of rows of D elements: packs change places by rows, so that those of one column in eight rows lie
/// in different banks.
template <int D> __device__ __forceinline__ int place(int row, int pack) { return row * D + (pack ^ (row & 7)) * 8; }

/// R rows of a matrix from row0 on, zeros beyond it. They are there after a wait and a barrier.
template <class T, int D, int R> __device__ void load_tile(T* tile, const Matrix& m, int row0) {
  for (int e = int(threadIdx.x); e < R * (D / 8); e += kWarpThreads) {
    const int row = e / (D / 8), pack = e % (D / 8);
    const bool inside = row0 + row < m.rows && pack * 8 < m.columns;
    const T* const from =
        static_cast<const T*>(m.data) + m.offset + (inside ? (row0 + row) * m.row + pack * 8 * m.column : 0);
    T* const to = tile + place<D>(row, pack);
    if (m.pack == 8) {
      __pipeline_memcpy_async(to, from, 16, inside ? 0 : 16);
    } else {
      Pack<T, 8> v{};
      for (int i = 0; i < 8; ++i)
        if (inside && pack * 8 + i < m.columns) v.of[i] = from[i * m.column];
      *reinterpret_cast<Pack<T, 8>*>(to) = v;
    }
  }
}

/// s = a b^T: 16 M rows of tile a from `row` on, N rows of tile b; D columns, of which `columns` count.
template <class T, int D, int M, int N>
__device__ __forceinline__ void product(float (&s)[M][N / 8][4], const T* a, int row, const T* b, int columns) {
  const int lane = int(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int n = 0; n < N / 8; ++n) s[i][n][0] = s[i][n][1] = s[i][n][2] = s[i][n][3] = 0;
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
    if (step * 16 >= columns) break;
    uint32_t left[M][4];
#pragma unroll
    for (int i = 0; i < M; ++i)
      load_matrices<false>(left[i], a + place<D>(row + 16 * i + lane % 16, 2 * step + lane / 16));
#pragma unroll
    for (int n = 0; n < N / 16; ++n) {
      uint32_t right[4];
      load_matrices<false>(right, b + place<D>(16 * n + lane % 8 + lane / 16 * 8, 2 * step + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < M; ++i) {
        multiply_add<T>(s[i][2 * n], left[i], right[0], right[1]);
        multiply_add<T>(s[i][2 * n + 1], left[i], right[2], right[3]);
      }
    }
  }
}

/// sums += w b, for N rows of tile b and weights w (16 M, N), as a product left them.
template <class T, int D, int M, int N> __device__ __forceinline__ void accumulate(float (&sums)[M][D / 8][4],
                                                                                   const float (&w)[M][N / 8][4],
                                                                                   const T* b, int columns) {
  const int lane = int(threadIdx.x) % 32;
#pragma unroll
  for (int step = 0; step < N / 16; ++step) {
    uint32_t left[M][4];
#pragma unroll
    for (int i = 0; i < M; ++i)
#pragma unroll
      for (int r = 0; r < 4; ++r)
        left[i][r] = pair_of<T>(w[i][2 * step + r / 2][r % 2 * 2], w[i][2 * step + r / 2][r % 2 * 2 + 1]);
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      if (n * 16 >= columns) break;
      uint32_t right[4];
      load_matrices<true>(right, b + place<D>(16 * step + lane % 16, 2 * n + lane / 16));
#pragma unroll
      for (int i = 0; i < M; ++i) {
        multiply_add<T>(sums[i][2 * n], left[i], right[0], right[1]);
        multiply_add<T>(sums[i][2 * n + 1], left[i], right[2], right[3]);
      }
    }
  }
}

/// Writes x, 16 M rows from row0 on, through the warp's own rows of a tile: in whole packs.
template <class T, int D, int M>
__device__ void store_rows(T* tile, int row, const float (&x)[M][D / 8][4], const Matrix& to, int row0) {
  const int lane = int(threadIdx.x) % 32;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<uint32_t*>(tile + place<D>(row + 16 * i + 8 * half + lane / 4, n) + lane % 4 * 2) =
            pair_of<T>(x[i][n][2 * half], x[i][n][2 * half + 1]);
  __syncwarp();
  for (int e = lane; e < 16 * M * (D / 8); e += 32) {
    const int r = e / (D / 8), pack = e % (D / 8);
    if (row0 + r >= to.rows || pack * 8 >= to.columns) continue;
    const Pack<T, 8> v = *reinterpret_cast<const Pack<T, 8>*>(tile + place<D>(row + r, pack));
    T* const at = static_cast<T*>(const_cast<void*>(to.data)) + to.offset + (row0 + r) * to.row + pack * 8 * to.column;
    if (to.pack == 8) {
      *reinterpret_cast<Pack<T, 8>*>(at) = v;
    } else {
      for (int i = 0; i < 8; ++i)
        if (pack * 8 + i < to.columns) at[i * to.column] = v.of[i];
    }
  }
}

/// Element e of the four that a lane has of 16 x 8 scores, whose element 0 is of query i and key j; kFlipped: rows are keys.
template <bool kFlipped> __device__ __forceinline__ int query_of(int i, int e) {
  return i + (kFlipped ? e % 2 : e / 2 * 8);
}
template <bool kFlipped> __device__ __forceinline__ int key_of(int j, int e) {
  return j + (kFlipped ? e / 2 * 8 : e % 2);
}

/// What dropout multiplies these four by. Where blocks of random words do not straddle queries, each lane makes one, for the lanes that share it.
template <bool kFlipped>
__device__ __forceinline__ void draw(float (&factor)[4], const Problem<float>& p, int64_t b, int64_t h, int i, int j) {
  const int lane = int(threadIdx.x) % 32;
  uint32_t word[4];
  if (p.keys % 4 != 0) {
    for (int e = 0; e < 4; ++e) word[e] = p.word(b, h, query_of<kFlipped>(i, e), key_of<kFlipped>(j, e));
  } else if constexpr (
      kFlipped) {  // lanes 4 apart: lane r of such four makes the block of element r, of which each wants a word
    const int r = lane / 4 % 4;
    const Philox::Block w = p.words(b, h, query_of<true>(i, r), key_of<true>(j, r));
#pragma unroll
    for (int e = 0; e < 4; ++e) word[e] = w.word[e];
    const bool odd = r % 2, high = r / 2;
    const uint32_t x = shuffle_xor(odd ? word[0] : word[1], 4), y = shuffle_xor(odd ? word[2] : word[3], 4);
    (odd ? word[0] : word[1]) = x, (odd ? word[2] : word[3]) = y;
    const uint32_t u = shuffle_xor(high ? word[0] : word[2], 8), v = shuffle_xor(high ? word[1] : word[3], 8);
    (high ? word[0] : word[2]) = u, (high ? word[1] : word[3]) = v;
  } else {  // two neighbours: the even one makes that of its first row, the odd one of the second
    const bool odd = lane % 2;
    const Philox::Block w = p.words(b, h, query_of<false>(i, odd ? 2 : 0), j);
    const uint32_t x = shuffle_xor(odd ? w.word[0] : w.word[2], 1), y = shuffle_xor(odd ? w.word[1] : w.word[3], 1);
    word[0] = odd ? x : w.word[0], word[1] = odd ? y : w.word[1];
    word[2] = odd ? w.word[2] : x, word[3] = odd ? w.word[3] : y;
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) factor[e] = word[e] >> 8 >= p.limit ? p.stay : 0;
}

/// A block of keys by queries that no mask, no end and no diagonal touches: rows from i0 and j0 on.
__device__ __forceinline__ bool is_whole(const Problem<float>& p, int i0, int j0, int keys) {
  return !p.mask.data && j0 + keys <= p.keys && (!p.causal || j0 + keys - 1 <= i0 + p.past);
}
/// The score of a product, times log2(e).
__device__ __forceinline__ float score2(const Problem<float>& p, bool whole, float product, int64_t b, int64_t h, int i,
                                        int j) {
  return whole ? product * (p.scale * kLog2E) : p.score(product, b, h, i, j) * kLog2E;
}

}  // namespace tapir::inline v0::cuda_kernels
