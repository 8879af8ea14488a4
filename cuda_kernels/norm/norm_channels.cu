#include <cmath>

#include "../../core/dispatch.h"
#include "../reduce/reduce.h"
#include "../rows.h"
#include "norm.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

// Note [Channel norms on a GPU]
// Batch and group norm share everything: x (N, C, ...) is seen as `outer` samples of `channels` cells, with one set of statistics for each
// (sample, group): batch norm is one sample of all N with groups of one channel. Sums over x are reductions like any other (reduce.h),
// so any strides are read well. A small kernel turns them into numbers for each cell, and a last pass applies those.
// Batch norm may be followed by an addition and a relu. What calls of their own would round to T between them is rounded here too.

struct Groups {
  int64_t outer, channels, groups;
  double count;  // elements that share statistics
  __host__ __device__ int64_t per_group() const { return channels / groups; }
  __host__ __device__ int64_t cells() const { return outer * channels; }
};

Groups groups_of(V x, const NormParams& params) {
  const bool batch = params.op == NormOp::Batch;
  Groups g{batch ? 1 : x.sizes[0], x.sizes[1], batch ? x.sizes[1] : params.groups, 0};
  const double sets = double(g.outer) * double(g.groups);
  g.count = sets > 0 ? double(x.numel()) / sets : 0;
  return g;
}

/// Some dimensions of v; 1 of Group's channels within a group are named by their own size and stride.
struct Dimensions {
  TensorView view;
  explicit Dimensions(V v) : view(v) { view.rank = 0; }
  void add(int64_t size, int64_t stride) { view.sizes[view.rank] = size, view.strides[view.rank++] = stride; }
};
void add_plane(Dimensions& d, V v) {
  for (int64_t i = 2; i < v.rank; ++i) d.add(v.sizes[i], v.strides[i]);
}

/// One output for each (sample, group), in row-major order.
Reduction<1> by_groups(Context& ctx, V x, const Groups& g, bool batch) {
  Dimensions kept(x), gone(x);
  if (batch) {
    kept.add(x.sizes[1], x.strides[1]), gone.add(x.sizes[0], x.strides[0]);
  } else {
    kept.add(x.sizes[0], x.strides[0]), kept.add(g.groups, x.strides[1] * g.per_group());
    gone.add(g.per_group(), x.strides[1]);
  }
  add_plane(gone, x);
  const TensorView none{};
  return {ctx, "norm", layout_of<2>({&kept.view, &none}, false), layout_of<1>({&gone.view})};
}

/// One output for each (sample, channel), in row-major order. Operands may be absent, not the first.
Reduction<4> by_cells(Context& ctx, const TensorView* const (&views)[4], bool batch) {
  Dimensions kept[] = {Dimensions(*views[0]), Dimensions(*views[1]), Dimensions(*views[2]), Dimensions(*views[3])};
  Dimensions gone[] = {kept[0], kept[1], kept[2], kept[3]};
  for (int k = 0; k < 4; ++k) {
    V v = *views[k];
    if (!v.defined()) continue;
    (batch ? gone : kept)[k].add(v.sizes[0], v.strides[0]);
    kept[k].add(v.sizes[1], v.strides[1]);
    add_plane(gone[k], v);
  }
  const TensorView none{};
  return {ctx, "norm_backward",
          layout_of<5>({&kept[0].view, &kept[1].view, &kept[2].view, &kept[3].view, &none}, false),
          layout_of<4>({&gone[0].view, &gone[1].view, &gone[2].view, &gone[3].view})};
}

/// N operands and, last, the cell of each element; in the order in which the first operand lies in memory.
template <int N> Layout<N + 1> with_cells(const TensorView* const (&views)[N], const Groups& g, bool batch) {
  TensorView cell = *views[0];
  const TensorView* all[N + 1];
  for (int k = 0; k < N; ++k) all[k] = views[k];
  all[N] = &cell;
  for (int64_t d = 0; d < cell.rank; ++d) cell.strides[d] = d == 1 ? 1 : d == 0 && !batch ? g.channels : 0;
  return layout_of<N + 1>(all);
}
template <int N> bool packs(const Layout<N + 1>& l, const TensorView* const (&views)[N], int64_t width) {
  bool fits = l.rank > 0 && l.sizes[0] % width == 0 && (l.strides[N][0] == 0 || l.strides[N][0] == 1);
  for (int k = 0; k < N; ++k) {
    if (!views[k]->defined()) continue;
    fits = fits && l.strides[k][0] == 1 && reinterpret_cast<uintptr_t>(views[k]->data) % 16 == 0;
    for (int d = 1; d < l.rank; ++d) fits = fits && l.strides[k][d] % width == 0;
  }
  return fits;
}

// ---- forward ----

/// y = (x - mean) scale + shift; three planes with a number for each cell.
struct ForwardFinish {
  Groups g;
  Flat weight, bias, mean, rstd, shift, running_mean, running_var;
  const void* states;  // MomentsOf<C>::State of each (set of statistics, chunk); null: the running statistics
  int64_t chunks;
  void* cells;
  double eps, momentum;
};

/// A warp for each set of statistics.
template <class C> __global__ void norm_statistics(const ForwardFinish f) {
  using Op = MomentsOf<C>;
  const Op op{};
  const int lane = int(threadIdx.x) % 32;
  const int64_t sets = f.g.outer * f.g.groups, warps = int64_t(gridDim.x) * blockDim.x / 32;
  C* const means = static_cast<C*>(f.cells);
  for (int64_t set = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32; set < sets; set += warps) {
    const int64_t group = set % f.g.groups;
    C mean, variance;
    if (f.states) {
      typename Op::State s = op.start();
#pragma unroll 4
      for (int64_t c = lane; c < f.chunks; c += 32)
        s = op.join(s, static_cast<const typename Op::State*>(f.states)[set * f.chunks + c]);
      s = warp_fold(s, [&op](auto a, auto b) { return op.join(a, b); });
      mean = s.mean, variance = f.g.count > 0 ? s.squares / C(f.g.count) : C(0);
      if (lane == 0 && f.g.count > 0) {
        const auto follow = [&](const Flat& to, C value) {
          if (!to.data) return;
          const C before = load_float<C>(to.data, group, to.dtype);
          store_float(to.data, group, to.dtype, before + C(f.momentum) * (value - before));
        };
        follow(f.running_mean, mean);
        follow(f.running_var, f.g.count > 1 ? s.squares / C(f.g.count - 1) : C(0));
      }
    } else {
      mean = load_float<C>(f.running_mean.data, group, f.running_mean.dtype);
      variance = load_float<C>(f.running_var.data, group, f.running_var.dtype);
    }
    const C rstd = C(1) / std::sqrt(variance + C(f.eps));
    if (lane == 0 && f.mean.data) store_float(f.mean.data, set, f.mean.dtype, mean);
    if (lane == 0 && f.rstd.data) store_float(f.rstd.data, set, f.rstd.dtype, rstd);
    const int64_t per_group = f.g.per_group(), cells = f.g.cells();
    for (int64_t i = lane; i < per_group; i += 32) {
      const int64_t channel = group * per_group + i, cell = set * per_group + i;
      means[cell] = mean;
      means[cells + cell] = f.weight.data ? rstd * load_float<C>(f.weight.data, channel, f.weight.dtype) : rstd;
      const C shift = f.bias.data ? load_float<C>(f.bias.data, channel, f.bias.dtype) : C(0);
      means[2 * cells + cell] = shift;
      if (f.shift.data) store_float(f.shift.data, cell, f.shift.dtype, shift);
    }
  }
}

/// The numbers of V elements whose cells are neighbours (step 1; V divides their first one) or one (step 0).
template <int V, class C>
__device__ __forceinline__ void load_cells(const C* cells, int64_t at, int64_t step, C (&v)[V]) {
  if (step == 0) {
    const C one = cells[at];
    for (int k = 0; k < V; ++k) v[k] = one;
  } else {
    load_flat(Flat{const_cast<C*>(cells + at), dtype_of<C>}, 0, v, C(0));
  }
}

/// The numbers of N planes, `plane` long, for V neighbours.
template <class C, int N, int V>
__device__ __forceinline__ void load_planes(const C* cells, int64_t plane, int64_t at, int64_t step, C (&n)[N][V]) {
#pragma unroll
  for (int k = 0; k < N; ++k) load_cells(cells + k * plane, at, step, n[k]);
}

/// What follows the norm.
enum class Finish : uint8_t { Nothing, Relu, AddRelu };
template <class T, int V, Finish F>
__global__ void norm_apply(T* y, const T* x, const T* add, const Layout<4> l, const Compute<T>* cells, int64_t plane) {
  using C = Compute<T>;
  const int64_t step = l.rank ? l.strides[3][0] : 0;
  for (const int64_t i : grid_stride(l.numel, V)) {
    int64_t at[4];
    l.offsets(i, at);
    C v[V], more[V], n[3][V];
    load_pack<V>(x + at[1], v);
    if constexpr (F == Finish::AddRelu) load_pack<V>(add + at[2], more);
    load_planes(cells, plane, at[3], step, n);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      v[k] = (v[k] - n[0][k]) * n[1][k] + n[2][k];
      if constexpr (F != Finish::Nothing) v[k] = widen(narrow<T>(v[k]));
      if constexpr (F == Finish::AddRelu) v[k] = widen(narrow<T>(v[k] + more[k]));
      if constexpr (F != Finish::Nothing) v[k] = v[k] < C(0) ? C(0) : v[k];
    }
    store_pack<V>(y + at[0], v);
  }
}

template <class T, Finish F>
void apply(Context& ctx, const entry::NormRelu& c, const Groups& g, const Compute<T>* cells) {
  constexpr int V = kPackSize<T>;
  const TensorView* const views[] = {&c.y, &c.x, &c.add};
  const Layout<4> l = with_cells<3>(views, g, c.params.op == NormOp::Batch);
  const bool wide = packs<3>(l, views, V);
  launch(ctx, "norm", grid_of(wide ? l.numel / V : l.numel), wide ? norm_apply<T, V, F> : norm_apply<T, 1, F>,
         c.y.as<T>(), c.x.as<T>(), c.add.as<T>(), l, cells, g.cells());
}

template <class T> void forward_as(Context& ctx, const entry::NormRelu& c, bool relu) {
  using C = Compute<T>;
  using State = typename MomentsOf<C>::State;
  const bool batch = c.params.op == NormOp::Batch;
  const Groups g = groups_of(c.x, c.params);
  if (g.cells() == 0) return;
  ForwardFinish f{g,
                  staged(ctx, c.weight),
                  staged(ctx, c.bias),
                  staged(ctx, c.mean, false),
                  staged(ctx, c.rstd, false),
                  staged(ctx, c.shift, false),
                  staged(ctx, c.running_mean),
                  staged(ctx, c.running_var),
                  nullptr,
                  0,
                  ctx.scratch_of<C>(3 * g.cells()),
                  c.params.eps,
                  c.params.momentum};
  if (!batch || c.params.training) {
    Reduction<1> r = by_groups(ctx, c.x, g, batch);
    const MomentsOf<C> op{};
    if (r.packs(0, c.x.data, c.x.dtype, kPackSize<T>)) r.run_first(op, PackLoad<T>{c.x.as<T>()}, true);
    else r.run_first(op, AnyLoad<C>{{}, c.x.data, c.x.dtype}, true);
    f.states = static_cast<const State*>(r.plan.states), f.chunks = r.plan.chunks;
  }
  launch(ctx, "norm", grid_of(g.outer * g.groups * 32), norm_statistics<C>, f);
  unstage(ctx, c.mean, f.mean), unstage(ctx, c.rstd, f.rstd), unstage(ctx, c.shift, f.shift);
  if (f.states) unstage(ctx, c.running_mean, f.running_mean), unstage(ctx, c.running_var, f.running_var);
  const C* const cells = static_cast<const C*>(f.cells);
  if (!relu) apply<T, Finish::Nothing>(ctx, c, g, cells);
  else if (!c.add.defined()) apply<T, Finish::Relu>(ctx, c, g, cells);
  else apply<T, Finish::AddRelu>(ctx, c, g, cells);
}

// ---- backward ----

/// How it is known what the relu let through: there was none; by x and the shift that it was normalised with; by y.
enum class Mask : uint8_t { Nothing, Shift, Result };

/// dy, or what the relu let through of it, and x - mean.
template <class C> struct GradTerms { C dy, distance; };
template <class C> struct GradBase { C mean, slope, offset; };
template <class T, int W, Mask M> struct GradLoad {
  static constexpr int kOperands = 4, kWidth = W, kInFlight = M == Mask::Nothing ? 4 : 2;  // x, dy, y, dadd
  using C = Compute<T>;
  using In = GradTerms<C>;
  using Base = GradBase<C>;
  struct Raw {
    Pack<T, W> x, dy, y;
  };
  const T *x, *dy, *y;
  T* dadd;  // where it is there, dy goes to it too
  const C* cells;
  int64_t plane;
  __device__ Base base(int64_t cell) const {
    if constexpr (M == Mask::Shift) return {cells[cell], cells[plane + cell], cells[4 * plane + cell]};
    return {cells[cell], C(0), C(0)};
  }
  __device__ Raw fetch(const int64_t* at) const {
    Raw raw;
    raw.x = *reinterpret_cast<const Pack<T, W>*>(x + at[0]);
    raw.dy = *reinterpret_cast<const Pack<T, W>*>(dy + at[1]);
    if constexpr (M == Mask::Result) raw.y = *reinterpret_cast<const Pack<T, W>*>(y + at[2]);
    return raw;
  }
  __device__ static In value(const Raw& raw, int v, Base b) {
    const In in{widen(raw.dy.of[v]), widen(raw.x.of[v]) - b.mean};
    bool passes = true;
    if constexpr (M == Mask::Shift) passes = widen(narrow<T>(in.distance * b.slope + b.offset)) > C(0);
    if constexpr (M == Mask::Result) passes = widen(raw.y.of[v]) > C(0);
    return {passes ? in.dy : C(0), in.distance};
  }
  __device__ In one(const int64_t (&at)[4], Base b) const {
    using One = GradLoad<T, 1, M>;
    return One::value(One{x, dy, y, dadd, cells, plane}.fetch(at), 0, b);
  }
  __device__ bool keeps() const { return M != Mask::Nothing && dadd; }
  template <int N> __device__ void keep(const int64_t* at, const In (&in)[N]) const {
    C g[N];
    for (int k = 0; k < N; ++k) g[k] = in[k].dy;
    store_pack<N>(dadd + at[3], g);
  }
};

/// Sums of dy and dy (x - mean).
template <class C> struct GradSums {
  using In = GradTerms<C>;
  using State = GradTerms<C>;
  __device__ State start() const { return {C(0), C(0)}; }
  template <int V> __device__ void add(State (&s)[V], const In (&x)[V], int64_t) const {
    for (int v = 0; v < V; ++v) s[v].dy += x[v].dy, s[v].distance += x[v].dy * x[v].distance;
  }
  __device__ State join(State a, State b) const { return {a.dy + b.dy, a.distance + b.distance}; }
};

/// dx = slope dy + bend (x - mean) + shift; planes with a number for each cell: mean, slope, bend, shift and, for a Mask::Shift, what the
/// forward pass added.
struct BackwardFinish {
  Groups g;
  Flat weight, mean, rstd, offset, dweight, dbias;
  const void* states;  // GradTerms of each (cell, chunk); null: no sums are wanted
  int64_t chunks;
  void* cells;
  bool fixed;  // statistics that do not depend on x
};

template <class C> __global__ void norm_cell_means(const BackwardFinish f) {
  const int64_t cells = f.g.cells();
  C* const to = static_cast<C*>(f.cells);
  for (const int64_t i : grid_stride(cells)) {
    to[i] = load_float<C>(f.mean.data, i / f.g.per_group(), f.mean.dtype);
    if (!f.offset.data) continue;  // of Batch: a cell is a channel
    const C weight = f.weight.data ? load_float<C>(f.weight.data, i, f.weight.dtype) : C(1);
    to[cells + i] = load_float<C>(f.rstd.data, i, f.rstd.dtype) * weight;
    to[4 * cells + i] = load_float<C>(f.offset.data, i, f.offset.dtype);
  }
}

template <class C> __device__ GradTerms<C> warp_sum(GradTerms<C> s) {
  return {warp_fold(s.dy, Plus()), warp_fold(s.distance, Plus())};
}

/// With g = dy weight: dx = rstd (g - avg(g) - xhat avg(g xhat)), averages over what shares statistics.
template <class C> __device__ void fill_bends(const BackwardFinish& f, int64_t set, int lane) {
  const int64_t per_group = f.g.per_group(), first = set % f.g.groups * per_group, cells = f.g.cells();
  const C rstd = load_float<C>(f.rstd.data, set, f.rstd.dtype);
  const auto weight = [&](int64_t i) {
    return f.weight.data ? load_float<C>(f.weight.data, first + i, f.weight.dtype) : C(1);
  };
  GradTerms<C> sum{C(0), C(0)};
  if (!f.fixed)
#pragma unroll 4
    for (int64_t i = lane; i < per_group * f.chunks; i += 32) {
      const GradTerms<C> s = static_cast<const GradTerms<C>*>(f.states)[set * per_group * f.chunks + i];
      const C w = weight(i / f.chunks);
      sum.dy += w * s.dy, sum.distance += w * s.distance;
    }
  sum = warp_sum(sum);
  const C count = C(f.g.count), bend = f.fixed ? C(0) : -rstd * rstd * rstd * sum.distance / count,
          shift = f.fixed ? C(0) : -rstd * sum.dy / count;
  C* const slopes = static_cast<C*>(f.cells) + cells + set * per_group;
  for (int64_t i = lane; i < per_group; i += 32)
    slopes[i] = rstd * weight(i), slopes[cells + i] = bend, slopes[2 * cells + i] = shift;
}

template <class C> __device__ void sum_weights(const BackwardFinish& f, int64_t channel, int lane) {
  C dweight = 0, dbias = 0;
#pragma unroll 4
  for (int64_t i = lane; i < f.g.outer * f.chunks; i += 32) {
    const int64_t sample = i / f.chunks;
    const GradTerms<C> s =
        static_cast<const GradTerms<C>*>(f.states)[(sample * f.g.channels + channel) * f.chunks + i % f.chunks];
    dweight += s.distance * load_float<C>(f.rstd.data, sample * f.g.groups + channel / f.g.per_group(), f.rstd.dtype);
    dbias += s.dy;
  }
  dweight = warp_fold(dweight, Plus()), dbias = warp_fold(dbias, Plus());
  if (lane == 0 && f.dweight.data) store_float(f.dweight.data, channel, f.dweight.dtype, dweight);
  if (lane == 0 && f.dbias.data) store_float(f.dbias.data, channel, f.dbias.dtype, dbias);
}

/// A warp for each set of statistics, then one for each channel.
template <class C> __global__ void norm_backward_finish(const BackwardFinish f) {
  const int lane = int(threadIdx.x) % 32;
  const int64_t sets = f.g.outer * f.g.groups, warps = int64_t(gridDim.x) * blockDim.x / 32;
  for (int64_t job = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32; job < sets + f.g.channels; job += warps) {
    if (job < sets) fill_bends<C>(f, job, lane);
    else if (f.states) sum_weights<C>(f, job - sets, lane);
  }
}

template <class T, int V, Mask M>
__global__ void norm_apply_grad(T* dx, const GradLoad<T, V, M> load, const Layout<6> l) {
  using C = Compute<T>;
  constexpr int kPlanes = M == Mask::Shift ? 5 : 4;
  const int64_t step = l.rank ? l.strides[5][0] : 0;
  for (const int64_t i : grid_stride(l.numel, V)) {
    int64_t at[6];
    l.offsets(i, at);
    const auto raw = load.fetch(at);
    GradTerms<C> in[V];
    C v[V], n[kPlanes][V];
    load_planes(load.cells, load.plane, at[5], step, n);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      in[k] = load.value(raw, k, {n[0][k], n[1][k], n[kPlanes - 1][k]});
      const C bend = n[2][k];
      v[k] = n[1][k] * in[k].dy + ((bend != 0 ? bend * in[k].distance : C(0)) + n[3][k]);
    }
    if (load.keeps()) load.keep(at, in);
    store_pack<V>(dx + at[4], v);
  }
}

template <class T, int W, Mask M> GradLoad<T, W, M> load_of(const entry::NormReluBackward& c, const BackwardFinish& f) {
  return {c.x.as<T>(), c.dy.as<T>(), c.y.as<T>(), c.dadd.as<T>(), static_cast<const Compute<T>*>(f.cells), f.g.cells()};
}
template <class T, Mask M> void sum_grads(Context& ctx, const entry::NormReluBackward& c, BackwardFinish& f) {
  using Op = GradSums<Compute<T>>;
  constexpr int V = kPackSize<T>;
  const TensorView* const views[] = {&c.x, &c.dy, &c.y, &c.dadd};
  Reduction<4> r = by_cells(ctx, views, c.params.op == NormOp::Batch);
  bool wide = true;
  for (int k = 0; k < 4; ++k) wide = wide && (!views[k]->defined() || r.packs(k, views[k]->data, c.x.dtype, V));
  if (wide) r.run_first(Op{}, load_of<T, V, M>(c, f), true);
  else r.run_first(Op{}, load_of<T, 1, M>(c, f), true);
  f.states = r.plan.states, f.chunks = r.plan.chunks;
}
template <class T, Mask M> void apply_grad(Context& ctx, const entry::NormReluBackward& c, const BackwardFinish& f) {
  constexpr int V = kPackSize<T>;
  const TensorView* const views[] = {&c.x, &c.dy, &c.y, &c.dadd, &c.dx};
  const Layout<6> l = with_cells<5>(views, f.g, c.params.op == NormOp::Batch);
  if (packs<5>(l, views, V))
    launch(ctx, "norm_backward", grid_of(l.numel / V), norm_apply_grad<T, V, M>, c.dx.as<T>(), load_of<T, V, M>(c, f),
           l);
  else
    launch(ctx, "norm_backward", grid_of(l.numel), norm_apply_grad<T, 1, M>, c.dx.as<T>(), load_of<T, 1, M>(c, f), l);
}

template <class T> void backward_as(Context& ctx, entry::NormReluBackward c, Mask mask) {
  using C = Compute<T>;
  const char* const op = "norm_backward";
  const bool batch = c.params.op == NormOp::Batch;
  const Groups g = groups_of(c.x, c.params);
  if (g.channels == 0) return;
  BackwardFinish f{g,
                   staged(ctx, c.weight),
                   staged(ctx, c.mean),
                   staged(ctx, c.rstd),
                   staged(ctx, c.shift),
                   staged(ctx, c.dweight, false),
                   staged(ctx, c.dbias, false),
                   nullptr,
                   1,
                   ctx.scratch_of<C>(std::max<int64_t>(5 * g.cells(), 1)),
                   batch && !c.params.training};
  launch(ctx, op, grid_of(g.cells()), norm_cell_means<C>, f);
  if (!f.fixed || f.dweight.data || f.dbias.data || !c.dx.defined()) {
    if (mask == Mask::Nothing) sum_grads<T, Mask::Nothing>(ctx, c, f);
    else if (mask == Mask::Shift) sum_grads<T, Mask::Shift>(ctx, c, f);
    else sum_grads<T, Mask::Result>(ctx, c, f);
    if (c.dadd.defined()) c.dy = c.dadd, c.dadd = entry::Out(), c.y = entry::In(), mask = Mask::Nothing;
  }
  launch(ctx, op, grid_of((g.outer * g.groups + g.channels) * 32), norm_backward_finish<C>, f);
  unstage(ctx, c.dweight, f.dweight), unstage(ctx, c.dbias, f.dbias);
  if (!c.dx.defined()) return;
  if (mask == Mask::Nothing) apply_grad<T, Mask::Nothing>(ctx, c, f);
  else if (mask == Mask::Shift) apply_grad<T, Mask::Shift>(ctx, c, f);
  else apply_grad<T, Mask::Result>(ctx, c, f);
}

}  // namespace

void norm_channels(Context& ctx, const entry::NormRelu& c, bool relu) {
  for_any_float("norm", c.x.dtype, [&]<class T>() { forward_as<T>(ctx, c, relu); });
}

void norm_channels_backward(Context& ctx, const entry::NormReluBackward& c, bool relu) {
  const Mask mask = !relu ? Mask::Nothing : c.y.defined() ? Mask::Result : Mask::Shift;
  for_any_float("norm_backward", c.x.dtype, [&]<class T>() { backward_as<T>(ctx, c, mask); });
}

}  // namespace tapir::inline v0::cuda_kernels
