#include "../launch.h"
#include "warp_tiles.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

constexpr int kKeys = 64;  // of a tile

/// What a lane knows of its two rows of each 16: sums of values, the largest score so far, the sum of weights.
template <int D, int M> struct Rows {
  float sums[M][D / 8][4] = {}, top[M][2], weight[M][2] = {};
  __device__ Rows() {
#pragma unroll
    for (int i = 0; i < M; ++i) top[i][0] = top[i][1] = kHidden<float>;
  }
};

/// Products of queries from i0 and keys from j0 on become weights; what the rows have summed so far is scaled to the same largest score.
template <class T, int D, int M> __device__ __forceinline__ void weigh(Rows<D, M>& rows, float (&s)[M][kKeys / 8][4],
                                                                       const Problem<float>& p, int64_t b, int64_t h,
                                                                       int i0, int j0, bool whole) {
#pragma unroll
  for (int i = 0; i < M; ++i) {
    score<T, false, M == 1>(s[i], p, whole, b, h, i0 + 16 * i, j0);
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // rows g and g + 8 of 16
      float most = rows.top[i][half], sum = 0;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) most = ::fmaxf(most, s[i][n][e]);  // NaN does not count
      most = warp_fold(
          most, [](float a, float c) { return ::fmaxf(a, c); }, 4);
      const float shift = most == kHidden<float> ? 0 : most;  // nothing seen yet
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) sum += s[i][n][e] = power_of_2((s[i][n][e] - shift) * kLog2E);
      const float factor = power_of_2((rows.top[i][half] - shift) * kLog2E);
      rows.weight[i][half] = rows.weight[i][half] * factor + warp_fold(sum, Plus{}, 4), rows.top[i][half] = most;
#pragma unroll
      for (int n = 0; n < D / 8; ++n) rows.sums[i][n][2 * half] *= factor, rows.sums[i][n][2 * half + 1] *= factor;
    }
  }
}
template <int M> __device__ __forceinline__ void drop(float (&s)[M][kKeys / 8][4], const Problem<float>& p, int64_t b,
                                                      int64_t h, int i0, int j0) {
#pragma unroll
  for (int i = 0; i < M; ++i)
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
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

/// See Note [Attention on tensor cores]. Columns are at most D; a warp owns 16 M rows.
template <class T, int D, int M, bool kDrops> __global__ void __launch_bounds__(kWarpThreads, 2)
    warp_attention(Problem<float> p, int64_t total) {
  constexpr int R = 16 * M * kWarps;
  p.shorten();
  T *const q_tile = dynamic_shared<T>(), *const stages = q_tile + R * D;  // each of two: keys, values
  const int lane = int(threadIdx.x) % 32, row = int(threadIdx.x) / 32 * 16 * M;
  for (int64_t number = blockIdx.x; number < total; number += gridDim.x) {
    const Work work(number, p.heads, p.queries, R, 1, 1);
    const int b = int(work.b), h = int(work.head), g = int(p.group(h));
    const int row0 = work.row + row, i0 = row0 + lane / 4;
    const int seen = p.causal && work.row + R + p.past < p.keys ? work.row + R + p.past : p.keys;
    const auto fetch = [&](int j0) {
      T* const to = stages + j0 / kKeys % 2 * (2 * kKeys * D);
      load_tile<T, D, kKeys>(to, p.matrix(p.k, b, g, p.keys, p.depth), j0);
      load_tile<T, D, kKeys>(to + kKeys * D, p.matrix(p.v, b, g, p.keys, p.width), j0);
      __pipeline_commit();
    };
    load_tile<T, D, R>(q_tile, p.matrix(p.q, b, h, p.queries, p.depth), work.row);
    fetch(0);
    Rows<D, M> rows;
    for (int j0 = 0; j0 < seen; j0 += kKeys) {
      __pipeline_wait_prior(0);
      __syncthreads();
      if (j0 + kKeys < seen) fetch(j0 + kKeys);
      const T* const tiles = stages + j0 / kKeys % 2 * (2 * kKeys * D);
      const int own = j0 + lane % 4 * 2;
      float s[M][kKeys / 8][4];
      product<T, D, M, kKeys>(s, q_tile, row, tiles);
      weigh<T, D, M>(rows, s, p, b, h, i0, own, is_whole(p, row0, j0, kKeys));
      if constexpr (kDrops) drop<M>(s, p, b, h, i0, own);
      accumulate<T, D, M, kKeys>(rows.sums, s, tiles + kKeys * D);
    }
    __pipeline_wait_prior(0);
    __syncthreads();  // all copies have come, all tiles are used up
    finish<D, M>(rows, p, b, h, i0);
    store_rows<T, D, M>(q_tile, row, rows.sums, p.matrix(p.out, b, h, p.queries, p.width), row0);
    __syncthreads();
  }
}

template <class T, int D, int M> void run(Context& ctx, const Problem<float>& p) {
  constexpr int R = 16 * M * kWarps;
  const int64_t total = Work::count(p.batch, p.heads, p.queries, R, 1, 1);
  const Grid grid{dim3(unsigned(std::min<int64_t>(total, 1 << 16))), dim3(kWarpThreads),
                  sizeof(T) * D * (R + 4 * kKeys)};
  if constexpr (M == 1)
    if (p.limit) return launch(ctx, "attention", grid, warp_attention<T, D, M, true>, p, total);
  launch(ctx, "attention", grid, warp_attention<T, D, M, false>, p, total);
}
template <class T> void run(Context& ctx, const Problem<float>& p) {
  if (p.depth > 64 || p.width > 64) return run<T, 128, 1>(ctx, p);
  const bool fills = !p.mask.data && !p.limit &&
                     Work::count(p.batch, p.heads, p.queries, 128, 1, 1) >= 2 * multiprocessors(ctx.device);
  fills ? run<T, 64, 2>(ctx, p) : run<T, 64, 1>(ctx, p);
}

}  // namespace

void warp_attention(Context& ctx, const Problem<float>& p) {
  p.dtype == kFloat16 ? run<Half>(ctx, p) : run<BFloat16>(ctx, p);
}

}  // namespace tapir::inline v0::cuda_kernels
