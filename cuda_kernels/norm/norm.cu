#include "norm.h"

#include <cmath>

#include "../../core/dispatch.h"
#include "../layout.h"
#include "../rows.h"

namespace tapir::inline v0::cuda_kernels {

static bool is_by_rows(const NormParams& p) { return p.op == NormOp::Layer || p.op == NormOp::Rms; }

/// A view whose rows of the last `axes` dimensions are neighbours in memory: v or, as in_row_major() has it, another.
static TensorView in_rows(Context& ctx, V v, int64_t axes, bool read) {
  TensorView row = v;
  if (!v.defined() || v.numel() == 0) return v;
  row.rank = axes;
  for (int64_t d = 0; d < axes; ++d)
    row.sizes[d] = v.sizes[v.rank - axes + d], row.strides[d] = v.strides[v.rank - axes + d];
  return row.is_contiguous() ? v : in_row_major(ctx, v, read);
}

void norm(Context& ctx, const entry::Norm& c) {
  const int64_t axes = c.params.axes;
  if (is_by_rows(c.params)) {
    const TensorView y = in_rows(ctx, c.y, axes, false), x = in_rows(ctx, c.x, axes, true);
    norm_rows(ctx, {y, c.mean, c.rstd, x, c.weight, c.bias, c.running_mean, c.running_var, c.params});
    return y.data == c.y.data ? void() : copy(ctx, {c.y, y});
  }
  norm_channels(ctx, {c.y, c.mean, c.rstd, {}, c.x, c.weight, c.bias, c.running_mean, c.running_var, {}, c.params},
                false);
}
void norm_backward(Context& ctx, const entry::NormBackward& c) {
  const int64_t axes = c.params.axes;
  if (is_by_rows(c.params)) {
    const TensorView dx = in_rows(ctx, c.dx, axes, false), dy = in_rows(ctx, c.dy, axes, true),
                     x = in_rows(ctx, c.x, axes, true);
    norm_rows_backward(ctx, {dx, c.dweight, c.dbias, dy, x, c.weight, c.mean, c.rstd, c.params});
    return dx.data == c.dx.data ? void() : copy(ctx, {c.dx, dx});
  }
  norm_channels_backward(ctx, {c.dx, c.dweight, c.dbias, {}, c.dy, c.x, {}, {}, c.weight, c.mean, c.rstd, c.params},
                         false);
}
void norm_add_backward(Context& ctx, const entry::NormAddBackward& c) {
  if (norm_rows_add_backward(ctx, c)) return;
  const auto room = [&](V like) {
    TensorView v = like;
    v.dtype = kFloat32, v.data = ctx.scratch_of<float>(like.numel());
    for (int64_t d = v.rank, step = 1; d-- > 0; step *= v.sizes[d]) v.strides[d] = step;
    return v;
  };
  const TensorView dy = c.dy.dtype == c.x.dtype ? V(c.dy) : room(c.dy), dx = c.add.defined() ? room(c.dx) : V(c.dx);
  if (dy.data != c.dy.data) copy(ctx, {dy, c.dy});
  norm_backward(ctx, {dx, c.dweight, c.dbias, dy, c.x, c.weight, c.mean, c.rstd, c.params});
  if (c.add.defined()) binary(ctx, {c.dx, c.add, dx, {BinaryOp::Add}});
  if (c.rounded.defined()) copy(ctx, {c.rounded, c.dx});
}
void norm_relu(Context& ctx, const entry::NormRelu& c) { norm_channels(ctx, c, true); }
void norm_relu_backward(Context& ctx, const entry::NormReluBackward& c) { norm_channels_backward(ctx, c, true); }

namespace {

// Note [Row norms]
// x is rows of `width` elements. Rows that packs of 16 bytes fit are kept in the registers of a group of threads: mean and variance are
// two passes over them. In the backward pass a group takes every so-many-th row, keeps the sums for the weights' gradients, its columns
// being always the same, and leaves them to a last kernel. Rows of any other strides or length are read as often as needed.

constexpr int kItems = 16, kForwardThreads = 1024, kBackwardThreads = 512, kSumThreads = 1024, kSumColumns = 8;
template <class T> inline constexpr int kRowItems = sizeof(T) == 8 ? kItems / 2 : kItems;

/// N operands whose rows are `width` neighbours.
template <int N> struct RowLayout {
  Layout<N> rows;  // in row-major order
  int64_t width = 1;

  RowLayout(int64_t axes, const TensorView* const (&views)[N]) {
    TensorView heads[N];
    const TensorView* head[N];
    for (int k = 0; k < N; ++k) heads[k] = *views[k], head[k] = &heads[k], heads[k].rank -= axes;
    for (int64_t d = 0; d < axes; ++d) width *= views[0]->sizes[heads[0].rank + d];
    rows = layout_of<N>(head, false);
  }
  bool packs(const TensorView* const (&views)[N], int64_t pack) const {
    bool fits = width % pack == 0;
    for (int k = 0; k < N; ++k) {
      fits = fits && reinterpret_cast<uintptr_t>(views[k]->data) % 16 == 0;
      for (int d = 0; d < rows.rank; ++d) fits = fits && rows.strides[k][d] % pack == 0;
    }
    return fits;
  }
};

struct RowForward {
  RowLayout<2> at;  // y, x
  Flat weight, bias, mean, rstd;
  double eps;
  bool rms;
  int lanes;
};

template <class C> __device__ void write_statistics(const RowForward& f, int64_t row, C mean, C rstd) {
  if (f.mean.data) store_float(f.mean.data, row, f.mean.dtype, mean);
  if (f.rstd.data) store_float(f.rstd.data, row, f.rstd.dtype, rstd);
}

template <class T> __global__ void __launch_bounds__(kForwardThreads)
    norm_rows_cached(T* y, const T* x, const RowForward f) {
  using C = Compute<T>;
  constexpr int V = kPackSize<T>, P = kRowItems<T> / V;
  __shared__ C shared[32];
  __shared__ Two<C> both[32];
  const C width = C(f.at.width);
  for (RowGroups g(f.lanes); g.base < f.at.rows.numel; g.next()) {
    int64_t at[2] = {0, 0};
    const int n = g.row() < f.at.rows.numel ? int(f.at.width) : 0;
    if (n) f.at.rows.offsets(g.row(), at);
    C v[P][V], mean = 0;
    Two<C> sums{C(0), C(0)};
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int i = (p * f.lanes + g.lane) * V;
      for (int k = 0; k < V; ++k) v[p][k] = C(0);
      if (i < n) load_pack<V>(x + at[1] + i, v[p]);
      for (int k = 0; k < V; ++k) mean += v[p][k];
    }
    mean = f.rms ? C(0) : group_fold(mean, C(0), shared, f.lanes, Plus()) / width;
#pragma unroll
    for (int p = 0; p < P; ++p)
      for (int k = 0; k < V; ++k) {
        const C d = v[p][k] - mean;
        if ((p * f.lanes + g.lane) * V < n) sums.a += d, sums.b += d * d;
      }
    sums = group_fold(sums, Two<C>{C(0), C(0)}, both, f.lanes, typename Two<C>::Join());
    if (f.rms) sums.a = C(0);
    const C rstd = settle_mean(sums, width, mean, f.eps);
    if (n && g.lane == 0) write_statistics(f, g.row(), mean, rstd);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int i = (p * f.lanes + g.lane) * V;
      if (i >= n) continue;
      C w[V], b[V];
      load_flat(f.weight, i, w, C(1)), load_flat(f.bias, i, b, C(0));
      for (int k = 0; k < V; ++k) v[p][k] = (v[p][k] - mean) * rstd * w[k] + b[k];
      store_pack<V>(y + at[0] + i, v[p]);
    }
  }
}

/// Rows of any length, read three times.
template <class T> __global__ void __launch_bounds__(kForwardThreads)
    norm_rows_any(T* y, const T* x, const RowForward f) {
  using C = Compute<T>;
  __shared__ C shared[32];
  __shared__ Two<C> both[32];
  const int64_t width = f.at.width;
  for (RowGroups g(f.lanes); g.base < f.at.rows.numel; g.next()) {
    int64_t at[2] = {0, 0};
    const int64_t n = g.row() < f.at.rows.numel ? width : 0;
    if (n) f.at.rows.offsets(g.row(), at);
    C mean = 0;
    Two<C> sums{C(0), C(0)};
    for (int64_t i = g.lane; i < n && !f.rms; i += f.lanes) mean += widen(x[at[1] + i]);
    mean = group_fold(mean, C(0), shared, f.lanes, Plus());
    mean = width ? mean / C(width) : C(0);
    for (int64_t i = g.lane; i < n; i += f.lanes) {
      const C d = widen(x[at[1] + i]) - mean;
      sums.a += d, sums.b += d * d;
    }
    sums = group_fold(sums, Two<C>{C(0), C(0)}, both, f.lanes, typename Two<C>::Join());
    if (f.rms) sums.a = C(0);
    const C rstd = settle_mean(sums, width ? C(width) : C(1), mean, f.eps);
    if (g.row() < f.at.rows.numel && g.lane == 0) write_statistics(f, g.row(), mean, rstd);
    for (int64_t i = g.lane; i < n; i += f.lanes) {
      C w[1], b[1];
      load_flat(f.weight, i, w, C(1)), load_flat(f.bias, i, b, C(0));
      y[at[0] + i] = narrow<T>((widen(x[at[1] + i]) - mean) * rstd * w[0] + b[0]);
    }
  }
}

// Backward. With xhat = (x - mean) rstd and g = dy weight: dx = rstd (g - avg(g) - xhat avg(g xhat)); Rms has no avg(g).

struct RowBackward {
  RowLayout<3> at;  // dy, x, dx
  Flat weight, mean, rstd;
  bool rms, wants_x;
  int lanes;
  void *dweight, *dbias;  // sums of each part of the rows (parts, width), of Compute<T>; null: not wanted
  int64_t parts;
};

/// The sums of one block's groups, by threads that all hold the same columns; one row of `to`.
template <class C, int P, int V>
__device__ void write_sums(const RowBackward& f, const RowGroups& g, const C (&sums)[P][V], C* shared, C* to) {
  const int64_t n = f.at.width;
  for (int p = 0; p < P; ++p)
    for (int k = 0; k < V; ++k) {
      const int64_t i = (int64_t(p) * f.lanes + g.lane) * V + k;
      if (i >= n) continue;
      if (g.groups == 1) to[i] = sums[p][k];
      else shared[g.group * n + i] = sums[p][k];
    }
  if (g.groups == 1) return;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    C sum = 0;
    for (int k = 0; k < g.groups; ++k) sum += shared[k * n + i];
    to[i] = sum;
  }
  __syncthreads();
}

/// x and dx are of T, dy of Y. add and rounded, which is of D, are null or lie as dx does; dx may be add.
template <class T, class Y, class D> struct RowGradients {
  T* dx;
  const Y* dy;
  const T* x;
  const T* add = nullptr;
  D* rounded = nullptr;
};

template <class T, class Y, class D> __global__ void __launch_bounds__(kBackwardThreads)
    norm_rows_grad_cached(const RowGradients<T, Y, D> of, const RowBackward f) {
  using C = Compute<T>;
  constexpr int V = kPackSize<T>, P = kRowItems<T> / V;
  __shared__ Two<C> shared[32];
  const C width = C(f.at.width);
  C dw[P][V] = {}, db[P][V] = {};
  RowGroups g(f.lanes);
  for (; g.base < f.at.rows.numel; g.next()) {
    int64_t at[3] = {0, 0, 0};
    const int64_t n = g.row() < f.at.rows.numel ? f.at.width : 0;
    if (n) f.at.rows.offsets(g.row(), at);
    const C rstd = n ? load_float<C>(f.rstd.data, g.row(), f.rstd.dtype) : C(0);
    const C mean = n && !f.rms ? load_float<C>(f.mean.data, g.row(), f.mean.dtype) : C(0);
    C d[P][V], v[P][V];  // dy weight and xhat
    Two<C> sum{C(0), C(0)};
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int64_t i = (int64_t(p) * f.lanes + g.lane) * V;
      if (i >= n) continue;
      load_pack<V>(of.dy + at[0] + i, d[p]), load_pack<V>(of.x + at[1] + i, v[p]);
      C w[V];
      load_flat(f.weight, i, w, C(1));
      for (int k = 0; k < V; ++k) {
        v[p][k] = (v[p][k] - mean) * rstd;
        dw[p][k] += d[p][k] * v[p][k], db[p][k] += d[p][k];
        d[p][k] *= w[k];
        sum.a += d[p][k], sum.b += d[p][k] * v[p][k];
      }
    }
    if (!f.wants_x) continue;
    sum = group_fold(sum, Two<C>{C(0), C(0)}, shared, f.lanes, typename Two<C>::Join());
    const C minus = f.rms ? C(0) : sum.a / width, bend = sum.b / width;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int64_t i = (int64_t(p) * f.lanes + g.lane) * V;
      if (i >= n) continue;
      C more[V] = {};
      if (of.add) load_pack<V>(of.add + at[2] + i, more);
      for (int k = 0; k < V; ++k) d[p][k] = rstd * (d[p][k] - minus - v[p][k] * bend) + more[k];
      store_pack<V>(of.dx + at[2] + i, d[p]);
      if (of.rounded) store_pack<V>(of.rounded + at[2] + i, d[p]);
    }
  }
  const int64_t row = int64_t(blockIdx.x) * f.at.width;
  if (f.dweight) write_sums(f, g, dw, dynamic_shared<C>(), static_cast<C*>(f.dweight) + row);
  if (f.dbias) write_sums(f, g, db, dynamic_shared<C>(), static_cast<C*>(f.dbias) + row);
}

template <class T> __global__ void __launch_bounds__(kForwardThreads)
    norm_rows_grad_any(T* dx, const T* dy, const T* x, const RowBackward f) {
  using C = Compute<T>;
  __shared__ C shared[32];
  const int64_t width = f.at.width;
  for (RowGroups g(f.lanes); g.base < f.at.rows.numel; g.next()) {
    int64_t at[3] = {0, 0, 0};
    const int64_t n = g.row() < f.at.rows.numel ? width : 0;
    if (n) f.at.rows.offsets(g.row(), at);
    const C rstd = n ? load_float<C>(f.rstd.data, g.row(), f.rstd.dtype) : C(0);
    const C mean = n && !f.rms ? load_float<C>(f.mean.data, g.row(), f.mean.dtype) : C(0);
    C a = 0, b = 0, w[1];
    for (int64_t i = g.lane; i < n; i += f.lanes) {
      load_flat(f.weight, i, w, C(1));
      const C d = widen(dy[at[0] + i]) * w[0];
      a += d, b += d * ((widen(x[at[1] + i]) - mean) * rstd);
    }
    a = group_fold(a, C(0), shared, f.lanes, Plus()), b = group_fold(b, C(0), shared, f.lanes, Plus());
    const C minus = f.rms ? C(0) : a / C(width), bend = b / C(width);
    for (int64_t i = g.lane; i < n; i += f.lanes) {
      load_flat(f.weight, i, w, C(1));
      const C d = widen(dy[at[0] + i]) * w[0], xhat = (widen(x[at[1] + i]) - mean) * rstd;
      dx[at[2] + i] = narrow<T>(rstd * (d - minus - xhat * bend));
    }
  }
}

/// The sums over part blockIdx.y of the rows, for layouts that the cached kernel does not take.
template <class T> __global__ void norm_rows_sums(const T* dy, const T* x, const RowBackward f) {
  using C = Compute<T>;
  const int64_t rows = f.at.rows.numel, n = f.at.width, part = blockIdx.y;
  const int64_t first = rows * part / f.parts, last = rows * (part + 1) / f.parts;
  for (const int64_t i : grid_stride(n)) {
    int64_t at[3];
    C dw = 0, db = 0;
    for (int64_t row = first; row < last; ++row) {
      f.at.rows.offsets(row, at);
      const C rstd = load_float<C>(f.rstd.data, row, f.rstd.dtype);
      const C mean = f.rms ? C(0) : load_float<C>(f.mean.data, row, f.mean.dtype);
      const C d = widen(dy[at[0] + i]);
      dw += d * ((widen(x[at[1] + i]) - mean) * rstd), db += d;
    }
    if (f.dweight) static_cast<C*>(f.dweight)[part * n + i] = dw;
    if (f.dbias) static_cast<C*>(f.dbias)[part * n + i] = db;
  }
}

/// Blocks of kSumColumns columns of dweight, and of dbias: the parts' sums of each column, added up in order.
template <class C> __global__ void __launch_bounds__(kSumThreads)
    norm_rows_finish(const RowBackward f, const Flat dweight, const Flat dbias) {
  __shared__ C shared[kSumThreads];
  const int64_t n = f.at.width;
  const C* const parts = static_cast<const C*>(blockIdx.y == 0 ? f.dweight : f.dbias);
  void* const to = blockIdx.y == 0 ? dweight.data : dbias.data;
  const DType dtype = blockIdx.y == 0 ? dweight.dtype : dbias.dtype;
  if (!parts) return;
  for (int64_t base = int64_t(blockIdx.x) * kSumColumns; base < n; base += int64_t(gridDim.x) * kSumColumns) {
    const int64_t i = base + threadIdx.x;
    C sum = 0;
#pragma unroll 4
    for (int64_t p = threadIdx.y; p < f.parts; p += blockDim.y) sum += i < n ? parts[p * n + i] : C(0);
    C* const mine = shared + threadIdx.y * kSumColumns + threadIdx.x;
    *mine = sum;
    __syncthreads();
    for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
      if (threadIdx.y < half) *mine += mine[half * kSumColumns];
      __syncthreads();
    }
    if (i < n && threadIdx.y == 0) store_float(to, i, dtype, *mine);
    __syncthreads();
  }
}

template <class T, class Y, class D> void backward_as(Context& ctx, const entry::NormBackward& c,
                                                      const RowGradients<T, Y, D>& of, RowBackward f, bool packs) {
  using C = Compute<T>;
  const char* const op = "norm_backward";
  const int64_t rows = f.at.rows.numel, width = f.at.width;
  const bool wants_sums = c.dweight.defined() || c.dbias.defined(),
             cached = packs && width <= kRowItems<T> * kBackwardThreads;
  Grid grid;
  if (cached) {
    f.lanes = lanes_for(width, kRowItems<T>, kBackwardThreads);
    grid = row_grid(rows, f.lanes);
    if (wants_sums) {  // few blocks with many rows each: what an H100 runs at once
      const int64_t groups = grid.threads.x / unsigned(f.lanes);
      grid.blocks.x = unsigned(std::clamp<int64_t>(rows / (groups * 4), 1, 132 * kBackwardThreads / grid.threads.x));
      grid.shared_bytes = groups > 1 ? size_t(groups * width) * sizeof(C) : 0;
    }
    f.parts = grid.blocks.x;
  } else {
    f.lanes = lanes_for(width, 16, kForwardThreads);
    f.parts = std::clamp<int64_t>(rows / 16, 1, 128);
  }
  if (c.dweight.defined()) f.dweight = ctx.scratch_of<C>(std::max<int64_t>(f.parts * width, 1));
  if (c.dbias.defined()) f.dbias = ctx.scratch_of<C>(std::max<int64_t>(f.parts * width, 1));
  if (cached) {
    launch(ctx, op, grid, norm_rows_grad_cached<T, Y, D>, of, f);
  } else if constexpr (std::is_same_v<T, Y>) {
    if (f.wants_x) launch(ctx, op, row_grid(rows, f.lanes), norm_rows_grad_any<T>, of.dx, of.dy, of.x, f);
    Grid sums = grid_of(width, 128);
    sums.blocks.y = unsigned(f.parts);
    if (wants_sums) launch(ctx, op, sums, norm_rows_sums<T>, of.dy, of.x, f);
  }
  if (!wants_sums) return;
  const Flat dweight = staged(ctx, c.dweight, false), dbias = staged(ctx, c.dbias, false);
  Grid finish = grid_of(width, kSumColumns);
  finish.blocks.y = 2, finish.threads = dim3(kSumColumns, unsigned(lanes_for(f.parts, 4, kSumThreads / kSumColumns)));
  launch(ctx, op, finish, norm_rows_finish<C>, f, dweight, dbias);
  unstage(ctx, c.dweight, dweight), unstage(ctx, c.dbias, dbias);
}

}  // namespace

void norm_rows(Context& ctx, const entry::Norm& c) {
  const NormParams& params = c.params;
  const TensorView* const views[] = {&c.y, &c.x};
  RowForward f{RowLayout<2>(params.axes, views),
               staged(ctx, c.weight),
               staged(ctx, c.bias),
               staged(ctx, c.mean, false),
               staged(ctx, c.rstd, false),
               params.eps,
               params.op == NormOp::Rms,
               1};
  if (f.rms) f.mean = {};
  for_any_float("norm", c.x.dtype, [&]<class T>() {
    const int64_t rows = f.at.rows.numel, width = f.at.width;
    const bool packs = f.at.packs(views, kPackSize<T>) && is_aligned(f.weight) && is_aligned(f.bias);
    f.lanes = lanes_for(width, kRowItems<T>, kForwardThreads);
    const bool cached = packs && width > 0 && width <= kRowItems<T> * kForwardThreads;
    launch(ctx, "norm", row_grid(rows, f.lanes), cached ? norm_rows_cached<T> : norm_rows_any<T>, c.y.as<T>(),
           c.x.as<T>(), f);
  });
  if (!f.rms) unstage(ctx, c.mean, f.mean);
  unstage(ctx, c.rstd, f.rstd);
}

/// run(what it comes to for the kernels, do packs of `pack` elements fit?)
template <class Run> static void with_rows(Context& ctx, const entry::NormBackward& c, int64_t pack, Run run) {
  const TensorView &dx = c.dx, &x = c.x;
  const bool wants_x = dx.defined(), rms = c.params.op == NormOp::Rms;
  const TensorView* const views[] = {&c.dy, &x, wants_x ? &dx : &x};
  const RowBackward f{RowLayout<3>(c.params.axes, views),
                      staged(ctx, c.weight),
                      rms ? Flat{} : staged(ctx, c.mean),
                      staged(ctx, c.rstd),
                      rms,
                      wants_x,
                      1,
                      nullptr,
                      nullptr,
                      1};
  run(f, f.at.packs(views, pack) && is_aligned(f.weight));
}

void norm_rows_backward(Context& ctx, const entry::NormBackward& c) {
  for_any_float("norm_backward", c.x.dtype, [&]<class T>() {
    with_rows(ctx, c, kPackSize<T>, [&](const RowBackward& f, bool packs) {
      backward_as(ctx, c, RowGradients<T, T, T>{c.dx.as<T>(), c.dy.as<T>(), c.x.as<T>()}, f, packs);
    });
  });
}

bool norm_rows_add_backward(Context& ctx, const entry::NormAddBackward& c) {
  const entry::NormBackward rows{c.dx, c.dweight, c.dbias, c.dy, c.x, c.weight, c.mean, c.rstd, c.params};
  const auto lies = [&](V v) {
    return !v.defined() || (v.is_contiguous() && reinterpret_cast<uintptr_t>(v.data) % 16 == 0);
  };
  const bool fits = c.x.dtype == kFloat32 && c.x.numel() > 0 && lies(c.dx) && lies(c.dy) && lies(c.x) && lies(c.add) &&
                    lies(c.rounded);
  bool done = false;
  if (fits)
    with_rows(ctx, rows, kPackSize<float>, [&](const RowBackward& f, bool packs) {
      if (!packs || f.at.width > kRowItems<float> * kBackwardThreads) return;
      const auto as = [&]<class Y, class D>() {
        const RowGradients<float, Y, D> of{c.dx.as<float>(), c.dy.as<Y>(), c.x.as<float>(), c.add.as<float>(),
                                           c.rounded.as<D>()};
        backward_as(ctx, rows, of, f, true), done = true;
      };
      const DType dy = c.dy.dtype, rounded = c.rounded.defined() ? c.rounded.dtype : dy;
      if (dy == kFloat32 && rounded == kFloat32) as.template operator()<float, float>();
      else if (dy == kFloat32 && rounded == kBFloat16) as.template operator()<float, BFloat16>();
      else if (dy == kFloat32 && rounded == kFloat16) as.template operator()<float, Half>();
      else if (dy == kBFloat16 && rounded == kBFloat16) as.template operator()<BFloat16, BFloat16>();
      else if (dy == kFloat16 && rounded == kFloat16) as.template operator()<Half, Half>();
    });
  return done;
}

}  // namespace tapir::inline v0::cuda_kernels
