#pragma once
#include "launch.h"
#include "layout.h"
#include "reduce_ops.h"

// Note [Reductions on a GPU]
// x is seen as outputs (`kept` dimensions) by elements of one output (`gone`). Where an output's elements lie closer together than the
// outputs do, a group of 1 to 32 threads or a whole block takes a row of them; else neighbouring threads take neighbouring outputs, and
// the threads above them share the elements. With few outputs the elements are cut into chunks, by shape alone, whose states a second
// kernel joins: results are the same in every run.
namespace tapir::inline v0::cuda_kernels {

struct ReducePlan {
  Layout<2> kept;  // operands: x, out
  Layout<1> gone;
  int64_t chunk = 0;  // elements
  int64_t chunks = 1;
  int lanes = 1;  // rows: threads for one
  void* out = nullptr;
  DType dtype = kFloat32;
  void* states = nullptr;  // (output, chunk), where there are several chunks

  TAPIR_HD int64_t place(int64_t i) const {
    if (gone.rank <= 1) return gone.rank == 0 ? 0 : i * gone.strides[0][0];
    int64_t at[1];
    return gone.offsets(i, at), at[0];
  }
  TAPIR_HD int64_t end(int64_t c) const {
    const int64_t last = (c + 1) * chunk;
    return last < gone.numel ? last : gone.numel;
  }
};

/// Reads V neighbours of T as Compute<T> by one load of 16 bytes.
template <class T> struct PackLoad {
  static constexpr int kWidth = kPackSize<T>;
  using In = Compute<T>;
  using Raw = Pack<T, kWidth>;
  const T* data;
  __device__ Raw fetch(int64_t offset) const { return *reinterpret_cast<const Raw*>(data + offset); }
  __device__ static In value(const Raw& raw, int v) { return widen(raw.of[v]); }
  __device__ In one(int64_t offset) const { return widen(data[offset]); }
};
/// Reads single elements of any dtype as C.
template <class C> struct AnyLoad {
  static constexpr int kWidth = 1;
  using In = C;
  using Raw = C;
  const void* data;
  DType dtype;
  __device__ Raw fetch(int64_t offset) const { return load_any<C>(data, offset, dtype); }
  __device__ static In value(const Raw& raw, int) { return raw; }
  __device__ In one(int64_t offset) const { return fetch(offset); }
};
/// Reads states that the first stage wrote.
template <class S> struct StateLoad {
  static constexpr int kWidth = 1;
  using In = S;
  using Raw = S;
  const S* data;
  __device__ Raw fetch(int64_t offset) const { return data[offset]; }
  __device__ static In value(const Raw& raw, int) { return raw; }
  __device__ In one(int64_t offset) const { return fetch(offset); }
};

inline constexpr int kReduceThreads = 256, kLoadsInFlight = 4;

template <class Op> __device__ void finish_output(const Op& op, const ReducePlan& plan, typename Op::State s,
                                                  int64_t output, int64_t chunk, int64_t place) {
  if (plan.chunks > 1) static_cast<typename Op::State*>(plan.states)[output * plan.chunks + chunk] = s;
  else store_any(plan.out, place, plan.dtype, op.result(s));
}

/// The elements [first, last) of the output at `base`: `lanes` threads take packs in turn, this one those from `lane` on.
template <class Op, class Load> __device__ typename Op::State reduce_run(const Op& op, const Load& load,
                                                                         const ReducePlan& plan, int64_t base,
                                                                         int64_t first, int64_t last, int lane) {
  constexpr int V = Load::kWidth, U = kLoadsInFlight;
  typename Op::State s[V];
  for (int v = 0; v < V; ++v) s[v] = op.start();
  const int64_t step = int64_t(plan.lanes) * V;
  for (int64_t i = first + int64_t(lane) * V; i < last; i += step * U) {
    typename Load::Raw raw[U];
#pragma unroll
    for (int u = 0; u < U; ++u)
      if (i + u * step + V <= last) raw[u] = load.fetch(base + plan.place(i + u * step));
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int64_t at = i + u * step;
      if (at + V <= last) {
        typename Op::In x[V];
        for (int v = 0; v < V; ++v) x[v] = Load::value(raw[u], v);
        op.add(s, x, at);
      } else {
        for (int64_t k = at; k < last; ++k) {
          const typename Op::In x[1] = {load.one(base + plan.place(k))};
          typename Op::State one[1] = {s[0]};
          op.add(one, x, k);
          s[0] = one[0];
        }
      }
    }
  }
  for (int v = 1; v < V; ++v) s[0] = op.join(s[0], s[v]);
  return s[0];
}

template <class Op, class Load> __global__ void reduce_rows(const Op op, const Load load, const ReducePlan plan) {
  using State = typename Op::State;
  __shared__ State shared[32];
  const auto join = [&op](State a, State b) { return op.join(a, b); };
  const int lane = int(threadIdx.x) % plan.lanes, row = int(threadIdx.x) / plan.lanes,
            rows = int(blockDim.x) / plan.lanes;
  const int64_t jobs = plan.kept.numel * plan.chunks;
  for (int64_t job0 = int64_t(blockIdx.x) * rows; job0 < jobs; job0 += int64_t(gridDim.x) * rows) {
    const int64_t job = job0 + row, output = job / plan.chunks, c = job % plan.chunks;
    State s = op.start();
    int64_t at[2] = {0, 0};
    if (job < jobs) {
      plan.kept.offsets(output, at);
      s = reduce_run(op, load, plan, at[0], c * plan.chunk, plan.end(c), lane);
    }
    s = plan.lanes > 32 ? block_fold(s, op.start(), shared, join) : warp_fold(s, join, plan.lanes);
    if (job < jobs && lane == 0) finish_output(op, plan, s, output, c, at[1]);
  }
}

/// Blocks of (columns, rows) threads; a thread takes kWidth outputs side by side.
template <class Op, class Load> __global__ void reduce_columns(const Op op, const Load load, const ReducePlan plan) {
  using State = typename Op::State;
  constexpr int V = Load::kWidth, U = kLoadsInFlight;
  __shared__ State shared[kReduceThreads];
  const int64_t width = int64_t(blockDim.x) * V, tiles = (plan.kept.numel + width - 1) / width;
  for (int64_t job = blockIdx.x; job < tiles * plan.chunks; job += gridDim.x) {
    const int64_t c = job / tiles, column = job % tiles * width + int64_t(threadIdx.x) * V, last = plan.end(c);
    const bool live = column < plan.kept.numel;
    State s[V];
    for (int v = 0; v < V; ++v) s[v] = op.start();
    int64_t at[2] = {0, 0};
    if (live) plan.kept.offsets(column, at);
    for (int64_t i = c * plan.chunk + threadIdx.y; live && i < last; i += int64_t(blockDim.y) * U) {
      typename Load::Raw raw[U];
#pragma unroll
      for (int u = 0; u < U; ++u)
        if (i + u * int64_t(blockDim.y) < last) raw[u] = load.fetch(at[0] + plan.place(i + u * int64_t(blockDim.y)));
#pragma unroll
      for (int u = 0; u < U; ++u) {
        if (i + u * int64_t(blockDim.y) >= last) break;
        typename Op::In x[V];
        for (int v = 0; v < V; ++v) x[v] = Load::value(raw[u], v);
        op.add(s, x, i + u * int64_t(blockDim.y));
      }
    }
    for (int v = 0; v < V; ++v) {
      State* const mine = shared + threadIdx.y * blockDim.x + threadIdx.x;
      *mine = s[v];
      __syncthreads();
      for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
        if (threadIdx.y < half) *mine = op.join(*mine, mine[half * blockDim.x]);
        __syncthreads();
      }
      if (live && threadIdx.y == 0)
        finish_output(op, plan, *mine, column + v, c, at[1] + v * (plan.kept.rank ? plan.kept.strides[1][0] : 0));
      __syncthreads();
    }
  }
}

}  // namespace tapir::inline v0::cuda_kernels
