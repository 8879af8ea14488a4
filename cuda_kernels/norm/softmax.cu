#include "../../core/dispatch.h"
#include "../kernels.h"
#include "../reduce/reduce.h"
#include "../rows.h"
#include "../stage.h"
#include "softmax_state.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

// Note [Softmax on a GPU]
// Lanes are the elements along one dimension, `rows` all others. A lane of neighbours stays in the registers of a group of threads
// between the passes where it fits, else it is read twice. Short lanes side by side stay in the registers of columns of threads; long ones,
// and a few that are very long, are a reduction (reduce.h), whose states a second pass over the elements applies.

template <int N> struct LaneLayout {
  Layout<N> rows;
  int64_t size;
};
template <class T> inline constexpr int kItems = sizeof(T) == 8 ? 8 : 16;  // of a lane, in registers of a thread
constexpr int kMostThreads = 512;

template <class C> struct Top {
  __device__ C operator()(C a, C b) const { return b > a ? b : a; }
};

template <class T, int V> __global__ void __launch_bounds__(kMostThreads)
    softmax_cached(T* y, const T* x, const LaneLayout<2> l, int lanes, bool log) {
  using C = Compute<T>;
  constexpr int P = kItems<T> / V;
  __shared__ C shared[32];
  for (RowGroups at(lanes); at.base < l.rows.numel; at.next()) {
    int64_t place[2] = {0, 0};
    const int n = at.row() < l.rows.numel ? int(l.size) : 0;
    if (n) l.rows.offsets(at.row(), place);
    C v[P][V], top = -std::numeric_limits<C>::infinity(), sum = 0;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int i = (p * lanes + at.lane) * V;
      if (i < n) load_pack<V>(x + place[1] + i, v[p]);
      for (int k = 0; k < V; ++k) {
        if (i >= n) v[p][k] = -std::numeric_limits<C>::infinity();
        top = v[p][k] > top ? v[p][k] : top;
      }
    }
    top = group_fold(top, -std::numeric_limits<C>::infinity(), shared, lanes, Top<C>());
#pragma unroll
    for (int p = 0; p < P; ++p)
      for (int k = 0; k < V; ++k) {
        const C d = v[p][k] - top, e = exponential(d);
        if ((p * lanes + at.lane) * V < n) sum += e;
        v[p][k] = log ? d : e;
      }
    sum = group_fold(sum, C(0), shared, lanes, Plus());
    const C rest = log ? math::log(sum) : C(1) / sum;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int i = (p * lanes + at.lane) * V;
      for (int k = 0; k < V; ++k) v[p][k] = log ? v[p][k] - rest : v[p][k] * rest;
      if (i < n) store_pack<V>(y + place[0] + i, v[p]);
    }
  }
}

/// One block takes a lane of any length.
template <class T> __global__ void __launch_bounds__(kMostThreads)
    softmax_long(T* y, const T* x, const LaneLayout<2> l, bool log) {
  using C = Compute<T>;
  using State = ExpSum<C>;
  __shared__ State shared[32];
  for (int64_t row = blockIdx.x; row < l.rows.numel; row += gridDim.x) {
    int64_t place[2];
    l.rows.offsets(row, place);
    const T* const from = x + place[1];
    T* const to = y + place[0];
    State s = State::nothing();
    for_packs<kPackSize<T>>(l.size, head_of(from), [&]<int W>(int64_t i) {
      C v[W];
      load_pack<W>(from + i, v);
      s.add(v);
    });
    s = block_fold(s, State::nothing(), shared, typename State::Join());
    const C rest = log ? math::log(s.sum) : C(1) / s.sum;
    for_packs<kPackSize<T>>(l.size, same_alignment(from, to) ? head_of(from) : -1, [&]<int W>(int64_t i) {
      C v[W];
      load_pack<W>(from + i, v);
      for (int k = 0; k < W; ++k) v[k] = log ? v[k] - s.most - rest : exponential(v[k] - s.most) * rest;
      store_pack<W>(to + i, v);
    });
  }
}

// Backward. dx = (dy - sum(dy y)) y, or dy - e^y sum(dy) for log.
template <class C> __device__ __forceinline__ C slope(C g, C y, C sum, bool log) {
  return log ? g - exponential(y) * sum : (g - sum) * y;
}

template <class T, int V> __global__ void __launch_bounds__(kMostThreads)
    softmax_grad_cached(T* dx, const T* dy, const T* y, const LaneLayout<3> l, int lanes, bool log) {
  using C = Compute<T>;
  constexpr int P = kItems<T> / V;
  __shared__ C shared[32];
  for (RowGroups at(lanes); at.base < l.rows.numel; at.next()) {
    int64_t place[3] = {0, 0, 0};
    const int64_t n = at.row() < l.rows.numel ? l.size : 0;
    if (n) l.rows.offsets(at.row(), place);
    C g[P][V], v[P][V], sum = 0;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int64_t i = (int64_t(p) * lanes + at.lane) * V;
      if (i >= n) continue;
      load_pack<V>(dy + place[1] + i, g[p]), load_pack<V>(y + place[2] + i, v[p]);
      for (int k = 0; k < V; ++k) sum += log ? g[p][k] : g[p][k] * v[p][k];
    }
    sum = group_fold(sum, C(0), shared, lanes, Plus());
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int64_t i = (int64_t(p) * lanes + at.lane) * V;
      if (i >= n) continue;
      for (int k = 0; k < V; ++k) v[p][k] = slope(g[p][k], v[p][k], sum, log);
      store_pack<V>(dx + place[0] + i, v[p]);
    }
  }
}

template <class T> __global__ void __launch_bounds__(kMostThreads)
    softmax_grad_long(T* dx, const T* dy, const T* y, const LaneLayout<3> l, bool log) {
  using C = Compute<T>;
  __shared__ C shared[32];
  for (int64_t row = blockIdx.x; row < l.rows.numel; row += gridDim.x) {
    int64_t place[3];
    l.rows.offsets(row, place);
    T* const to = dx + place[0];
    const T *const gs = dy + place[1], *const ys = y + place[2];
    const int64_t head = same_alignment(gs, ys) && same_alignment(gs, to) ? head_of(gs) : -1;
    C sum = 0;
    for_packs<kPackSize<T>>(l.size, head, [&]<int W>(int64_t i) {
      C g[W], v[W];
      load_pack<W>(gs + i, g), load_pack<W>(ys + i, v);
      for (int k = 0; k < W; ++k) sum += log ? g[k] : g[k] * v[k];
    });
    sum = block_fold(sum, C(0), shared, Plus());
    for_packs<kPackSize<T>>(l.size, head, [&]<int W>(int64_t i) {
      C g[W], v[W];
      load_pack<W>(gs + i, g), load_pack<W>(ys + i, v);
      for (int k = 0; k < W; ++k) v[k] = slope(g[k], v[k], sum, log);
      store_pack<W>(to + i, v);
    });
  }
}

// ---- lanes side by side, and a few very long ones: operations and a load of reduce.h. Operand 0 is written, N - 1 are read ----

template <class C, int N> struct Read { C of[N - 1]; };
template <class T, int W, int N> struct LanesLoad : SingleLoad<Compute<T>> {
  static constexpr int kOperands = N, kWidth = W;
  using In = Read<Compute<T>, N>;
  using Raw = Read<Pack<T, W>, N>;
  T* out;
  const T* in[N - 1];
  __device__ Raw fetch(const int64_t* at) const {
    Raw raw;
    for (int k = 1; k < N; ++k) raw.of[k - 1] = *reinterpret_cast<const Pack<T, W>*>(in[k - 1] + at[k]);
    return raw;
  }
  __device__ static In value(const Raw& raw, int v, NoBase) {
    In x;
    for (int k = 0; k < N - 1; ++k) x.of[k] = widen(raw.of[k].of[v]);
    return x;
  }
  __device__ In one(const int64_t* at, NoBase) const {
    In x;
    for (int k = 1; k < N; ++k) x.of[k - 1] = widen(in[k - 1][at[k]]);
    return x;
  }
};

template <class C> struct ForwardOp {
  using In = Read<C, 2>;
  using State = ExpSum<C>;
  bool log;
  __device__ State start() const { return State::nothing(); }
  template <int V> __device__ void add(State (&s)[V], const In (&x)[V], int64_t) const {
    for (int v = 0; v < V; ++v) s[v].add(x[v].of);
  }
  __device__ State join(State a, State b) const { return typename State::Join()(a, b); }
  /// What finish() takes for each element of a lane.
  __device__ State settle(State s) const { return {s.most, log ? math::log(s.sum) : C(1) / s.sum}; }
  __device__ C finish(In x, State s) const {
    return log ? x.of[0] - s.most - s.sum : exponential(x.of[0] - s.most) * s.sum;
  }
};
template <class C> struct BackwardOp {  // of dy and y
  using In = Read<C, 3>;
  using State = C;
  bool log;
  __device__ C start() const { return C(0); }
  template <int V> __device__ void add(C (&s)[V], const In (&x)[V], int64_t) const {
    for (int v = 0; v < V; ++v) s[v] += log ? x[v].of[0] : x[v].of[0] * x[v].of[1];
  }
  __device__ C join(C a, C b) const { return a + b; }
  __device__ C settle(C s) const { return s; }
  __device__ C finish(In x, C s) const { return slope(x.of[0], x.of[1], s, log); }
};

/// The second pass: a load that writes what the lanes' states make of the elements, and an operation that keeps nothing.
template <class Op, class Load> struct FinishLoad : Load {
  using In = decltype(Op().finish({}, {}));
  using Base = typename Op::State;
  Op op;
  const Base* states;
  __device__ Base base(int64_t lane) const { return op.settle(states[lane]); }
  __device__ In value(const typename Load::Raw& raw, int v, Base s) const {
    return op.finish(Load::value(raw, v, {}), s);
  }
  __device__ In one(const int64_t* at, Base s) const { return op.finish(Load::one(at, {}), s); }
  __device__ bool keeps() const { return true; }
  template <int V> __device__ void keep(const int64_t* at, const In (&y)[V]) const {
    store_pack<V>(this->out + at[0], y);
  }
};
template <class C> struct NoOp {
  using In = C;
  struct State {};
  __device__ State start() const { return {}; }
  template <int V> __device__ void add(State (&)[V], const C (&)[V], int64_t) const {}
  __device__ State join(State, State) const { return {}; }
};

/// Packs of a lane in registers of a thread: about 128 bytes of what is read.
template <int V, int K> inline constexpr int kDown = (V == 1 ? 32 : 20 - V) / K;
template <class Op, class Load, int K> __global__ void __launch_bounds__(kMostThreads, 1)
    softmax_columns(const Op op, const Load load, const ReducePlan<K> plan) {
  using State = typename Op::State;
  constexpr int V = Load::kWidth, P = kDown<V, K>;
  __shared__ State shared[V * kMostThreads];
  const int64_t width = int64_t(blockDim.x) * V;
  for (int64_t base = blockIdx.x * width; base < plan.kept.numel; base += gridDim.x * width) {
    const int64_t column = base + threadIdx.x * V, n = column < plan.kept.numel ? plan.gone.numel : 0;
    int64_t from[K + 1] = {}, at[K];
    if (n) plan.kept.offsets(column, from);
    typename Load::Raw raw[P];
    State s[V];
    for (int v = 0; v < V; ++v) s[v] = op.start();
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int64_t k = p * blockDim.y + threadIdx.y;
      if (k < n) plan.place(k, from, at), raw[p] = load.fetch(at);
    }
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (p * blockDim.y + threadIdx.y >= n) break;
      typename Op::In x[V];
      for (int v = 0; v < V; ++v) x[v] = load.value(raw[p], v, {});
      op.add(s, x, 0);
    }
    column_fold(s, shared, [&op](State a, State b) { return op.join(a, b); });
    for (int v = 0; v < V; ++v) s[v] = op.settle(s[v]);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int64_t k = p * blockDim.y + threadIdx.y;
      if (k >= n) break;
      decltype(op.finish({}, s[0])) y[V];
      for (int v = 0; v < V; ++v) y[v] = op.finish(load.value(raw[p], v, {}), s[v]);
      plan.place(k, from, at), store_pack<V>(load.out + at[0], y);
    }
  }
}

// ---- host ----

template <int N> struct Views {
  TensorView of[N];
  /// f(pointer, ...)
  template <class T, class F> auto pointers(F&& f) const {
    if constexpr (N == 2) return f(of[0].template as<T>(), of[1].template as<T>());
    else return f(of[0].template as<T>(), of[1].template as<T>(), of[2].template as<T>());
  }
};

/// Parts of the views: dimension `dim` alone, or all others.
template <int N> Views<N> parts_of(const Views<N>& views, int64_t dim, bool along) {
  Views<N> parts = views;
  for (TensorView& v : parts.of) {
    if (along) v.rank = 1, v.sizes[0] = v.sizes[dim], v.strides[0] = v.strides[dim];
    else v.sizes[dim] = 1;
  }
  return parts;
}
template <int K, int N> Layout<K> layout_of_parts(const Views<N>& parts) {
  static const TensorView none{};
  const TensorView* pointers[K];
  for (int k = 0; k < K; ++k) pointers[k] = k < N ? &parts.of[k] : &none;
  return layout_of<K>(pointers);
}

template <class Op, class Load, int N> void run_apart(Context& ctx, Reduction<N> r, const Op& op, const Load& load) {
  constexpr int V = Load::kWidth, across = V == 1 ? 32 : 8;
  const int64_t size = r.plan.gone.numel;
  if (!r.by_rows && size <= kDown<V, N> * kMostThreads / across) {
    const int down = lanes_for(size, kDown<V, N>, kMostThreads);
    Grid grid = grid_of((r.plan.kept.numel + V - 1) / V, std::max(across, 128 / down));
    grid.threads.y = unsigned(down);
    return launch(ctx, r.name, grid, softmax_columns<Op, Load, N>, op, load, r.plan);
  }
  r.run_first(op, load, true);
  using Finish = FinishLoad<Op, Load>;
  const Finish finish{load, op, r.joined(op)};
  r.run_first(NoOp<typename Finish::In>{}, finish, false);
}

/// `packs` and `cached` are kernels of lanes in registers, `along` one of long lanes. Operand 0 is written.
template <class T, class Op, int N, class Cached, class Long> void run(Context& ctx, const char* name,
                                                                       const SoftmaxParams& params, Views<N> views,
                                                                       Cached packs, Cached cached, Long along) {
  constexpr int V = kPackSize<T>;
  const int64_t dim = params.dim, size = views.of[0].sizes[dim];
  const auto step = [&](int k) { return size == 1 ? 1 : views.of[k].strides[dim]; };
  Layout<N> rest = layout_of_parts<N>(parts_of(views, dim, false));
  const bool rows = step(0) == 1, columns = !rows && rest.rank > 0 && rest.strides[0][0] == 1;
  bool alike = true, packed = size % V == 0;
  for (int k = 1; k < N; ++k) {
    if (rows ? step(k) == 1 : !columns || rest.strides[k][0] == 1) continue;
    views.of[k] = ordered_as(ctx, views.of[k], views.of[0]);
    alike = alike && step(k) == step(0);
  }
  rest = layout_of_parts<N>(parts_of(views, dim, false));
  for (int k = 0; k < N; ++k) {
    packed = packed && reinterpret_cast<uintptr_t>(views.of[k].data) % 16 == 0;
    for (int d = 0; d < rest.rank; ++d) packed = packed && rest.strides[k][d] % V == 0;
  }
  const bool one_launch = size <= int64_t(kItems<T>) * kMostThreads;
  if (!rows || !alike || (!one_launch && packed && rest.numel < 64)) {
    const Reduction<N> r(ctx, name, layout_of_parts<N + 1>(parts_of(views, dim, false)),
                         layout_of_parts<N>(parts_of(views, dim, true)));
    const Op op{params.log};
    bool wide = true;
    for (const TensorView& v : views.of) wide = wide && r.packs(int(&v - views.of), v.data, v.dtype, V);
    return views.template pointers<T>([&](auto... p) {
      wide ? run_apart(ctx, r, op, LanesLoad<T, V, N>{{}, p...}) : run_apart(ctx, r, op, LanesLoad<T, 1, N>{{}, p...});
    });
  }
  LaneLayout<N> l{rest, size};
  const int lanes = lanes_for(size, kItems<T>, kMostThreads);
  views.template pointers<T>([&](auto... p) {
    if (!one_launch) launch(ctx, name, row_grid(rest.numel, kMostThreads), along, p..., l, params.log);
    else launch(ctx, name, row_grid(rest.numel, lanes), packed ? packs : cached, p..., l, lanes, params.log);
  });
}

}  // namespace

void softmax(Context& ctx, const entry::Softmax& c) {
  if (c.x.numel() == 0) return;
  for_any_float("softmax", c.x.dtype, [&]<class T>() {
    run<T, ForwardOp<Compute<T>>>(ctx, "softmax", c.params, Views<2>{c.y, c.x}, softmax_cached<T, kPackSize<T>>,
                                  softmax_cached<T, 1>, softmax_long<T>);
  });
}

void softmax_backward(Context& ctx, const entry::SoftmaxBackward& c) {
  if (c.y.numel() == 0) return;
  for_any_float("softmax_backward", c.y.dtype, [&]<class T>() {
    run<T, BackwardOp<Compute<T>>>(ctx, "softmax_backward", c.params, Views<3>{c.dx, c.dy, c.y},
                                   softmax_grad_cached<T, kPackSize<T>>, softmax_grad_cached<T, 1>,
                                   softmax_grad_long<T>);
  });
}

}  // namespace tapir::inline v0::cuda_kernels
