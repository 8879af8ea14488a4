#include "../../core/dispatch.h"
#include "../kernels.h"
#include "../layout.h"
#include "../rows.h"
#include "softmax_state.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

// Note [Softmax on a GPU]
// Lanes are the elements along one dimension, `rows` all others. A lane of neighbours stays in the registers of a group of threads
// between the passes where it fits, else it is read twice. Lanes side by side are taken by columns of threads.

template <int N> struct LaneLayout {
  Layout<N> rows;
  int64_t size;
  int64_t steps[N];
};
template <class T> inline constexpr int kItems = sizeof(T) == 8 ? 8 : 16;  // of a lane, in registers of a thread
constexpr int kMostThreads = 512, kColumns = 32, kColumnThreads = 256;

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

template <class T> __global__ void __launch_bounds__(kColumnThreads)
    softmax_columns(T* y, const T* x, const LaneLayout<2> l, bool log) {
  using C = Compute<T>;
  using State = ExpSum<C>;
  __shared__ State shared[kColumnThreads];
  for (int64_t base = int64_t(blockIdx.x) * blockDim.x; base < l.rows.numel; base += int64_t(gridDim.x) * blockDim.x) {
    const int64_t row = base + threadIdx.x, n = row < l.rows.numel ? l.size : 0;
    int64_t place[2] = {0, 0};
    if (n) l.rows.offsets(row, place);
    State s = State::nothing();
    for (int64_t k = threadIdx.y; k < n; k += blockDim.y) {
      const C v[1] = {widen(x[place[1] + k * l.steps[1]])};
      s.add(v);
    }
    s = column_fold(s, shared, typename State::Join());
    const C rest = log ? math::log(s.sum) : C(1) / s.sum;
    for (int64_t k = threadIdx.y; k < n; k += blockDim.y) {
      const C v = widen(x[place[1] + k * l.steps[1]]) - s.most;
      y[place[0] + k * l.steps[0]] = narrow<T>(log ? v - rest : exponential(v) * rest);
    }
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

template <class T> __global__ void __launch_bounds__(kColumnThreads)
    softmax_grad_columns(T* dx, const T* dy, const T* y, const LaneLayout<3> l, bool log) {
  using C = Compute<T>;
  __shared__ C shared[kColumnThreads];
  for (int64_t base = int64_t(blockIdx.x) * blockDim.x; base < l.rows.numel; base += int64_t(gridDim.x) * blockDim.x) {
    const int64_t row = base + threadIdx.x, n = row < l.rows.numel ? l.size : 0;
    int64_t place[3] = {0, 0, 0};
    if (n) l.rows.offsets(row, place);
    C sum = 0;
    for (int64_t k = threadIdx.y; k < n; k += blockDim.y) {
      const C g = widen(dy[place[1] + k * l.steps[1]]);
      sum += log ? g : g * widen(y[place[2] + k * l.steps[2]]);
    }
    sum = column_fold(sum, shared, Plus());
    for (int64_t k = threadIdx.y; k < n; k += blockDim.y) {
      const C g = widen(dy[place[1] + k * l.steps[1]]), v = widen(y[place[2] + k * l.steps[2]]);
      dx[place[0] + k * l.steps[0]] = narrow<T>(slope(g, v, sum, log));
    }
  }
}

// ---- host ----

template <int N> LaneLayout<N> lanes_along(int64_t dim, const TensorView* const (&views)[N]) {
  LaneLayout<N> l;
  TensorView others[N];
  const TensorView* pointers[N];
  l.size = views[0]->rank ? views[0]->sizes[dim] : 1;
  for (int k = 0; k < N; ++k) {
    others[k] = *views[k], pointers[k] = &others[k];
    l.steps[k] = views[k]->rank ? views[k]->strides[dim] : 1;
    if (views[k]->rank) others[k].sizes[dim] = 1;
  }
  l.rows = layout_of<N>(pointers);
  return l;
}

enum class Way { Cached, CachedPacks, Long, Columns };

template <class T, int N> Way way_of(const LaneLayout<N>& l, const TensorView* const (&views)[N]) {
  constexpr int V = kPackSize<T>;
  bool packs = l.size % V == 0;
  for (int k = 0; k < N; ++k) {
    if (l.steps[k] != 1 && l.size > 1) return Way::Columns;
    packs = packs && reinterpret_cast<uintptr_t>(views[k]->data) % 16 == 0;
    for (int d = 0; d < l.rows.rank; ++d) packs = packs && l.rows.strides[k][d] % V == 0;
  }
  if (l.size > int64_t(kItems<T>) * kMostThreads) return Way::Long;
  return packs ? Way::CachedPacks : Way::Cached;
}

/// Lanes side by side: neighbouring threads take neighbours, the others share a lane's elements.
Grid column_grid(int64_t rows, int64_t size) {
  int down = 1;
  while (down < kColumnThreads / kColumns && down * 4 < size) down *= 2;
  const int across = down == 1 ? 128 : kColumns;
  Grid grid = grid_of(rows, across);
  return grid.threads = dim3(unsigned(across), unsigned(down)), grid;
}

/// The kernels of one direction: lanes in registers by packs and one by one, lanes of any length, lanes side by side.
template <class Cached, class Long, class Columns> struct Kernels {
  Cached packs, cached;
  Long along;
  Columns columns;
};
template <class T, int N, class Cached, class Long, class Columns, class... P>
void run(Context& ctx, const char* op, const SoftmaxParams& params, const TensorView* const (&views)[N],
         const Kernels<Cached, Long, Columns>& kernels, P... pointers) {
  const LaneLayout<N> l = lanes_along<N>(params.dim, views);
  const int lanes = lanes_for(l.size, kItems<T>, kMostThreads);
  const int64_t rows = l.rows.numel;
  switch (way_of<T>(l, views)) {
    case Way::CachedPacks:
      return launch(ctx, op, row_grid(rows, lanes), kernels.packs, pointers..., l, lanes, params.log);
    case Way::Cached: return launch(ctx, op, row_grid(rows, lanes), kernels.cached, pointers..., l, lanes, params.log);
    case Way::Long: return launch(ctx, op, row_grid(rows, kMostThreads), kernels.along, pointers..., l, params.log);
    case Way::Columns: return launch(ctx, op, column_grid(rows, l.size), kernels.columns, pointers..., l, params.log);
  }
}
template <class Cached, class Long, class Columns>
Kernels<Cached, Long, Columns> kernels_of(Cached packs, Cached cached, Long along, Columns columns) {
  return {packs, cached, along, columns};
}

}  // namespace

void softmax(Context& ctx, const entry::Softmax& c) {
  if (c.x.numel() == 0) return;
  const TensorView* const views[] = {&c.y, &c.x};
  for_any_float("softmax", c.x.dtype, [&]<class T>() {
    constexpr int P = kPackSize<T>;
    const auto kernels = kernels_of(softmax_cached<T, P>, softmax_cached<T, 1>, softmax_long<T>, softmax_columns<T>);
    run<T>(ctx, "softmax", c.params, views, kernels, c.y.as<T>(), c.x.as<T>());
  });
}

void softmax_backward(Context& ctx, const entry::SoftmaxBackward& c) {
  if (c.y.numel() == 0) return;
  const TensorView* const views[] = {&c.dx, &c.dy, &c.y};
  for_any_float("softmax_backward", c.y.dtype, [&]<class T>() {
    constexpr int P = kPackSize<T>;
    const auto kernels =
        kernels_of(softmax_grad_cached<T, P>, softmax_grad_cached<T, 1>, softmax_grad_long<T>, softmax_grad_columns<T>);
    run<T>(ctx, "softmax_backward", c.params, views, kernels, c.dx.as<T>(), c.dy.as<T>(), c.y.as<T>());
  });
}

}  // namespace tapir::inline v0::cuda_kernels
