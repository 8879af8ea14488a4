#include "../launch.h"
#include "early_launch.h"
#include "warp_tiles.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

/// What a lane knows of its two rows of each 16: sums of values, the largest score so far, the sum of weights.
template <int D, int M> struct Rows {
  float sums[M][D / 8][4] = {}, top[M][2], weight[M][2] = {};
  __device__ Rows() {
#pragma unroll
    for (int i = 0; i < M; ++i) top[i][0] = top[i][1] = kHidden<float>;
  }
};

/// Products of queries from i0 and keys from j0 on become weights; what the rows have summed so far is scaled to the same largest score.
template <class T, int D, int M, int N> __device__ __forceinline__ void weigh(Rows<D, M>& rows, float (&s)[M][N / 8][4],
                                                                              const Problem<float>& p, int64_t b,
                                                                              int64_t h, int i0, int j0, bool whole) {
#pragma unroll
  for (int i = 0; i < M; ++i) {
    score<T, false, M == 1>(s[i], p, whole, b, h, i0 + 16 * i, j0);
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // rows g and g + 8 of 16
      float most = rows.top[i][half], sum = 0;
#pragma unroll
      for (int n = 0; n < N / 8; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) most = ::fmaxf(most, s[i][n][e]);  // NaN does not count
      most = warp_fold(
          most, [](float a, float c) { return ::fmaxf(a, c); }, 4);
      const float shift = most == kHidden<float> ? 0 : most;  // nothing seen yet
#pragma unroll
      for (int n = 0; n < N / 8; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) sum += s[i][n][e] = power_of_2((s[i][n][e] - shift) * kLog2E);
      const float factor = power_of_2((rows.top[i][half] - shift) * kLog2E);
      rows.weight[i][half] = rows.weight[i][half] * factor + warp_fold(sum, Plus{}, 4), rows.top[i][half] = most;
#pragma unroll
      for (int n = 0; n < D / 8; ++n) rows.sums[i][n][2 * half] *= factor, rows.sums[i][n][2 * half + 1] *= factor;
    }
  }
}
template <int M, int N> __device__ __forceinline__ void drop(float (&s)[M][N / 8][4], const Problem<float>& p,
                                                             int64_t b, int64_t h, int i0, int j0) {
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int n = 0; n < N / 8; ++n) {
      bool kept[4];
      draw<false>(kept, p, b, h, i0 + 16 * i, j0 + 8 * n);
#pragma unroll
      for (int e = 0; e < 4; ++e) s[i][n][e] = kept[e] ? s[i][n][e] : 0;
    }
}
/// Sums become means; writes lse.
template <int D, int M>
__device__ __forceinline__ void finish(Rows<D, M>& rows, const Problem<float>& p, int64_t b, int64_t h, int i0) {
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = rows.weight[i][half], share = sum == 0 ? 0 : p.stay / sum;  // 0: a query that sees nothing
#pragma unroll
      for (int n = 0; n < D / 8; ++n) rows.sums[i][n][2 * half] *= share, rows.sums[i][n][2 * half + 1] *= share;
      const int query = i0 + 16 * i + 8 * half;
      if (p.lse && threadIdx.x % 4 == 0 && query < p.queries)
        *p.lse_at(b, h, query) = sum == 0 ? kHidden<float> : rows.top[i][half] + math::log(sum);
    }
}

/// What a block leaves of its part of the keys.
template <class T, int D, int M> __device__ __forceinline__ void leave(const Rows<D, M>& rows, const Problem<float>& p,
                                                                       const KeySplit<float>& split, int part,
                                                                       int64_t b, int64_t h, int i0) {
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = i0 + 16 * i + 8 * half;
      if (query >= p.queries) continue;
      float* const own = split.at((b * p.heads + h) * p.queries + query, part, p.width);
#pragma unroll
      for (int n = 0; n < D / 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (column_of<T>(n) + e < p.width) own[column_of<T>(n) + e] = rows.sums[i][n][2 * half + e] * p.stay;
      if (threadIdx.x % 4 == 0) own[p.width] = rows.top[i][half], own[p.width + 1] = rows.weight[i][half];
    }
}

/// See Note [Attention on tensor cores]. Columns are at most D; a warp owns 16 M rows.
template <class T, int D, int M, bool kDrops> __global__ void __launch_bounds__(kWarpThreads, 2)
    warp_attention(Problem<float> p, const KeySplit<float> split, int64_t total) {
  constexpr int R = 16 * M * kWarps, N = kStream<T, D, 1>;
  p.shorten();
  T *const q_tile = dynamic_shared<T>(), *const stages = q_tile + R * D;  // each of two: keys, values
  for (int64_t number = blockIdx.x; number < total; number += gridDim.x) {
    const Work work(number / split.count, p.heads, p.queries, R, 1, 1);
    const int b = int(work.b), h = int(work.head), g = int(p.group(h)), part = int(number % split.count);
    const int seen = p.causal && work.row + R + p.past < p.keys ? work.row + R + p.past : p.keys;
    const int share = split.share(seen, N), first = part * share, last = first + share < seen ? first + share : seen;
    const auto fetch = [&](int j0) {
      T* const to = stages + j0 / N % 2 * (2 * N * D);
      load_tile<T, D, N>(to, p.matrix(p.k, b, g, p.keys, p.depth), j0);
      load_tile<T, D, N>(to + N * D, p.matrix(p.v, b, g, p.keys, p.width), j0);
      __pipeline_commit();
    };
    load_tile<T, D, R>(q_tile, p.matrix(p.q, b, h, p.queries, p.depth), work.row);
    fetch(first);
    Rows<D, M> rows;
    for (int j0 = first; j0 < last; j0 += N) {
      __pipeline_wait_prior(0);
      __syncthreads();
      if (j0 + N < last) fetch(j0 + N);
      const T* const tiles = stages + j0 / N % 2 * (2 * N * D);
      const int lane = thread_here() % 32, row = thread_here() / 32 * 16 * M, row0 = work.row + row;
      const int i0 = row0 + lane / 4, own = j0 + lane % 4 * 2;
      float s[M][N / 8][4];
      product<D, M, N>(s, q_tile, row, tiles);
      weigh<T, D, M, N>(rows, s, p, b, h, i0, own, is_whole(p, row0, j0, N));
      if constexpr (kDrops) drop<M, N>(s, p, b, h, i0, own);
      accumulate<D, M, N>(rows.sums, s, tiles + N * D);
    }
    __pipeline_wait_prior(0);
    __syncthreads();  // all copies have come, all tiles are used up
    const int row = thread_here() / 32 * 16 * M, i0 = work.row + row + thread_here() % 32 / 4;
    if (split.count > 1) {
      leave<T, D, M>(rows, p, split, part, b, h, i0);
    } else {
      finish<D, M>(rows, p, b, h, i0);
      store_rows<D, M>(q_tile, row, rows.sums, p.matrix(p.out, b, h, p.queries, p.width), work.row + row);
    }
    __syncthreads();
  }
}

constexpr int kMostParts = 128;
/// Joins the parts of a query, always in the same order; a block to a query.
__global__ void __launch_bounds__(kMostParts) join_rows(Problem<float> p, const KeySplit<float> split) {
  __shared__ float factors[kMostParts], folds[32];
  let_next_begin(), wait_for_previous();
  const int thread = int(threadIdx.x), width = p.width;
  for (int64_t row = blockIdx.x; row < p.batch * p.heads * p.queries; row += gridDim.x) {
    const int64_t head = row / p.queries, i = row - head * p.queries;
    float top = kHidden<float>, weight = 0;
    if (thread < split.count)
      top = split.at(row, thread, width)[width], weight = split.at(row, thread, width)[width + 1];
    const float most = block_fold(top, kHidden<float>, folds, [](float a, float c) { return ::fmaxf(a, c); });
    const float shift = most == kHidden<float> ? 0 : most, factor = math::exp(top - shift);
    factors[thread] = factor;
    const float total = block_fold(weight * factor, 0.0f, folds, Plus{}), share = total == 0 ? 0 : 1 / total;
    const Matrix out = p.matrix(p.out, head / p.heads, head % p.heads, p.queries, width);
    for (int w = thread; w < width; w += kMostParts) {
      float sum = 0;
#pragma unroll 4
      for (int part = 0; part < split.count; ++part) sum += split.at(row, part, width)[w] * factors[part];
      store_float(const_cast<void*>(out.data), out.offset + i * out.row + w * out.column, p.dtype, sum * share);
    }
    if (p.lse && thread == 0)
      *p.lse_at(head / p.heads, head % p.heads, i) = total == 0 ? kHidden<float> : shift + math::log(total);
    __syncthreads();
  }
}

/// Where tiles fill less than half of the device, blocks share the keys of each, two blocks for a multiprocessor. A part has four tiles of keys or
/// more; sixteen where queries are many, for what parts leave is written and read.
KeySplit<float> split_of(Context& ctx, const Problem<float>& p, int64_t tiles, int tile_keys) {
  const int64_t wanted = 2 * multiprocessors(ctx.device) / tiles;
  const int64_t possible = p.keys / ((p.queries < 16 * kWarps ? 4 : 16) * tile_keys);
  KeySplit<float> split{wanted < 4 ? 1 : int(std::clamp<int64_t>(std::min(wanted, possible), 1, kMostParts))};
  if (split.count > 1)
    split.numbers = ctx.scratch_of<float>(p.batch * p.heads * p.queries * split.count * (p.width + 2));
  return split;
}
template <class T, int D, int M> void run(Context& ctx, const Problem<float>& p) {
  constexpr int R = 16 * M * kWarps, N = kStream<T, D, 1>;
  const int64_t tiles = Work::count(p.batch, p.heads, p.queries, R, 1, 1);
  const KeySplit<float> split = split_of(ctx, p, tiles, N);
  const int64_t total = tiles * split.count;
  const Grid grid{dim3(unsigned(std::min<int64_t>(total, 1 << 16))), dim3(kWarpThreads), sizeof(T) * D * (R + 4 * N)};
  if (M > 1 || !p.limit) launch(ctx, "attention", grid, warp_attention<T, D, M, false>, p, split, total);
  else if constexpr (M == 1) launch(ctx, "attention", grid, warp_attention<T, D, M, true>, p, split, total);
  if (split.count == 1) return;
  const int64_t rows = p.batch * p.heads * p.queries;
  launch(ctx, "attention", early(ctx, Grid{grid_of(rows, 1).blocks, dim3(kMostParts)}), join_rows, p, split);
}
template <class T> void run(Context& ctx, const Problem<float>& p) {
  const int columns = std::max(p.depth, p.width);
  if constexpr (sizeof(T) == 2)
    if (columns > 128) return run<T, 256, 1>(ctx, p);
  if (columns > 64) return run<T, 128, 1>(ctx, p);
  const bool fills = !p.mask.data && !p.limit &&
                     Work::count(p.batch, p.heads, p.queries, 128, 1, 1) >= 2 * multiprocessors(ctx.device);
  fills ? run<T, 64, 2>(ctx, p) : run<T, 64, 1>(ctx, p);
}

}  // namespace

void warp_attention(Context& ctx, const Problem<float>& p) {
  if (p.dtype == kFloat16) return run<Half>(ctx, p);
  if (p.dtype == kBFloat16) return run<BFloat16>(ctx, p);
  settings->matmul_allow_tf32.load(std::memory_order_relaxed) ? run<Tf32>(ctx, p) : run<float>(ctx, p);
}

}  // namespace tapir::inline v0::cuda_kernels
