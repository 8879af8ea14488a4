#include "../launch.h"
#include "warp_tiles.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

/// Scores s and products d = v dout^T of four elements become weights, as the forward pass dropped them, and gradients of scores, both
/// but for dropout's factor and the scale.
template <bool kFlipped, bool kDrops>
__device__ __forceinline__ void weigh(float (&s)[4], float (&d)[4], const Problem<float>& p, int64_t b, int64_t h,
                                      int i, int j, const float (&lse)[2], const float (&delta)[2]) {
  bool kept[4];
  if constexpr (kDrops) draw<kFlipped>(kept, p, b, h, i, j);
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int row = kFlipped ? e % 2 : e / 2;  // of the two queries
    const float above = s[e] - (lse[row] == kHidden<float> ? 0 : lse[row]);
    // lse, rounded, may lie below a score of the row, whose weight is 1 then; NaN stays.
    const float weight = power_of_2(above > 0 ? 0 : above * kLog2E);
    const bool keeps = !kDrops || kept[e];
    s[e] = keeps ? weight : 0;
    // A hidden key's value may be anything.
    d[e] = weight == 0 ? 0 : weight * ((keeps ? d[e] * p.stay : 0) - delta[row]);
  }
}

/// lse and delta of N queries.
template <int N> __device__ void load_numbers(float* to, const Problem<float>& p, int64_t b, int64_t h, int i0) {
  for (int e = int(threadIdx.x); e < 2 * N; e += kWarpThreads) {
    const int i = i0 + e % N, query = i < p.queries ? i : 0;
    const float* const from = e < N ? p.lse_at(b, h, query) : p.delta + (b * p.heads + h) * p.queries + query;
    __pipeline_memcpy_async(to + e, from, 4, i < p.queries ? 0 : 4);
  }
}

/// dk and dv of 64 keys of a group; columns are at most D.
template <class T, int D, bool kDk, bool kDv, bool kDrops> __global__ void __launch_bounds__(kWarpThreads, 2)
    warp_attention_keys(Problem<float> p, int64_t total) {
  constexpr int R = 16 * kWarps, kOwn = kDk ? 2 : 1, N = kStream<T, D, kOwn>;
  T *const k_tile = dynamic_shared<T>(), *const v_tile = k_tile + (kOwn - 1) * R * D, *const stages = v_tile + R * D;
  float* const numbers = reinterpret_cast<float*>(stages + 4 * N * D);  // each of two: lse, delta
  const int lane = int(threadIdx.x) % 32, row = int(threadIdx.x) / 32 * 16, repeats = int(p.heads / p.groups);
  for (int64_t number = blockIdx.x; number < total; number += gridDim.x) {
    const Work work(number, p.groups, p.keys, R, 1, 1, p.causal);
    const int b = int(work.b), g = int(work.head);
    const int first = p.causal ? work.row / N * N : 0;  // keys are seen by queries from theirs on
    const int tiles = first < p.queries ? (p.queries - first + N - 1) / N : 0, count = tiles * repeats;
    const auto fetch = [&](int at) {
      const int h = g * repeats + at / tiles;
      const int i0 = first + at % tiles * N;
      T* const to = stages + at % 2 * (2 * N * D);
      load_tile<T, D, N>(to, p.matrix(p.q, b, h, p.queries, p.depth), i0);
      load_tile<T, D, N>(to + N * D, p.matrix(p.dout, b, h, p.queries, p.width), i0);
      load_numbers<N>(numbers + at % 2 * 2 * N, p, b, h, i0);
    };
    load_tile<T, D, R>(k_tile, p.matrix(p.k, b, g, p.keys, p.depth), work.row);
    if constexpr (kDk) load_tile<T, D, R>(v_tile, p.matrix(p.v, b, g, p.keys, p.width), work.row);
    if (count > 0) fetch(0);
    __pipeline_commit();
    float dk[1][D / 8][4] = {}, dv[1][D / 8][4] = {};
    for (int at = 0; at < count; ++at) {
      __pipeline_wait_prior(0);
      __syncthreads();
      if (at + 1 < count) fetch(at + 1);
      __pipeline_commit();
      const T *const q_tile = stages + at % 2 * (2 * N * D), *const dout_tile = q_tile + N * D;
      const float* const own = numbers + at % 2 * 2 * N;
      const int h = g * repeats + at / tiles;
      const int i0 = first + at % tiles * N, j0 = work.row + row;
      float s[1][N / 8][4], d[1][N / 8][4] = {};
      product<D, 1, N>(s, k_tile, row, q_tile);
      if constexpr (kDk) product<D, 1, N>(d, v_tile, row, dout_tile);
      score<T, true, true>(s[0], p, is_whole(p, i0, j0, 16) && i0 + N <= p.queries, b, h, i0 + lane % 4 * 2,
                           j0 + lane / 4);
#pragma unroll
      for (int n = 0; n < N / 8; ++n) {
        const int i = 8 * n + lane % 4 * 2;
        const float lse[2] = {own[i], own[i + 1]}, delta[2] = {own[N + i], own[N + i + 1]};
        weigh<true, kDrops>(s[0][n], d[0][n], p, b, h, i0 + i, j0 + lane / 4, lse, delta);
      }
      if constexpr (kDv) accumulate<D, 1, N>(dv, s, dout_tile);
      if constexpr (kDk) accumulate<D, 1, N>(dk, d, q_tile);
    }
    __pipeline_wait_prior(0);
    __syncthreads();  // all copies have come, all tiles are used up
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) dk[0][n][e] *= p.scale, dv[0][n][e] *= p.stay;
    if (kDk && p.dk.data) store_rows<D, 1>(k_tile, row, dk, p.matrix(p.dk, b, g, p.keys, p.depth), work.row + row);
    if (kDv && p.dv.data) store_rows<D, 1>(v_tile, row, dv, p.matrix(p.dv, b, g, p.keys, p.width), work.row + row);
    __syncthreads();
  }
}

/// dq of 64 queries.
template <class T, int D, bool kDrops> __global__ void __launch_bounds__(kWarpThreads, 2)
    warp_attention_queries(Problem<float> p, int64_t total) {
  constexpr int R = 16 * kWarps, N = kStream<T, D, 2>;
  T *const q_tile = dynamic_shared<T>(), *const dout_tile = q_tile + R * D, *const stages = dout_tile + R * D;
  const int lane = int(threadIdx.x) % 32, row = int(threadIdx.x) / 32 * 16;
  for (int64_t number = blockIdx.x; number < total; number += gridDim.x) {
    const Work work(number, p.heads, p.queries, R, 1, 1);
    const int b = int(work.b), h = int(work.head), g = int(p.group(h));
    const int row0 = work.row + row, i = row0 + lane / 4;
    const int seen = p.causal && work.row + R < p.keys ? work.row + R : p.keys;
    const auto fetch = [&](int j0) {
      T* const to = stages + j0 / N % 2 * (2 * N * D);
      load_tile<T, D, N>(to, p.matrix(p.k, b, g, p.keys, p.depth), j0);
      load_tile<T, D, N>(to + N * D, p.matrix(p.v, b, g, p.keys, p.width), j0);
      __pipeline_commit();
    };
    load_tile<T, D, R>(q_tile, p.matrix(p.q, b, h, p.queries, p.depth), work.row);
    load_tile<T, D, R>(dout_tile, p.matrix(p.dout, b, h, p.queries, p.width), work.row);
    fetch(0);
    float lse[2] = {}, delta[2] = {}, dq[1][D / 8][4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (i + 8 * half < p.queries) {
        lse[half] = *p.lse_at(b, h, i + 8 * half);
        delta[half] = p.delta[(b * p.heads + h) * p.queries + i + 8 * half];
      }
    for (int j0 = 0; j0 < seen; j0 += N) {
      __pipeline_wait_prior(0);
      __syncthreads();
      if (j0 + N < seen) fetch(j0 + N);
      const T *const k_tile = stages + j0 / N % 2 * (2 * N * D), *const v_tile = k_tile + N * D;
      float s[1][N / 8][4], d[1][N / 8][4];
      product<D, 1, N>(s, q_tile, row, k_tile);
      product<D, 1, N>(d, dout_tile, row, v_tile);
      score<T, false, true>(s[0], p, is_whole(p, row0, j0, N), b, h, i, j0 + lane % 4 * 2);
#pragma unroll
      for (int n = 0; n < N / 8; ++n)
        weigh<false, kDrops>(s[0][n], d[0][n], p, b, h, i, j0 + 8 * n + lane % 4 * 2, lse, delta);
      accumulate<D, 1, N>(dq, d, k_tile);
    }
    __pipeline_wait_prior(0);
    __syncthreads();  // all copies have come, all tiles are used up
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (float& x : dq[0][n]) x *= p.scale;
    store_rows<D, 1>(q_tile, row, dq, p.matrix(p.dq, b, h, p.queries, p.depth), row0);
    __syncthreads();
  }
}

template <class T, int D> Grid grid_of_tiles(int64_t total, int own) {
  const int rows = own == 1 ? kStream<T, D, 1> : kStream<T, D, 2>;
  return {dim3(unsigned(std::min<int64_t>(total, 1 << 16))), dim3(kWarpThreads),
          sizeof(T) * D * (16 * kWarps * own + 4 * rows) + 4 * rows * sizeof(float)};
}
template <class T, int D, bool kDk, bool kDv> void run_keys(Context& ctx, const Problem<float>& p) {
  const int64_t total = Work::count(p.batch, p.groups, p.keys, 16 * kWarps, 1, 1);
  launch(ctx, "attention_backward", grid_of_tiles<T, D>(total, kDk ? 2 : 1),
         p.limit ? warp_attention_keys<T, D, kDk, kDv, true> : warp_attention_keys<T, D, kDk, kDv, false>, p, total);
}
template <class T, int D> void run(Context& ctx, const Problem<float>& p) {
  if constexpr (D <= (std::is_same_v<T, float> ? 64 : 128)) {
    if (p.dk.data || p.dv.data) run_keys<T, D, true, true>(ctx, p);
  } else {  // registers do not hold both sums
    if (p.dk.data) run_keys<T, D, true, false>(ctx, p);
    if (p.dv.data) run_keys<T, D, false, true>(ctx, p);
  }
  if (!p.dq.data) return;
  const int64_t total = Work::count(p.batch, p.heads, p.queries, 16 * kWarps, 1, 1);
  launch(ctx, "attention_backward", grid_of_tiles<T, D>(total, 2),
         p.limit ? warp_attention_queries<T, D, true> : warp_attention_queries<T, D, false>, p, total);
}
template <class T> void run(Context& ctx, const Problem<float>& p) {
  const int columns = std::max(p.depth, p.width);
  if constexpr (sizeof(T) == 2)
    if (columns > 128) return run<T, 256>(ctx, p);
  columns > 64 ? run<T, 128>(ctx, p) : run<T, 64>(ctx, p);
}

}  // namespace

void warp_attention_backward(Context& ctx, const Problem<float>& p) {
  if (p.dtype == kFloat16) return run<Half>(ctx, p);
  if (p.dtype == kBFloat16) return run<BFloat16>(ctx, p);
  settings->matmul_allow_tf32.load(std::memory_order_relaxed) ? run<Tf32>(ctx, p) : run<float>(ctx, p);
}

}  // namespace tapir::inline v0::cuda_kernels
