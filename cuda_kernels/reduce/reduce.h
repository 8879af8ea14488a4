#pragma once
#include <algorithm>
#include <cstdlib>

#include "../launch.h"
#include "../layout.h"
#include "early_launch.h"
#include "reduce_ops.h"

// Note [Reductions on a GPU]
// x is seen as outputs (`kept` dimensions) by elements of one output (`gone`). Where an output's elements lie closer together than the
// outputs do, a group of 1 to 32 threads or a whole block takes a row of them; else neighbouring threads take neighbouring outputs, and
// the threads above them share the elements. With few outputs the elements are cut into chunks, by shape alone, whose states a second
// kernel joins: results are the same in every run.
namespace tapir::inline v0::cuda_kernels {

/// Of K operands that are read, and one that is written.
template <int K> struct ReducePlan {
  Layout<K + 1> kept;  // the last operand is `out`
  Layout<K> gone;
  int64_t chunk = 0;  // elements
  int64_t chunks = 1;
  int lanes = 1;  // rows: threads for one
  DType dtype = kFloat32;
  void* out = nullptr;
  void* states = nullptr;  // (output, chunk); null: results are written

  /// The offsets of element i, for an output at `base`.
  TAPIR_HD void place(int64_t i, const int64_t (&base)[K + 1], int64_t (&at)[K]) const {
    if (gone.rank > 1) {
      gone.offsets(i, at);
      for (int k = 0; k < K; ++k) at[k] += base[k];
    } else {
      for (int k = 0; k < K; ++k) at[k] = base[k] + (gone.rank == 0 ? 0 : i * gone.strides[k][0]);
    }
  }
  TAPIR_HD int64_t end(int64_t c) const {
    const int64_t last = (c + 1) * chunk;
    return last < gone.numel ? last : gone.numel;
  }
};

// How elements are read: fetch() of kWidth neighbours, and value() of one of them, which may take something of its output, Base. A load
// may also write: keep() gets the places and values of neighbours.

struct NoBase {};
/// V neighbours of T as C by one load of 16 bytes.
template <class T, class C = Compute<T>> struct PackLoad {
  static constexpr int kOperands = 1, kWidth = kPackSize<T>;
  using In = C;
  using Raw = Pack<T, kWidth>;
  using Base = NoBase;
  const T* data;
  __device__ Base base(int64_t) const { return {}; }
  __device__ Raw fetch(const int64_t (&at)[1]) const { return *reinterpret_cast<const Raw*>(data + at[0]); }
  __device__ static In value(const Raw& raw, int v, Base) { return widen(raw.of[v]); }
  __device__ In one(const int64_t (&at)[1], Base) const { return widen(data[at[0]]); }
};
/// What loads of single elements share.
template <class C> struct SingleLoad {
  static constexpr int kOperands = 1, kWidth = 1;
  using In = C;
  using Raw = C;
  using Base = NoBase;
  __device__ Base base(int64_t) const { return {}; }
  __device__ static In value(const Raw& raw, int, Base) { return raw; }
};
/// Elements of any dtype as C.
template <class C> struct AnyLoad : SingleLoad<C> {
  const void* data;
  DType dtype;
  __device__ C fetch(const int64_t (&at)[1]) const { return load_any<C>(data, at[0], dtype); }
  __device__ C one(const int64_t (&at)[1], NoBase) const { return fetch(at); }
};
/// Whether elements of any dtype are not 0.
struct TruthLoad : AnyLoad<int64_t> {
  __device__ Raw fetch(const int64_t (&at)[1]) const { return load_any<bool>(data, at[0], dtype); }
  __device__ In one(const int64_t (&at)[1], Base) const { return fetch(at); }
};
/// States that the first stage wrote.
template <class S> struct StateLoad : SingleLoad<S> {
  const S* data;
  __device__ S fetch(const int64_t (&at)[1]) const { return data[at[0]]; }
  __device__ S one(const int64_t (&at)[1], NoBase) const { return fetch(at); }
};

inline constexpr int kReduceThreads = 256;
/// Packs that a thread asks for at once: fewer where one takes many registers.
template <class Load> constexpr int loads_in_flight() {
  if constexpr (requires { Load::kInFlight; }) return Load::kInFlight;
  else return 4;
}

template <class Op, int K> __device__ void finish_output(const Op& op, const ReducePlan<K>& plan, typename Op::State s,
                                                         int64_t output, int64_t chunk, int64_t place) {
  if (plan.states) static_cast<typename Op::State*>(plan.states)[output * plan.chunks + chunk] = s;
  else if constexpr (requires { op.result(s); }) store_any(plan.out, place, plan.dtype, op.result(s));
}

template <class Load, int K, int V>
__device__ __forceinline__ void keep_values(const Load& load, const ReducePlan<K>& plan, int64_t i,
                                            const int64_t (&from)[K + 1], const typename Load::In (&x)[V]) {
  if constexpr (requires { load.keeps(); }) {
    int64_t at[K];
    if (load.keeps()) plan.place(i, from, at), load.keep(at, x);
  }
}

/// The elements [first, last) of an output: plan.lanes threads take packs in turn, this one those from `lane` on.
template <class Op, class Load, int K>
__device__ typename Op::State reduce_run(const Op& op, const Load& load, const ReducePlan<K>& plan,
                                         const int64_t (&from)[K + 1], typename Load::Base base, int64_t first,
                                         int64_t last, int lane) {
  constexpr int V = Load::kWidth, U = loads_in_flight<Load>();
  typename Op::State s[V];
  for (int v = 0; v < V; ++v) s[v] = op.start();
  const int64_t step = int64_t(plan.lanes) * V;
  int64_t at[K];
  for (int64_t i = first + int64_t(lane) * V; i < last; i += step * U) {
    typename Load::Raw raw[U];
#pragma unroll
    for (int u = 0; u < U; ++u)
      if (i + u * step + V <= last) plan.place(i + u * step, from, at), raw[u] = load.fetch(at);
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int64_t start = i + u * step;
      if (start + V <= last) {
        typename Op::In x[V];
        for (int v = 0; v < V; ++v) x[v] = load.value(raw[u], v, base);
        keep_values(load, plan, start, from, x);
        op.add(s, x, start);
      } else {
        for (int64_t k = start; k < last; ++k) {
          plan.place(k, from, at);
          const typename Op::In x[1] = {load.one(at, base)};
          keep_values(load, plan, k, from, x);
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

namespace {  // of each source alone: no part of a kernel stands where the linker keeps one of several

template <class Op, class Load, int K>
__global__ void reduce_rows(const Op op, const Load load, const ReducePlan<K> plan) {
  using State = typename Op::State;
  __shared__ State shared[32];
  const auto join = [&op](State a, State b) { return op.join(a, b); };
  const int lane = int(threadIdx.x) % plan.lanes, row = int(threadIdx.x) / plan.lanes,
            rows = int(blockDim.x) / plan.lanes;
  const int64_t jobs = plan.kept.numel * plan.chunks;
  let_next_begin(), wait_for_previous();
  for (int64_t job0 = int64_t(blockIdx.x) * rows; job0 < jobs; job0 += int64_t(gridDim.x) * rows) {
    const int64_t job = job0 + row, output = job / plan.chunks, c = job % plan.chunks;
    State s = op.start();
    int64_t at[K + 1] = {};
    if (job < jobs) {
      plan.kept.offsets(output, at);
      s = reduce_run(op, load, plan, at, load.base(output), c * plan.chunk, plan.end(c), lane);
    }
    if constexpr (std::is_empty_v<State>) continue;  // the load has written what was wanted
    else s = plan.lanes > 32 ? block_fold(s, op.start(), shared, join) : warp_fold(s, join, plan.lanes);
    if (job < jobs && lane == 0) finish_output(op, plan, s, output, c, at[K]);
  }
}

/// The elements [first, last) of kWidth outputs side by side: this thread takes every blockDim.y-th.
template <class Op, class Load, int K, int V>
__device__ void reduce_pile(const Op& op, const Load& load, const ReducePlan<K>& plan, const int64_t (&from)[K + 1],
                            int64_t column, int64_t first, int64_t last, typename Op::State (&s)[V]) {
  constexpr int U = loads_in_flight<Load>();
  typename Load::Base base[V];
  for (int v = 0; v < V; ++v) base[v] = load.base(column + v);
  const int64_t step = blockDim.y;
  int64_t at[K];
  for (int64_t i = first; i < last; i += step * U) {
    typename Load::Raw raw[U];
#pragma unroll
    for (int u = 0; u < U; ++u)
      if (i + u * step < last) plan.place(i + u * step, from, at), raw[u] = load.fetch(at);
#pragma unroll
    for (int u = 0; u < U; ++u) {
      if (i + u * step >= last) break;
      typename Op::In x[V];
      for (int v = 0; v < V; ++v) x[v] = load.value(raw[u], v, base[v]);
      keep_values(load, plan, i + u * step, from, x);
      op.add(s, x, i + u * step);
    }
  }
}

/// Blocks of (columns, rows) threads.
template <class Op, class Load, int K> __global__ void __launch_bounds__(kReduceThreads, 2)
    reduce_columns(const Op op, const Load load, const ReducePlan<K> plan) {
  using State = typename Op::State;
  constexpr int V = Load::kWidth;
  __shared__ State shared[kReduceThreads];
  const int64_t width = int64_t(blockDim.x) * V, tiles = (plan.kept.numel + width - 1) / width;
  for (int64_t job = blockIdx.x; job < tiles * plan.chunks; job += gridDim.x) {
    const int64_t c = job / tiles, column = job % tiles * width + int64_t(threadIdx.x) * V;
    const bool live = column < plan.kept.numel;
    State s[V];
    for (int v = 0; v < V; ++v) s[v] = op.start();
    int64_t at[K + 1] = {};
    if (live) {
      plan.kept.offsets(column, at);
      reduce_pile(op, load, plan, at, column, c * plan.chunk + threadIdx.y, plan.end(c), s);
    }
    for (int v = 0; v < V && !std::is_empty_v<State>; ++v) {
      State* const mine = shared + threadIdx.y * blockDim.x + threadIdx.x;
      *mine = s[v];
      __syncthreads();
      for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
        if (threadIdx.y < half) *mine = op.join(*mine, mine[half * blockDim.x]);
        __syncthreads();
      }
      if (live && threadIdx.y == 0)
        finish_output(op, plan, *mine, column + v, c, at[K] + (plan.kept.rank ? v * plan.kept.strides[K][0] : 0));
      __syncthreads();
    }
  }
}

// ---- host ----

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int power_of_two_from(int64_t n, int most) {
  int p = 1;
  while (p < most && p < n) p *= 2;
  return p;
}

/// One call: what is reduced, and how it is cut. kept, gone: the dimensions of x (and of operands beside it) that stay and that go.
template <int K> struct Reduction {
  Context& ctx;
  const char* name;
  ReducePlan<K> plan;
  bool by_rows;

  Reduction(Context& ctx, const char* name, const Layout<K + 1>& kept, const Layout<K>& gone) : ctx(ctx), name(name) {
    plan.kept = kept, plan.gone = gone, plan.chunk = gone.numel;
    const auto inner = [](const auto& layout) { return std::abs(layout.strides[0][0]); };
    by_rows = kept.rank == 0 || gone.numel == 0 || (gone.rank > 0 && inner(gone) < inner(kept));
  }

  /// Packs of `width` elements lie in one piece everywhere in operand k, which starts at `data`.
  bool packs(int k, const void* data, DType dtype, int64_t width) const {
    if (reinterpret_cast<uintptr_t>(data) % size_t(width * size_of(dtype)) != 0) return false;
    const auto whole = [k, width](const auto& layout, bool inside) {
      if (inside && (layout.rank == 0 || layout.strides[k][0] != 1)) return false;
      if (inside && layout.rank > 1 && layout.sizes[0] % width != 0) return false;
      for (int d = inside ? 1 : 0; d < layout.rank; ++d)
        if (layout.strides[k][d] % width != 0) return false;
      return true;
    };
    if (!by_rows && plan.kept.rank == 1 && plan.kept.numel % width != 0) return false;
    return whole(plan.gone, by_rows) && whole(plan.kept, !by_rows);
  }

  /// Chunks of at least `least` elements for about a thousand blocks in all.
  void cut(int64_t blocks, int64_t least, int64_t multiple) {
    const int64_t n = plan.gone.numel, most = std::max<int64_t>(1, 1024 / std::max<int64_t>(blocks, 1));
    const int64_t wanted = std::clamp<int64_t>(n / least, 1, most);
    plan.chunk = ceil_div(ceil_div(n, wanted), multiple) * multiple;
    plan.chunks = ceil_div(n, plan.chunk);
  }
  template <class Op, class Load> void run_rows(const Op& op, const Load& load) {
    const int64_t packs = ceil_div(plan.chunk, Load::kWidth);
    plan.lanes = packs > 32 * 16 ? kReduceThreads : power_of_two_from(ceil_div(packs, 4), 32);
    launch(ctx, name, early(ctx, grid_of(plan.kept.numel * plan.chunks * plan.lanes, kReduceThreads)),
           reduce_rows<Op, Load, K>, op, load, plan);
  }
  /// The states of all outputs and chunks are left in plan.states; where there is one chunk and `wants_states` is false, the results
  /// are written instead.
  template <class Op, class Load> void run_first(const Op& op, const Load& load, bool wants_states) {
    static_assert(Load::kOperands == K);
    constexpr int V = Load::kWidth;
    const int64_t outputs = plan.kept.numel;
    const int high = power_of_two_from(plan.gone.numel / 8, 8);  // few elements need no more threads above each other
    const int columns = power_of_two_from(ceil_div(outputs, V), kReduceThreads / high);
    const int rows = std::max(high, power_of_two_from(plan.gone.numel / 8, kReduceThreads / columns));
    const int64_t tiles = ceil_div(outputs, int64_t(columns) * V);
    if (plan.gone.numel == 0) plan.chunk = 1;
    else if (by_rows) cut(outputs, 4096, kReduceThreads * V);
    else cut(tiles, int64_t(rows) * 16, rows);
    if (plan.chunks > 1 || wants_states)
      plan.states = ctx.scratch_of<typename Op::State>(std::max<int64_t>(outputs * plan.chunks, 1));
    if (by_rows) return run_rows(op, load);
    const Grid grid{dim3(unsigned(std::min<int64_t>(tiles * plan.chunks, 1 << 16))),
                    dim3(unsigned(columns), unsigned(rows))};
    launch(ctx, name, grid, reduce_columns<Op, Load, K>, op, load, plan);
  }
  /// After run_first(op, load, true): one state for each output.
  template <class Op> const typename Op::State* joined(const Op& op) {
    using State = typename Op::State;
    const State* const all = static_cast<const State*>(plan.states);
    if (plan.chunks == 1) return all;
    const auto line = []<int N>(int64_t n, int64_t stride) {
      Layout<N> l;
      l.rank = 1, l.numel = l.sizes[0] = n, l.strides[0][0] = stride, l.small = n < (int64_t(1) << 31);
      if (l.small) l.dividers[0] = Divider(uint32_t(n));
      return l;
    };
    Reduction<1> second(ctx, name, line.template operator()<2>(plan.kept.numel, plan.chunks),
                        line.template operator()<1>(plan.chunks, 1));
    State* const one = ctx.scratch_of<State>(plan.kept.numel);
    second.plan.states = one;
    second.run_rows(JoinOf<Op>{op}, StateLoad<State>{{}, all});
    return one;
  }
};

}  // namespace
}  // namespace tapir::inline v0::cuda_kernels
