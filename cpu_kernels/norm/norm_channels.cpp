#include <cmath>

#include "../../core/denormals.h"
#include "../../core/parallel.h"
#include "norm.h"

namespace tapir::inline v0::cpu {
namespace {

// Note [Channel norms]
// Batch and group norm share everything: x (N, C, ...) is seen as `outer` samples of `channels` with one set of statistics for
// each (sample, group): batch norm is one sample of all N with groups of one channel. What is summed is cut into `parts` by shape
// alone. Two layouts are fast: rows (channels_last: channels lie side by side, loops run over columns, which are channels) and
// planes (NCHW and any other strides: a loop runs over one channel's pixels). In NCHW with small planes an image is a row, and
// `fold` columns, the pixels of a plane, make up a channel.

constexpr int64_t kGrain = 16384;  // elements
constexpr int64_t kRowBlock = 64;  // rows summed in C before they go into double
constexpr int64_t kMaxFold = 64;

template <int K> struct ChannelView {
  int64_t n, channels, plane;  // plane: product of the spatial extents
  std::array<const int64_t*, K> strides;
  Walk<K> pixels;  // one plane
  bool by_rows;
  int64_t fold = 1;
  int64_t row_stride[K];

  ChannelView(V x, const std::array<const int64_t*, K>& strides, NormOp op)
      : n(x.sizes[0]), channels(x.sizes[1]), plane(1), strides(strides),
        pixels(std::span(x.sizes + 2, size_t(x.rank - 2)), spatial(strides)) {
    plane = pixels.total;
    const Walk<K> all(x.shape(), strides, 1);  // everything but the channels
    by_rows = channels > 1 && all.rank == 1;
    bool folds = op == NormOp::Batch && plane > 1 && plane <= kMaxFold && n >= 8 && pixels.rank == 1;
    for (size_t k = 0; k < size_t(K); ++k) {
      by_rows = by_rows && strides[k][1] == 1;
      folds = folds && strides[k][1] == plane && pixels.step(int(k)) == 1;
    }
    folds = folds && !by_rows;
    if (folds) by_rows = true, fold = plane;
    for (int k = 0; k < K; ++k) row_stride[k] = folds ? strides[size_t(k)][0] : all.step(k);
  }
  static std::array<const int64_t*, K> spatial(std::array<const int64_t*, K> strides) {
    for (auto& s : strides) s += 2;
    return strides;
  }
  /// f(count, offsets) for segments of plane (image, channel).
  template <class F> void segments(int64_t image, int64_t channel, F&& f) const {
    pixels.run(0, plane, [&](int64_t, int64_t count, std::array<int64_t, size_t(K)> at) {
      for (int k = 0; k < K; ++k) at[size_t(k)] += image * strides[size_t(k)][0] + channel * strides[size_t(k)][1];
      for (int64_t done = 0; done < count; done += kSegment) {
        f(std::min(kSegment, count - done), at);
        for (int k = 0; k < K; ++k) at[size_t(k)] += kSegment * pixels.step(k);
      }
    });
  }
};

/// How sums are cut.
struct Cut {
  int64_t outer, fold, columns, groups, rows, part_rows, parts;  // rows of a sample; parts of part_rows rows

  template <int K> Cut(const ChannelView<K>& view, const NormParams& params) {
    const bool batch = params.op == NormOp::Batch;
    outer = batch ? 1 : view.n, fold = view.fold, columns = view.channels * fold;
    groups = batch ? view.channels : params.groups;
    rows = (batch ? view.n * view.plane : view.plane) / fold;
    if (view.by_rows) {
      constexpr int64_t kPart = 131072;  // elements
      const int64_t wanted = std::clamp<int64_t>(rows * columns / kPart, 1, 64);
      part_rows = std::max<int64_t>(1, (rows + wanted - 1) / wanted);
    } else {
      part_rows = std::max<int64_t>(1, view.plane);
    }
    parts = (rows + part_rows - 1) / part_rows;
  }
  int64_t channels() const { return columns / fold; }
  int64_t per_group() const { return groups ? columns / groups : 0; }  // columns
  int64_t cells() const { return outer * columns; }
  /// f(cell, set of statistics, channel) for each (sample, column).
  template <class F> void each(F&& f) const {
    for (int64_t s = 0, cell = 0; s < outer; ++s)
      for (int64_t g = 0, channel = 0; g < groups; ++g)
        for (int64_t end = channel + per_group() / fold; channel < end; ++channel)
          for (int64_t i = 0; i < fold; ++i) f(cell++, s * groups + g, channel);
  }
  int64_t count(int64_t part) const { return std::min(part_rows, rows - part * part_rows); }
  int64_t grain() const { return std::max<int64_t>(1, kGrain / std::max<int64_t>(1, part_rows * columns)); }
};

// ---- rows: columns [0, width) of `rows` rows, width <= kSegment ----

template <class T, class C>
void column_moments(const T* x, int64_t stride, int64_t rows, int64_t width, double* mean, double* m2) {
  alignas(64) C buffer[kSegment], shift[kSegment], s1[kSegment], s2[kSegment];
  // Distances are taken from what is known of the mean, so that nothing cancels; at first from a few rows' mean.
  const int64_t probe = std::min<int64_t>(rows, 8);
  std::fill_n(shift, width, C(0));
  for (int64_t r = 0; r < probe; ++r) {
    const C* const row = read_row(x + r * stride, 1, width, buffer);
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) shift[c] += row[c];
  }
  for (int64_t c = 0; c < width; ++c) shift[c] /= C(probe), mean[c] = m2[c] = 0;
  for (int64_t first = 0; first < rows; first += kRowBlock) {
    const int64_t n = std::min(kRowBlock, rows - first);
    std::fill_n(s1, width, C(0)), std::fill_n(s2, width, C(0));
    for (int64_t r = first; r < first + n; ++r) {
      const C* const row = read_row(x + r * stride, 1, width, buffer);
#pragma omp simd
      for (int64_t c = 0; c < width; ++c) {
        const C d = row[c] - shift[c];
        s1[c] += d, s2[c] += d * d;
      }
    }
    const double before = double(first), added = double(n), share = added / (before + added), both = before * share;
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) {
      const double a = s1[c], delta = double(shift[c]) + a / added - mean[c];
      mean[c] += delta * share;
      m2[c] += double(s2[c]) - a * (a / added) + delta * delta * both;
      shift[c] = C(mean[c]);
    }
  }
}

/// Sums of g and g (x - mean); gradient(r, x) is row r of g.
template <class T, class C, class F> void column_sums(const T* x, int64_t stride, int64_t rows, int64_t width,
                                                      const C* mean, F&& gradient, double* sum_g, double* sum_gx) {
  alignas(64) C x_buffer[kSegment], s1[kSegment], s2[kSegment];
  std::fill_n(sum_g, width, 0.0), std::fill_n(sum_gx, width, 0.0);
  for (int64_t first = 0; first < rows; first += kRowBlock) {
    std::fill_n(s1, width, C(0)), std::fill_n(s2, width, C(0));
    for (int64_t r = first; r < std::min(rows, first + kRowBlock); ++r) {
      const C* const v = read_row(x + r * stride, 1, width, x_buffer);
      const C* const g = gradient(r, v);
#pragma omp simd
      for (int64_t c = 0; c < width; ++c) s1[c] += g[c], s2[c] += g[c] * (v[c] - mean[c]);
    }
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) sum_g[c] += double(s1[c]), sum_gx[c] += double(s2[c]);
  }
}

/// f(sample, part, first channel, channels, first row of all rows, rows) in parallel, for the rows layout.
template <class F> void for_row_parts(const Cut& cut, F&& f) {
  parallel_for(cut.outer * cut.parts, cut.grain(), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t sample = i / cut.parts, part = i % cut.parts;
      for (int64_t c = 0; c < cut.columns; c += kSegment)
        f(i, c, std::min(kSegment, cut.columns - c), sample * cut.rows + part * cut.part_rows, cut.count(part));
    }
  });
}
/// f(cell of (sample, part, channel), image, channel) in parallel, for planes; a part is an image, or a sample is.
template <int K, class F> void for_planes(const ChannelView<K>& view, F&& f) {
  parallel_for(view.n * view.channels, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, view.plane)),
               [&](int64_t first, int64_t last) {
                 for (int64_t i = first; i < last; ++i) f(i, i / view.channels, i % view.channels);
               });
}

/// Mean and squared distances of each (sample, part, channel).
template <class T> void partial_moments(V x, const ChannelView<3>& view, const Cut& cut, double* mean, double* m2) {
  using C = Compute<T>;
  const T* const data = x.as<T>();
  if (view.by_rows)
    for_row_parts(cut, [&](int64_t part, int64_t c, int64_t width, int64_t row, int64_t rows) {
      const int64_t cell = part * cut.columns + c;
      column_moments<T, C>(data + row * view.row_stride[0] + c, view.row_stride[0], rows, width, mean + cell,
                           m2 + cell);
    });
  else
    for_planes(view, [&](int64_t cell, int64_t image, int64_t channel) {
      alignas(64) C buffer[kSegment];
      Moments moments;
      view.segments(image, channel, [&](int64_t n, const std::array<int64_t, 3>& at) {
        moments.add(read_row(data + at[0], view.pixels.step(0), n, buffer), n);
      });
      mean[cell] = moments.mean, m2[cell] = moments.m2;
    });
}

/// y = (x - mean) scale + shift; the three have one value for each (sample, channel).
template <class C> struct Affine { const C *mean, *scale, *shift; };
/// y = relu?(v + add?), with v(i) for element i.
template <class C, class F> inline void finish_row(int64_t n, const C* add, bool relu, C* y, F&& v) {
  if (!relu)
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = v(i);
  else if (!add)
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const C z = v(i);
      y[i] = z < C(0) ? C(0) : z;
    }
  else
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const C z = v(i) + add[i];
      y[i] = z < C(0) ? C(0) : z;
    }
}
template <class T>
void apply(const NormOperands& o, const ChannelView<3>& view, const Cut& cut, const Affine<Compute<T>>& k) {
  using C = Compute<T>;
  const T *const in = o.x.as<T>(), *const added = o.add.as<T>();
  T* const out = o.y.as<T>();
  if (view.by_rows) {
    const int64_t grain = std::max<int64_t>(1, kGrain / cut.columns);
    parallel_for(cut.outer * cut.rows, grain, [&](int64_t first, int64_t last) {
      alignas(64) C from[kSegment], to[kSegment], other[kSegment];
      for (int64_t r = first; r < last; ++r)
        for (int64_t c0 = 0; c0 < cut.columns; c0 += kSegment) {
          const int64_t n = std::min(kSegment, cut.columns - c0), cell = r / cut.rows * cut.columns + c0;
          const C *const mean = k.mean + cell, *const scale = k.scale + cell, *const shift = k.shift + cell;
          const C* const x = read_row(in + r * view.row_stride[0] + c0, 1, n, from);
          const C* const add = added ? read_row(added + r * view.row_stride[2] + c0, 1, n, other) : nullptr;
          T* const place = out + r * view.row_stride[1] + c0;
          C* const y = row_target(place, 1, to);
          finish_row(n, add, o.relu, y, [=](int64_t c) { return (x[c] - mean[c]) * scale[c] + shift[c]; });
          write_row(place, 1, n, y);
        }
    });
    return;
  }
  for_planes(view, [&](int64_t, int64_t image, int64_t channel) {
    alignas(64) C from[kSegment], to[kSegment], other[kSegment];
    const int64_t cell = image / cut.parts * cut.columns + channel, xs = view.pixels.step(0), ys = view.pixels.step(1);
    const C mean = k.mean[cell], scale = k.scale[cell], shift = k.shift[cell];
    view.segments(image, channel, [&](int64_t n, const std::array<int64_t, 3>& at) {
      const C* const x = read_row(in + at[0], xs, n, from);
      const C* const add = added ? read_row(added + at[2], view.pixels.step(2), n, other) : nullptr;
      C* const y = row_target(out + at[1], ys, to);
      finish_row(n, add, o.relu, y, [=](int64_t i) { return (x[i] - mean) * scale + shift; });
      write_row(out + at[1], ys, n, y);
    });
  });
}

/// Statistics of each (sample, group) from those of the parts, with what rounding takes from each mean; the running statistics of
/// batch norm follow.
template <class C> void finish_moments(const Cut& cut, const NormParams& params, const double* part_mean,
                                       const double* part_m2, C* mean, double* lost, C* rstd, C* running_mean,
                                       C* running_var) {
  const int64_t per_group = cut.per_group();
  for (int64_t s = 0; s < cut.outer; ++s)
    for (int64_t g = 0; g < cut.groups; ++g) {
      Moments all;
      for (int64_t part = 0; part < cut.parts; ++part) {
        const double count = double(cut.count(part));
        const int64_t first = (s * cut.parts + part) * cut.columns + g * per_group;
        for (int64_t cell = first; cell < first + per_group; ++cell) all.merge(count, part_mean[cell], part_m2[cell]);
      }
      mean[s * cut.groups + g] = C(all.mean);
      const double rest = all.mean - double(C(all.mean));  // no number where the mean is none, or too large for C
      lost[s * cut.groups + g] = std::isfinite(rest) ? rest : 0;
      rstd[s * cut.groups + g] = C(1 / std::sqrt(all.variance() + params.eps));
      if (all.n == 0) continue;
      if (running_mean) running_mean[g] += C(params.momentum) * (C(all.mean) - running_mean[g]);
      if (running_var)
        running_var[g] += C(params.momentum) * (C(all.n > 1 ? all.m2 / (all.n - 1) : 0) - running_var[g]);
    }
}

}  // namespace

template <class T> void norm_channels(Context& ctx, const NormOperands& o, const NormParams& params) {
  using C = Compute<T>;
  const ChannelView<3> view(o.x, {o.x.strides, o.y.strides, o.add.defined() ? o.add.strides : o.y.strides}, params.op);
  const Cut cut(view, params);
  const int64_t statistics = cut.outer * cut.groups;
  C* const mean = o.mean.defined() ? staged<C>(ctx, o.mean, false) : ctx.scratch_of<C>(statistics);
  C* const rstd = o.rstd.defined() ? staged<C>(ctx, o.rstd, false) : ctx.scratch_of<C>(statistics);
  C* const running_mean = staged<C>(ctx, o.running_mean, true);
  C* const running_var = staged<C>(ctx, o.running_var, true);
  double* const lost = ctx.scratch_of<double>(statistics);
  std::fill_n(lost, statistics, 0.0);
  if (params.op == NormOp::Batch && !params.training) {
    for (int64_t c = 0; c < cut.groups; ++c)
      mean[c] = running_mean[c], rstd[c] = C(1 / std::sqrt(double(running_var[c]) + params.eps));
  } else {
    const int64_t cells = cut.cells() * cut.parts;
    double* const partial = ctx.scratch_of<double>(2 * cells);
    if (cut.rows > 0) partial_moments<T>(o.x, view, cut, partial, partial + cells);
    const detail::FlushDenormals flush(dtype_of<C>);  // the running statistics of a channel that is dead fade
    finish_moments(cut, params, partial, partial + cells, mean, lost, rstd, running_mean, running_var);
    unstage(o.running_mean, running_mean), unstage(o.running_var, running_var);
  }
  if (o.mean.defined()) unstage(o.mean, mean);
  if (o.rstd.defined()) unstage(o.rstd, rstd);
  const C* const weight = staged<C>(ctx, o.weight, true);
  const C* const bias = staged<C>(ctx, o.bias, true);
  C* const means = ctx.scratch_of<C>(3 * cut.cells());
  C *const scales = means + cut.cells(), *const shifts = scales + cut.cells();
  cut.each([&](int64_t i, int64_t g, int64_t c) {
    means[i] = mean[g], scales[i] = weight ? rstd[g] * weight[c] : rstd[g];
    shifts[i] = bias ? bias[c] : C(0);
    const double rest = lost[g] * double(scales[i]);
    if (std::isfinite(rest)) shifts[i] = C(double(shifts[i]) - rest);
  });
  if (C* const shift = staged<C>(ctx, o.shift, false)) {
    for (int64_t c = 0; c < cut.groups; ++c) shift[c] = shifts[c * cut.fold];
    unstage(o.shift, shift);
  }
  if (cut.rows > 0) apply<T>(o, view, cut, {means, scales, shifts});
}

namespace {

using GradView = ChannelView<5>;  // dy, x, dx, dadd, y

/// dx = slope g + bend (x - mean) + shift, one of each for each (sample, channel). offset: the shift of the forward pass.
template <class C> struct AffineGrad { C *mean, *slope, *bend, *shift, *offset; };

/// What reaches the norm: dy, or what the relu behind it lets through. Where dadd is there, the first sweep writes that to it, and the
/// second finds it there.
template <class T> struct Through {
  using C = Compute<T>;
  const NormGradOperands& o;
  bool again;

  /// n elements at these offsets, `step(k)` apart; x(i) is normalised to z(i).
  template <class Step, class Z>
  const C* row(int64_t n, const int64_t* at, Step&& step, C* buffer, C* y_buffer, Z&& z) const {
    if (again && o.dadd.defined()) return read_row(o.dadd.as<T>() + at[3], step(3), n, buffer);
    const C* const g = read_row(o.dy.as<T>() + at[0], step(0), n, buffer);
    if (!o.relu) return g;
    if (o.y.defined()) {
      const C* const y = read_row(o.y.as<T>() + at[4], step(4), n, y_buffer);
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) buffer[i] = y[i] > C(0) ? g[i] : C(0);
    } else {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) buffer[i] = z(i) > C(0) ? g[i] : C(0);
    }
    if (o.dadd.defined()) write_row(o.dadd.as<T>() + at[3], step(3), n, buffer);
    return buffer;
  }
  /// Columns [c, c + n) of row r; v: the same of x.
  const C* columns(const GradView& view, int64_t r, int64_t c, int64_t n, const C* v, const AffineGrad<C>& k,
                   int64_t cell, C* buffer, C* y_buffer) const {
    int64_t at[5];
    for (int i = 0; i < 5; ++i) at[i] = r * view.row_stride[i] + c;
    const C *const mean = k.mean + cell, *const scale = k.slope + cell, *const shift = k.offset + cell;
    return row(
        n, at, [](int) { return 1; }, buffer, y_buffer,
        [=](int64_t i) { return (v[i] - mean[i]) * scale[i] + shift[i]; });
  }
  /// A segment of a plane.
  const C* segment(const GradView& view, int64_t n, const std::array<int64_t, 5>& at, const C* v,
                   const AffineGrad<C>& k, int64_t cell, C* buffer, C* y_buffer) const {
    const C mean = k.mean[cell], scale = k.slope[cell], shift = k.offset[cell];
    return row(
        n, at.data(), [&](int i) { return view.pixels.step(i); }, buffer, y_buffer,
        [=](int64_t i) { return (v[i] - mean) * scale + shift; });
  }
};

/// Sums of g and g (x - mean) of each (sample, part, channel).
template <class T> void partial_sums(const Through<T>& through, const GradView& view, const Cut& cut,
                                     const AffineGrad<Compute<T>>& k, double* sum_g, double* sum_gx) {
  using C = Compute<T>;
  const T* const x = through.o.x.template as<T>();
  if (view.by_rows) {
    for_row_parts(cut, [&](int64_t part, int64_t c, int64_t width, int64_t row, int64_t rows) {
      alignas(64) C buffer[kSegment], y_buffer[kSegment];
      const int64_t to = part * cut.columns + c, cell = part / cut.parts * cut.columns + c;
      column_sums<T, C>(
          x + row * view.row_stride[1] + c, view.row_stride[1], rows, width, k.mean + cell,
          [&](int64_t r, const C* v) { return through.columns(view, row + r, c, width, v, k, cell, buffer, y_buffer); },
          sum_g + to, sum_gx + to);
    });
    return;
  }
  for_planes(view, [&](int64_t to, int64_t image, int64_t channel) {
    alignas(64) C buffer[kSegment], x_buffer[kSegment], y_buffer[kSegment];
    const int64_t cell = image / cut.parts * cut.columns + channel;
    const C mean = k.mean[cell];
    double total_g = 0, total_gx = 0;
    view.segments(image, channel, [&](int64_t n, const std::array<int64_t, 5>& at) {
      const C* const v = read_row(x + at[1], view.pixels.step(1), n, x_buffer);
      const C* const g = through.segment(view, n, at, v, k, cell, buffer, y_buffer);
      C a = 0, b = 0;
#pragma omp simd reduction(+ : a, b)
      for (int64_t i = 0; i < n; ++i) a += g[i], b += g[i] * (v[i] - mean);
      total_g += double(a), total_gx += double(b);
    });
    sum_g[to] = total_g, sum_gx[to] = total_gx;
  });
}

template <class T>
void apply_grad(const Through<T>& through, const GradView& view, const Cut& cut, const AffineGrad<Compute<T>>& k) {
  using C = Compute<T>;
  const T* const x = through.o.x.template as<T>();
  T* const dx = through.o.dx.template as<T>();
  if (view.by_rows) {
    parallel_for(cut.outer * cut.rows, std::max<int64_t>(1, kGrain / cut.columns), [&](int64_t first, int64_t last) {
      alignas(64) C buffer[kSegment], x_buffer[kSegment], y_buffer[kSegment], to[kSegment];
      for (int64_t r = first; r < last; ++r)
        for (int64_t c0 = 0; c0 < cut.columns; c0 += kSegment) {
          const int64_t n = std::min(kSegment, cut.columns - c0), cell = r / cut.rows * cut.columns + c0;
          const C* const v = read_row(x + r * view.row_stride[1] + c0, 1, n, x_buffer);
          const C* const g = through.columns(view, r, c0, n, v, k, cell, buffer, y_buffer);
          const C *const mean = k.mean + cell, *const slope = k.slope + cell, *const bend = k.bend + cell,
                         *const shift = k.shift + cell;
          T* const place = dx + r * view.row_stride[2] + c0;
          C* const out = row_target(place, 1, to);
#pragma omp simd
          for (int64_t c = 0; c < n; ++c)
            out[c] = slope[c] * g[c] + ((bend[c] != 0 ? bend[c] * (v[c] - mean[c]) : C(0)) + shift[c]);
          write_row(place, 1, n, out);
        }
    });
    return;
  }
  for_planes(view, [&](int64_t, int64_t image, int64_t channel) {
    alignas(64) C buffer[kSegment], x_buffer[kSegment], y_buffer[kSegment], to[kSegment];
    const int64_t cell = image / cut.parts * cut.columns + channel, step = view.pixels.step(2);
    const C mean = k.mean[cell], slope = k.slope[cell], bend = k.bend[cell], shift = k.shift[cell];
    view.segments(image, channel, [&](int64_t n, const std::array<int64_t, 5>& at) {
      const C* const v = read_row(x + at[1], view.pixels.step(1), n, x_buffer);
      const C* const g = through.segment(view, n, at, v, k, cell, buffer, y_buffer);
      C* const out = row_target(dx + at[2], step, to);
      for (int64_t i = 0; i < n; ++i) out[i] = slope * g[i] + ((bend != 0 ? bend * (v[i] - mean) : C(0)) + shift);
      write_row(dx + at[2], step, n, out);
    });
  });
}

/// Adds up the parts: afterwards part 0 of each sample holds the sum.
void merge_parts(const Cut& cut, double* sums) {
  for (int64_t s = 0; s < cut.outer; ++s) {
    double* const to = sums + s * cut.parts * cut.columns;
    for (int64_t part = 1; part < cut.parts; ++part)
      for (int64_t c = 0; c < cut.columns; ++c) to[c] += to[part * cut.columns + c];
  }
}

template <class C> void weight_gradients(Context& ctx, const NormGradOperands& o, const Cut& cut, const double* sum_dy,
                                         const double* sum_dyx, const C* rstd) {
  C* const dweight = staged<C>(ctx, o.dweight, false);
  C* const dbias = staged<C>(ctx, o.dbias, false);
  for (int64_t c = 0; c < cut.channels(); ++c) {
    double w = 0, b = 0;
    for (int64_t s = 0; cut.parts > 0 && s < cut.outer; ++s) {
      const double r = double(rstd[s * cut.groups + c * cut.fold / cut.per_group()]);
      for (int64_t column = c * cut.fold; column < (c + 1) * cut.fold; ++column) {
        const int64_t cell = s * cut.parts * cut.columns + column;
        b += sum_dy[cell], w += sum_dyx[cell] * r;
      }
    }
    if (dweight) dweight[c] = C(w);
    if (dbias) dbias[c] = C(b);
  }
  if (dweight) unstage(o.dweight, dweight);
  if (dbias) unstage(o.dbias, dbias);
}

/// What the averages over all that share statistics add to dx.
template <class C> void fill_bends(const Cut& cut, const double* sum_dy, const double* sum_dyx, const C* rstd,
                                   const C* weight, const AffineGrad<C>& k) {
  const int64_t per_group = cut.per_group(), channels = per_group / cut.fold;
  const double count = double(cut.rows * per_group);
  for (int64_t s = 0; s < cut.outer; ++s)
    for (int64_t g = 0; g < cut.groups; ++g) {
      const double r = double(rstd[s * cut.groups + g]);
      double a = 0, b = 0;
      for (int64_t c = 0; c < channels; ++c) {
        const double w = weight ? double(weight[g * channels + c]) : 1;
        const int64_t from = s * cut.parts * cut.columns + g * per_group + c * cut.fold;
        for (int64_t i = from; i < from + cut.fold; ++i) a += w * sum_dy[i], b += w * sum_dyx[i];
      }
      const int64_t first = s * cut.columns + g * per_group;
      std::fill_n(k.shift + first, per_group, C(-r * a / count));
      std::fill_n(k.bend + first, per_group, C(-r * r * r * b / count));
    }
}

}  // namespace

// With xhat = (x - mean) rstd and g = dy weight: dx = rstd (g - avg(g) - xhat avg(g xhat)), averages over what shares statistics;
// fixed statistics (eval) leave dx = rstd g.
template <class T> void norm_channels_backward(Context& ctx, const NormGradOperands& o, const NormParams& params) {
  using C = Compute<T>;
  const bool wants_x = o.dx.defined(), fixed = params.op == NormOp::Batch && !params.training;
  const auto strides_or = [](V v, V other) -> const int64_t* { return v.defined() ? v.strides : other.strides; };
  const std::array<const int64_t*, 5> strides{o.dy.strides, o.x.strides, strides_or(o.dx, o.x),
                                              strides_or(o.dadd, o.dy), strides_or(o.y, o.x)};
  const GradView view(o.x, strides, params.op);
  const Cut cut(view, params);
  const int64_t cells = cut.cells(), partial = cells * cut.parts;
  const C* const mean = staged<C>(ctx, o.mean, true);
  const C* const rstd = staged<C>(ctx, o.rstd, true);
  const C* const weight = staged<C>(ctx, o.weight, true);
  const C* const offset = staged<C>(ctx, o.shift, true);
  C* const block = ctx.scratch_of<C>(5 * cells);
  const AffineGrad<C> k{block, block + cells, block + 2 * cells, block + 3 * cells, block + 4 * cells};
  cut.each([&](int64_t i, int64_t g, int64_t c) {
    k.mean[i] = mean[g], k.slope[i] = weight ? rstd[g] * weight[c] : rstd[g], k.bend[i] = k.shift[i] = 0;
    k.offset[i] = offset ? offset[c] : C(0);
  });
  const bool sums = !fixed || o.dweight.defined() || o.dbias.defined() || !wants_x;
  if (sums) {
    double* const sum_dy = ctx.scratch_of<double>(2 * partial);
    double* const sum_dyx = sum_dy + partial;
    if (cut.rows > 0) partial_sums<T>({o, false}, view, cut, k, sum_dy, sum_dyx);
    merge_parts(cut, sum_dy), merge_parts(cut, sum_dyx);
    weight_gradients(ctx, o, cut, sum_dy, sum_dyx, rstd);
    if (!fixed && cut.rows > 0) fill_bends(cut, sum_dy, sum_dyx, rstd, weight, k);
  }
  if (wants_x && cut.rows > 0) apply_grad<T>({o, sums}, view, cut, k);
}

#define TAPIR_INSTANTIATE(T)                                                        \
  template void norm_channels<T>(Context&, const NormOperands&, const NormParams&); \
  template void norm_channels_backward<T>(Context&, const NormGradOperands&, const NormParams&);
TAPIR_EACH_FLOAT(TAPIR_INSTANTIATE)
#undef TAPIR_INSTANTIATE

}  // namespace tapir::inline v0::cpu
