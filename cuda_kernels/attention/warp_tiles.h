#pragma once
#include <cuda_pipeline_primitives.h>
#include <warp_matrix.h>

#include "../swizzle.h"
#include "problem.h"

// Note [Attention on tensor cores]
// As in Note [Attention by tiles], for 16-bit floats, with tensor cores (Dao 2023, arXiv 2307.08691). Each warp of a block owns 16 or 32 rows of
// its tile; tiles of the other side come by asynchronous copies, one ahead. Scores never leave the registers: as a product leaves them, and
// rounded to 16 bits, they are the left operand of the next product.
// Backward: two passes, whose rows are keys (dk, dv) and queries (dq). Seven products where one pass with atomic additions has five, but
// every sum has one owner and a fixed order. Wide heads have a pass each for dk and dv, eight products: registers hold one such sum.
// float32: the same tiles and the same places of elements. Products are multiplications and additions; a lane reads 18 packs of 16 bytes from
// shared memory for 128 of them in scores, and 6 packs or words for 32 in sums of 64 columns. Where products may be in TF32
// (matmul_allow_tf32), T is Tf32, and they are tensor cores'.
// A few queries of many keys are few tiles: blocks share the keys of one (KeySplit), and a second kernel joins what they leave.
namespace tapir::inline v0::cuda_kernels {

constexpr int kWarps = 4, kWarpThreads = 32 * kWarps;
constexpr float kLog2E = 1.44269504f;
/// Rows of a tile that is streamed: as many as let two tiles of D columns, twice, stand beside `own` tiles of the block's rows in 99 KiB.
template <class T, int D, int kOwn>
constexpr int kStream = (sizeof(T) * D > 256 ? 32 : 64) / (sizeof(T) * D > 128 ? kOwn : 1);

/// R rows of a matrix from row0 on, zeros beyond it. They are there after a wait and a barrier.
template <class T, int D, int R> __device__ __forceinline__ void load_tile(T* tile, const Matrix& m, int row0) {
  constexpr int P = kPackSize<T>, kWide = D < 16 * P ? D : 16 * P;  // columns that the threads copy at once
  constexpr int kPacks = kWide / P, kRows = kWarpThreads / kPacks;  // packs of a row, and rows
  static_assert(R % kRows == 0 && kRows % 8 == 0);                  // so that a thread's packs are kRows D apart
  const int thread = thread_here(), row = thread / kPacks;
  const T* const base = static_cast<const T*>(m.data) + m.offset;
#pragma unroll
  for (int c = 0; c < D; c += kWide) {
    const int column = c + thread % kPacks * P;
    const int rows = column < m.columns ? m.rows - row0 - row : 0;  // that there are from this thread's first on
    const T* from = base + (row0 + row) * m.row + column * m.column;
    T* const to = tile + place<D, P>(row, column / P);
    if (m.pack >= P) {
#pragma unroll
      for (int r = 0; r < R; r += kRows, from += kRows * m.row)
        copy_async(to + r * D, r < rows ? from : base, r < rows);
      continue;
    }
    for (int r = 0; r < R; r += kRows, from += kRows * m.row) {
      Pack<T, P> v{};
      for (int i = 0; i < P; ++i)
        if (r < rows && column + i < m.columns) v.of[i] = from[i * m.column];
      *reinterpret_cast<Pack<T, P>*>(to + r * D) = v;
    }
  }
}

/// What a lane has of four 8 x 8 matrices, of 8 x 4 numbers of 32 bits; `row`: as load_matrices() wants it.
template <class T> __device__ __forceinline__ void load_operand(uint32_t (&to)[4], const T* row) {
  load_matrices<false>(to, row);
  if constexpr (std::is_same_v<T, Tf32>)
    for (uint32_t& x : to) x = tf32_of(__uint_as_float(x));
}
/// s += a b^T by tensor cores: 16 M rows of tile a from `row` on, N rows of tile b.
template <int D, int M, int N, class T>
requires(!std::is_same_v<T, float>) __device__ __forceinline__
    void add_product(float (&s)[M][N / 8][4], const T* a, int row, const T* b) {
  constexpr int P = kPackSize<T>;
  const int lane = thread_here() % 32;
#pragma unroll(D > 128 ? 1 : 2)  // more would hoist loads of shared memory until registers run out
  for (int step = 0; step < D / (2 * P); ++step) {
    uint32_t left[M][4];
#pragma unroll
    for (int i = 0; i < M; ++i)
      load_operand<T>(left[i], a + place<D, P>(row + 16 * i + lane % 16, 2 * step + lane / 16));
#pragma unroll
    for (int n = 0; n < N / 16; ++n) {
      uint32_t right[4];
      load_operand<T>(right, b + place<D, P>(16 * n + lane % 8 + lane / 16 * 8, 2 * step + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < M; ++i) {
        multiply_add<T>(s[i][2 * n], left[i], right[0], right[1]);
        multiply_add<T>(s[i][2 * n + 1], left[i], right[2], right[3]);
      }
    }
  }
}
/// In float32: a lane has the elements that tensor cores would leave it.
template <int D, int M, int N>
__device__ __forceinline__ void add_product(float (&s)[M][N / 8][4], const float* a, int row, const float* b) {
  using Four = Pack<float, 4>;
  const int lane = thread_here() % 32;
  const auto four = [](const float* tile, int r, int pack) {
    return *reinterpret_cast<const Four*>(tile + place<D, 4>(r, pack));
  };
#pragma unroll 1  // more would take registers that sums need
  for (int pack = 0; pack < D / 4; ++pack) {
    Four left[M][2];
#pragma unroll
    for (int i = 0; i < 2 * M; ++i) left[i / 2][i % 2] = four(a, row + 8 * i + lane / 4, pack);
#pragma unroll
    for (int j = 0; j < N / 4; ++j) {
      const Four right = four(b, j / 2 * 8 + lane % 4 * 2 + j % 2, pack);
#pragma unroll
      for (int k = 0; k < 4; ++k)
#pragma unroll
        for (int i = 0; i < 2 * M; ++i) s[i / 2][j / 2][i % 2 * 2 + j % 2] += left[i / 2][i % 2].of[k] * right.of[k];
    }
  }
}
/// s = a b^T.
template <int D, int M, int N, class T>
__device__ __forceinline__ void product(float (&s)[M][N / 8][4], const T* a, int row, const T* b) {
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int n = 0; n < N / 8; ++n) s[i][n][0] = s[i][n][1] = s[i][n][2] = s[i][n][3] = 0;
  add_product<D, M, N>(s, a, row, b);
}

/// Sums [n][e] of a lane: the column of the first of two neighbours, e even.
template <class T> __device__ __forceinline__ int column_of(int n) {
  const int t = thread_here() % 4;
  return std::is_same_v<T, float> ? n / 2 * 16 + t * 4 + n % 2 * 2 : n * 8 + t * 2;
}
/// sums += w b, for N rows of tile b and weights w (16 M, N), as a product left them.
template <int D, int M, int N, class T>
requires(sizeof(T) == 2) __device__ __forceinline__
    void accumulate(float (&sums)[M][D / 8][4], const float (&w)[M][N / 8][4], const T* b) {
  const int lane = thread_here() % 32;
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
/// In TF32. What is summed over may come in any order: of eight keys a lane multiplies two neighbours, which are those whose weights it has.
template <int D, int M, int N>
__device__ __forceinline__ void accumulate(float (&sums)[M][D / 8][4], const float (&w)[M][N / 8][4], const Tf32* b) {
  const int lane = thread_here() % 32;
#pragma unroll
  for (int step = 0; step < N / 8; ++step) {
    uint32_t left[M][4];
#pragma unroll
    for (int i = 0; i < M; ++i)
#pragma unroll
      for (int r = 0; r < 4; ++r) left[i][r] = tf32_of(w[i][step][r % 2 * 2 + r / 2]);
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      uint32_t right[2];
#pragma unroll
      for (int r = 0; r < 2; ++r)
        right[r] = tf32_of(b[place<D, 4>(8 * step + lane % 4 * 2 + r, 2 * n + lane / 16) + lane / 4 % 4].value);
#pragma unroll
      for (int i = 0; i < M; ++i) multiply_add<Tf32>(sums[i][n], left[i], right[0], right[1]);
    }
  }
}
/// In float32. A row's weights lie in the four lanes that share it; each has four neighbours of 16 columns.
template <int D, int M, int N>
__device__ __forceinline__ void accumulate(float (&sums)[M][D / 8][4], const float (&w)[M][N / 8][4], const float* b) {
  using Four = Pack<float, 4>;
  const int lane = thread_here() % 32;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    float weight[M][2];
#pragma unroll
    for (int i = 0; i < 2 * M; ++i)
      weight[i / 2][i % 2] = __shfl_sync(0xffffffffu, w[i / 2][j / 8][i % 2 * 2 + j % 2], j % 8 / 2, 4);
#pragma unroll
    for (int m = 0; m < D / 16; ++m) {
      const Four right = *reinterpret_cast<const Four*>(b + place<D, 4>(j, 4 * m + lane % 4));
#pragma unroll
      for (int k = 0; k < 4; ++k)
#pragma unroll
        for (int i = 0; i < 2 * M; ++i)
          sums[i / 2][2 * m + k / 2][i % 2 * 2 + k % 2] += weight[i / 2][i % 2] * right.of[k];
    }
  }
}

/// Writes x, 16 M rows from row0 on, through the warp's own rows of a tile: in whole packs.
template <int D, int M, class T>
__device__ void store_rows(T* tile, int row, const float (&x)[M][D / 8][4], const Matrix& to, int row0) {
  constexpr int P = kPackSize<T>;
  const int lane = thread_here() % 32;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = column_of<T>(n);
        T* const at = tile + place<D, P>(row + 16 * i + 8 * half + lane / 4, column / P) + column % P;
        const float first = x[i][n][2 * half], second = x[i][n][2 * half + 1];
        if constexpr (sizeof(T) == 2) *reinterpret_cast<uint32_t*>(at) = pair_of<T>(first, second);
        else *reinterpret_cast<Pack<T, 2>*>(at) = {T(first), T(second)};
      }
  __syncwarp();
  for (int e = lane; e < 16 * M * (D / P); e += 32) {
    const int r = e / (D / P), pack = e % (D / P);
    if (row0 + r >= to.rows || pack * P >= to.columns) continue;
    const Pack<T, P> v = *reinterpret_cast<const Pack<T, P>*>(tile + place<D, P>(row + r, pack));
    T* const at = static_cast<T*>(const_cast<void*>(to.data)) + to.offset + (row0 + r) * to.row + pack * P * to.column;
    if (to.pack >= P) {
      *reinterpret_cast<Pack<T, P>*>(at) = v;
    } else {
      for (int i = 0; i < P; ++i)
        if (pack * P + i < to.columns) at[i * to.column] = v.of[i];
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

/// Does dropout keep these four? Where blocks of random words do not straddle queries, each lane makes one, for the lanes that share it.
template <bool kFlipped>
__device__ __forceinline__ void draw(bool (&kept)[4], const Problem<float>& p, int64_t b, int64_t h, int i, int j) {
  const int lane = thread_here() % 32;
  uint32_t word[4];
  if (p.keys % 4 != 0) {
#pragma unroll 1
    for (int e = 0; e < 4; ++e) {
      const uint32_t w = p.word(b, h, query_of<kFlipped>(i, e), key_of<kFlipped>(j, e));
#pragma unroll
      for (int k = 0; k < 4; ++k) word[k] = k == e ? w : word[k];
    }
  } else if constexpr (kFlipped) {
    // Lanes 4 apart: lane r of such four makes the block of element r, of which each wants a word.
    const int r = lane / 4 % 4;
    const Philox::Block w = p.words(b, h, query_of<true>(i, r), key_of<true>(j, r));
#pragma unroll
    for (int e = 0; e < 4; ++e) word[e] = w.word[e];
    const bool odd = r % 2, high = r / 2;
    const uint32_t x = shuffle_xor(odd ? word[0] : word[1], 4), y = shuffle_xor(odd ? word[2] : word[3], 4);
    (odd ? word[0] : word[1]) = x, (odd ? word[2] : word[3]) = y;
    const uint32_t u = shuffle_xor(high ? word[0] : word[2], 8), v = shuffle_xor(high ? word[1] : word[3], 8);
    (high ? word[0] : word[2]) = u, (high ? word[1] : word[3]) = v;
  } else {
    // Two neighbours: the even one makes that of its first row, the odd one that of the second.
    const bool odd = lane % 2;
    const Philox::Block w = p.words(b, h, query_of<false>(i, odd ? 2 : 0), j);
    const uint32_t x = shuffle_xor(odd ? w.word[0] : w.word[2], 1), y = shuffle_xor(odd ? w.word[1] : w.word[3], 1);
    word[0] = odd ? x : w.word[0], word[1] = odd ? y : w.word[1];
    word[2] = odd ? w.word[2] : x, word[3] = odd ? w.word[3] : y;
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) kept[e] = word[e] >> 8 >= p.limit;
}

/// A block of keys by queries that no mask, no end and no diagonal touches: rows from i0 and j0 on.
__device__ __forceinline__ bool is_whole(const Problem<float>& p, int i0, int j0, int keys) {
  return !p.mask.data && j0 + keys <= p.keys && (!p.causal || j0 + keys - 1 <= i0 + p.past);
}
/// Products become scores by add(product, i, j), which knows the mask; what comes behind the keys that the query sees
/// is hidden. No branch parts the elements, so that all of a mask's numbers are on their way at once.
template <bool kFlipped, int N, class Add>
__device__ __forceinline__ void hide(float (&s)[N][4], const Problem<float>& p, int i, int j, Add&& add) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
    __syncwarp();  // four loads of a mask at once: more take registers that products need
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int query = query_of<kFlipped>(i, e) + (kFlipped ? 8 * n : 0);
      const int key = key_of<kFlipped>(j, e) + (kFlipped ? 0 : 8 * n);
      const int diagonal = p.causal ? query + p.past + 1 : p.keys, most = diagonal < p.keys ? diagonal : p.keys;
      const int last = query < p.queries ? most : 0;
      const float score = add(s[n][e], query < p.queries ? query : 0, key < p.keys ? key : 0);
      s[n][e] = key < last ? score : kHidden<float>;
    }
  }
}
/// The same for any problem; i, j: of the lane's element 0. kMask: there may be one, which takes registers. A score is rounded before it is
/// used: less itself it is 0 in both passes, however large it is.
template <class T, bool kFlipped, bool kMask, int N>
__device__ __forceinline__ void score(float (&s)[N][4], const Problem<float>& p, bool whole, int64_t b, int64_t h,
                                      int i, int j) {
  const int64_t start = b * p.mask.batch + h * p.mask.head;
  const auto at = [&](int query, int key) { return start + query * p.mask.row + key * p.mask.column; };
  if (whole) {
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[n][e] = __fmul_rn(s[n][e], p.scale);
  } else if (!kMask || !p.mask.data) {
    hide<kFlipped>(s, p, i, j, [&](float x, int, int) { return __fmul_rn(x, p.scale); });
  } else if (p.mask_hides) {
    const bool* const mask = static_cast<const bool*>(p.mask.data);
    hide<kFlipped>(s, p, i, j,
                   [&](float x, int q, int k) { return mask[at(q, k)] ? __fmul_rn(x, p.scale) : kHidden<float>; });
  } else {
    const T* const mask = static_cast<const T*>(p.mask.data);
    hide<kFlipped>(s, p, i, j,
                   [&](float x, int q, int k) { return __fadd_rn(__fmul_rn(x, p.scale), widen(mask[at(q, k)])); });
  }
}

}  // namespace tapir::inline v0::cuda_kernels
