#include "../../core/resample.h"

#include <limits>

#include "../../core/dispatch.h"
#include "../kernels.h"
#include "../planes.h"

// Note [Resampling on a GPU]
// One small kernel writes, for each axis, a table of what each output reads: neighbours from `first` on, with their weights. A second one
// has a thread to an output (or to a pack of neighbouring channels) that sums what the tables of three axes name, in their order. The
// gradient is the same sum with tables of the transposed map: an input gathers from the outputs that read it, so nothing is added by two.
// A filter that is wide along two axes runs along one after the other, through memory of the compute type.
namespace tapir::inline v0::cuda_kernels {
namespace {

/// Of one axis: entry i reads `count[i]` neighbours from `first[i]` on, the k-th with weight[k entries + i].
template <class C> struct TapTable {
  int entries, most;
  int32_t *first, *count;
  C* weight;
};
template <class C> struct Tables { TapTable<C> of[3]; };
struct Axes {
  ResampleAxis of[3];
};

/// The lowest and the highest place that output i reads.
__device__ inline void reach_of(const ResampleAxis& axis, int64_t i, int64_t& low, int64_t& high) {
  low = axis.in, high = -1;
  axis.each_tap(
      i, [&](int64_t, int64_t place, double) { low = place < low ? place : low, high = place > high ? place : high; });
}
/// The number of outputs at the front for which `before` holds; it never holds again behind them.
template <class F> __device__ int64_t front_of(const ResampleAxis& axis, F&& before) {
  int64_t begin = 0, end = axis.out;
  while (begin < end) {
    const int64_t middle = begin + (end - begin) / 2;
    int64_t low, high;
    reach_of(axis, middle, low, high);
    if (before(low, high)) begin = middle + 1;
    else end = middle;
  }
  return begin;
}

/// A row of the grid for each axis. Transposed: entry j is an input, its neighbours are the outputs that read it.
template <class C> __global__ void taps_kernel(Axes axes, Tables<C> tables, bool transposed) {
  const ResampleAxis& axis = axes.of[blockIdx.y];
  const TapTable<C>& t = tables.of[blockIdx.y];
  for (const int64_t i : grid_stride(t.entries)) {
    int64_t first, last;
    if (transposed) {
      first = front_of(axis, [i](int64_t, int64_t high) { return high < i; });
      last = front_of(axis, [i](int64_t low, int64_t) { return low <= i; }) - 1;
    } else {
      reach_of(axis, i, first, last);
    }
    if (last - first >= t.most) last = first + t.most - 1;
    t.first[i] = int32_t(first), t.count[i] = int32_t(last < first ? 0 : last - first + 1);
    for (int64_t k = 0; k <= last - first; ++k) {
      C sum = 0;
      axis.each_tap(transposed ? first + k : i, [&](int64_t, int64_t place, double weight) {
        if (place == (transposed ? i : first + k)) sum += C(weight);
      });
      t.weight[k * t.entries + i] = sum;
    }
  }
}

/// Weights of 0 only pad: what they would multiply is not read, whatever it holds.
template <class In, class Out, class C, int P>
__global__ void resample_kernel(Out* y, const In* x, Planes planes, Tables<C> tables, int64_t total) {
  const TapTable<C>&t0 = tables.of[0], &t1 = tables.of[1], &t2 = tables.of[2];
  for (const int64_t i : grid_stride(total)) {
    const Place o = place_of(planes, i, P);
    const int f0 = t0.first[o.at[0]], f1 = t1.first[o.at[1]], f2 = t2.first[o.at[2]];
    const int n0 = t0.count[o.at[0]], n1 = t1.count[o.at[1]], n2 = t2.count[o.at[2]];
    C sums[P] = {};
    for (int p = 0; p < n0; ++p) {
      const C w0 = t0.weight[int64_t(p) * t0.entries + o.at[0]];
      if (w0 == C(0)) continue;
      for (int q = 0; q < n1; ++q) {
        const C w1 = w0 * t1.weight[int64_t(q) * t1.entries + o.at[1]];
        if (w1 == C(0)) continue;
        const In* from = x + planes.x.offset(o.n, o.c, f0 + p, f1 + q, f2);
        const C* weight = t2.weight + o.at[2];
        for (int r = 0; r < n2; ++r, from += planes.x.at[2], weight += t2.entries) {
          if (*weight == C(0)) continue;
          const auto got = *reinterpret_cast<const Pack<In, P>*>(from);
          for (int l = 0; l < P; ++l) sums[l] += w1 * *weight * C(widen(got.of[l]));
        }
      }
    }
    Pack<Out, P> to;
    for (int l = 0; l < P; ++l) to.of[l] = narrow<Out>(sums[l]);
    *reinterpret_cast<Pack<Out, P>*>(y + planes.y.offset(o.n, o.c, o.at[0], o.at[1], o.at[2])) = to;
  }
}

template <class T, int P> __global__ void nearest_kernel(T* y, const T* x, Planes planes, Axes axes, int64_t total) {
  for (const int64_t i : grid_stride(total)) {
    const Place o = place_of(planes, i, P);
    int from[3];
    for (int d = 0; d < 3; ++d)
      axes.of[d].each_tap(o.at[d], [&](int64_t, int64_t place, double) { from[d] = int(place); });
    *reinterpret_cast<Pack<T, P>*>(y + planes.y.offset(o.n, o.c, o.at[0], o.at[1], o.at[2])) =
        *reinterpret_cast<const Pack<T, P>*>(x + planes.x.offset(o.n, o.c, from[0], from[1], from[2]));
  }
}

/// Axis d of three, in the forward map from `in` to `out` elements; one that stays as it is where only another is resampled.
ResampleAxis axis_of(const ResampleParams& p, int64_t d, int64_t in, int64_t out) {
  const int64_t extra = 3 - p.spatial;
  return d < extra ? ResampleAxis({.op = ResampleOp::Nearest}, 0, in, out) : ResampleAxis(p, d - extra, in, out);
}
ResampleAxis unchanged(int64_t extent) { return ResampleAxis({.op = ResampleOp::Nearest}, 0, extent, extent); }
int64_t extent(V v, int64_t d) { return d < 5 - v.rank ? 1 : v.sizes[d - 3 + v.rank]; }

/// No input is read by more outputs: those whose centres lie within the taps' reach, and at the ends all whose taps were moved inside.
int64_t most_readers(const ResampleAxis& a) {
  const double reach = (a.is_filtered() ? a.support : a.op == ResampleOp::Cubic ? 2 : 1) + 2;
  if (a.step <= 0) return a.out;
  const double inside = 2 * reach / a.step + 3, at_end = double(a.out) - (double(a.in) - 1 - reach) / a.step + 3;
  return int64_t(std::min(double(a.out), std::max({inside, reach / a.step + 3, at_end})));
}

template <class C> Tables<C> make_tables(Context& ctx, const Axes& axes, bool transposed) {
  Tables<C> tables;
  int64_t longest = 0;
  for (int d = 0; d < 3; ++d) {
    const ResampleAxis& a = axes.of[d];
    const int64_t entries = transposed ? a.in : a.out, most = transposed ? most_readers(a) : a.taps;
    auto* const words = ctx.scratch_of<int32_t>(2 * entries);
    tables.of[d] = {int(entries), int(most), words, words + entries, ctx.scratch_of<C>(most * entries)};
    longest = std::max(longest, entries);
  }
  Grid grid = grid_of(longest, 64);
  grid.blocks.y = 3;
  launch(ctx, "interpolate", grid, taps_kernel<C>, axes, tables, transposed);
  return tables;
}

template <class In, class Out, class C> void sum_taps(Context& ctx, V y, V x, const Tables<C>& tables) {
  constexpr int P = 16 / int(std::max(sizeof(In), sizeof(Out)));
  Planes planes = planes_of(x, y);
  const auto run = [&](auto kernel, int pack) {
    const int64_t total = y.numel() / pack;
    planes.walk(y, pack);
    launch(ctx, "interpolate", grid_of(total), kernel, y.as<Out>(), x.as<In>(), planes, tables, total);
  };
  if (packs(planes, x, y, P)) run(resample_kernel<In, Out, C, P>, P);
  else run(resample_kernel<In, Out, C, 1>, 1);
}

/// Dense memory of the compute type, the channels inside where they are in v.
template <class C> TensorView room_like(Context& ctx, V v, DType dtype) {
  TensorView t = v;
  const bool inside = v.strides[1] == 1 && v.sizes[1] > 1;
  int64_t step = inside ? v.sizes[1] : 1;
  for (int64_t d = v.rank; d-- > 2; step *= v.sizes[d]) t.strides[d] = step;
  t.strides[1] = inside ? 1 : step;
  t.strides[0] = inside ? step : step * v.sizes[1];
  t.dtype = dtype, t.data = ctx.scratch_of<C>(v.numel());
  return t;
}

/// y from x, whose roles the transposed map exchanges.
template <class T> void resample_as(Context& ctx, V y, V x, const ResampleParams& p, bool transposed) {
  using C = Compute<T>;
  const auto axis = [&](int64_t d) {
    const int64_t from = extent(x, d), to = extent(y, d);
    return transposed ? axis_of(p, d, to, from) : axis_of(p, d, from, to);
  };
  const Axes axes{{axis(0), axis(1), axis(2)}};
  if (!axes.of[1].is_filtered()) return sum_taps<T, T, C>(ctx, y, x, make_tables<C>(ctx, axes, transposed));
  TensorView between = x;
  between.sizes[x.rank - 1] = y.sizes[y.rank - 1];
  between = room_like<C>(ctx, between, compute_type(x.dtype));
  const Axes last{{unchanged(1), unchanged(extent(x, 1)), axes.of[2]}};
  const Axes other{{unchanged(1), axes.of[1], unchanged(extent(y, 2))}};
  sum_taps<T, C, C>(ctx, between, x, make_tables<C>(ctx, last, transposed));
  sum_taps<C, T, C>(ctx, y, between, make_tables<C>(ctx, other, transposed));
}

template <class T> void nearest_as(Context& ctx, V y, V x, const ResampleParams& p) {
  constexpr int P = kPackSize<T>;
  Planes planes = planes_of(x, y);
  const auto axis = [&](int64_t d) { return axis_of(p, d, extent(x, d), extent(y, d)); };
  const Axes axes{{axis(0), axis(1), axis(2)}};
  const auto run = [&](auto kernel, int pack) {
    const int64_t total = y.numel() / pack;
    planes.walk(y, pack);
    launch(ctx, "interpolate", grid_of(total), kernel, y.as<T>(), x.as<T>(), planes, axes, total);
  };
  if (packs(planes, x, y, P)) run(nearest_kernel<T, P>, P);
  else run(nearest_kernel<T, 1>, 1);
}

void check_extents(V x) {
  for (int64_t d = 2; d < x.rank; ++d)
    check(x.sizes[d] < std::numeric_limits<int32_t>::max(), "[interpolate] expected extents below 2^31, got {}",
          x.shape());
}

}  // namespace

void resample(Context& ctx, const entry::Resample& c) {
  if (c.y.numel() == 0) return;
  check_extents(c.x), check_extents(c.y);
  if (c.params.op == ResampleOp::Nearest || c.params.op == ResampleOp::NearestExact)
    return for_size(c.x.dtype, [&]<class T>() { nearest_as<T>(ctx, c.y, c.x, c.params); });
  for_any_float("interpolate", c.x.dtype, [&]<class T>() { resample_as<T>(ctx, c.y, c.x, c.params, false); });
}

void resample_backward(Context& ctx, const entry::ResampleBackward& c) {
  if (c.dx.numel() == 0) return;
  check_extents(c.dx), check_extents(c.dy);
  for_any_float("interpolate", c.dx.dtype, [&]<class T>() { resample_as<T>(ctx, c.dx, c.dy, c.params, true); });
}

}  // namespace tapir::inline v0::cuda_kernels
