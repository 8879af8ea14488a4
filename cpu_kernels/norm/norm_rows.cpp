#include <cmath>

#include "../../core/parallel.h"
#include "../pack.h"
#include "norm.h"

namespace tapir::inline v0::cpu {
namespace {

constexpr int64_t kGrain = 8192;  // elements: some 5 us

/// K operands of one shape as rows of `width` elements, the last `axes` dimensions, that are dense in each.
template <int K> struct RowView {
  Walk<K> rows;
  int64_t width = 1;

  RowView(V x, int64_t axes, const std::array<const int64_t*, K>& strides)
      : rows(Shape(std::span(x.sizes, size_t(x.rank - axes))), strides) {
    for (int64_t d = x.rank - axes; d < x.rank; ++d) width *= x.sizes[d];
  }
  int64_t grain() const { return std::max<int64_t>(1, kGrain / std::max<int64_t>(1, width)); }

  /// f(row, offsets of its first elements) for rows [first, last).
  template <class F> void each(int64_t first, int64_t last, F&& f) const {
    rows.run(first, last, [&](int64_t row, int64_t n, std::array<int64_t, size_t(K)> at) {
      for (int64_t i = 0; i < n; ++i) {
        f(row + i, at);
        for (int k = 0; k < K; ++k) at[size_t(k)] += rows.step(k);
      }
    });
  }
  /// f(position in the row, count) for segments of a row.
  template <class F> void segments(F&& f) const {
    for (int64_t done = 0; done < width; done += kSegment) f(done, std::min(kSegment, width - done));
  }
};
/// x where its rows are dense, else a place for such: a transposition costs less than elements that lie apart, each with a line of its own.
TensorView with_dense_rows(Context& ctx, V x, int64_t axes, bool read) {
  if (is_dense_inside(x, axes)) return x;
  return read ? dense(ctx, x, x.dtype) : scratch_like(ctx, x, x.dtype);
}

template <class C> void scale_row(const C* x, C* y, int64_t n, C mean, C rstd, const C* weight, const C* bias) {
  if (weight && bias)
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd * weight[i] + bias[i];
  else if (weight)
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd * weight[i];
  else if (bias)
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd + bias[i];
  else
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd;
}

template <class C> double sum_of_squares(const C* x, int64_t n) {
  C sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
  return double(sum);
}

/// Sums over a segment of g and g (x - mean), where g = dy weight.
template <class C>
void gradient_sums(const C* dy, const C* x, const C* weight, int64_t n, C mean, double& s1, double& s2) {
  C a = 0, b = 0;
  if (weight) {
#pragma omp simd reduction(+ : a, b)
    for (int64_t i = 0; i < n; ++i) {
      const C g = dy[i] * weight[i];
      a += g, b += g * (x[i] - mean);
    }
  } else {
#pragma omp simd reduction(+ : a, b)
    for (int64_t i = 0; i < n; ++i) a += dy[i], b += dy[i] * (x[i] - mean);
  }
  s1 += double(a), s2 += double(b);
}

/// The gradients of weight and bias are sums over rows, taken by parts that the shape alone decides and then over the parts.
template <class C> struct WeightSums {
  int64_t rows, width, per_part, parts;
  C *dweight, *dbias;  // (parts, width)

  WeightSums(Context& ctx, const entry::NormBackward& c, int64_t rows, int64_t width)
      : rows(rows), width(width), per_part(std::clamp<int64_t>(rows / 64, 8, 512)),
        parts((rows + per_part - 1) / per_part),
        dweight(c.dweight.defined() ? ctx.scratch_of<C>(parts * width) : nullptr),
        dbias(c.dbias.defined() ? ctx.scratch_of<C>(parts * width) : nullptr) {}

  void clear(int64_t part) const {
    if (dweight) std::fill_n(dweight + part * width, width, C(0));
    if (dbias) std::fill_n(dbias + part * width, width, C(0));
  }
  void add(int64_t part, int64_t position, int64_t n, const C* dy, const C* x, C mean, C rstd) const {
    C* const w = dweight ? dweight + part * width + position : nullptr;
    C* const b = dbias ? dbias + part * width + position : nullptr;
    if (w && b) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) w[i] += dy[i] * ((x[i] - mean) * rstd), b[i] += dy[i];
      return;
    }
    if (w)
      for (int64_t i = 0; i < n; ++i) w[i] += dy[i] * ((x[i] - mean) * rstd);
    if (b)
      for (int64_t i = 0; i < n; ++i) b[i] += dy[i];
  }
  void finish(Context& ctx, const C* from, V out) const {
    if (!from) return;
    C* const to = staged<C>(ctx, out, false);
    parallel_for(width, std::max<int64_t>(64, kGrain / std::max<int64_t>(1, parts)), [&](int64_t first, int64_t last) {
      std::fill(to + first, to + last, C(0));
      for (int64_t p = 0; p < parts; ++p)
        for (int64_t i = first; i < last; ++i) to[i] += from[p * width + i];
    });
    unstage(out, to);
  }
};

}  // namespace

template <class T> void norm_rows(Context& ctx, const entry::Norm& c) {
  using C = Compute<T>;
  const bool rms = c.params.op == NormOp::Rms;
  const int64_t axes = c.params.axes;
  const TensorView x = with_dense_rows(ctx, c.x, axes, true), y = with_dense_rows(ctx, c.y, axes, false);
  const RowView<2> view(x, axes, {x.strides, y.strides});
  const int64_t width = view.width;
  C* const means = rms ? nullptr : staged<C>(ctx, c.mean, false);
  C* const rstds = staged<C>(ctx, c.rstd, false);
  const C* const weight = staged<C>(ctx, c.weight, true);
  const C* const bias = staged<C>(ctx, c.bias, true);
  parallel_for(view.rows.total, view.grain(), [&](int64_t first, int64_t last) {
    alignas(64) C from[kSegment], to[kSegment];
    view.each(first, last, [&](int64_t row, const std::array<int64_t, 2>& at) {
      const T* const x_row = x.as<T>() + at[0];
      T* const y_row = y.as<T>() + at[1];
      Moments moments;
      double squares = 0;
      view.segments([&](int64_t done, int64_t n) {
        const C* const part = read_row(x_row + done, 1, n, from);
        if (rms) squares += sum_of_squares(part, n);
        else moments.add(part, n);
      });
      const C mean = rms ? C(0) : C(moments.mean);
      const C rstd = C(1 / std::sqrt((rms ? squares / double(width) : moments.variance()) + c.params.eps));
      if (means) means[row] = mean;
      if (rstds) rstds[row] = rstd;
      view.segments([&](int64_t done, int64_t n) {
        const C* const part = read_row(x_row + done, 1, n, from);
        C* const result = row_target(y_row + done, 1, to);
        scale_row(part, result, n, mean, rstd, weight ? weight + done : nullptr, bias ? bias + done : nullptr);
        write_row(y_row + done, 1, n, result);
      });
    });
  });
  if (y.data != c.y.data) copy(ctx, {c.y, y});
  if (means) unstage(c.mean, means);
  if (rstds) unstage(c.rstd, rstds);
}

// With xhat = (x - mean) rstd and g = dy weight: dx = rstd (g - avg(g) - xhat avg(g xhat)); Rms has no avg(g).
template <class T> void norm_rows_backward(Context& ctx, const entry::NormBackward& c) {
  using C = Compute<T>;
  const bool rms = c.params.op == NormOp::Rms, wants_x = c.dx.defined();
  const int64_t axes = c.params.axes;
  const TensorView x = with_dense_rows(ctx, c.x, axes, true), dy = with_dense_rows(ctx, c.dy, axes, true),
                   dx = wants_x ? with_dense_rows(ctx, c.dx, axes, false) : x;
  const RowView<3> view(x, axes, {dy.strides, x.strides, dx.strides});
  const int64_t rows = view.rows.total, width = view.width;
  const C* const means = rms ? nullptr : staged<C>(ctx, c.mean, true);
  const C* const rstds = staged<C>(ctx, c.rstd, true);
  const C* const weight = staged<C>(ctx, c.weight, true);
  const WeightSums<C> sums(ctx, c, rows, width);
  const auto backward_row = [&](int64_t part, int64_t row, const std::array<int64_t, 3>& at) {
    alignas(64) C dy_buffer[kSegment], x_buffer[kSegment], to[kSegment];
    const C mean = means ? means[row] : C(0), rstd = rstds[row];
    double s1 = 0, s2 = 0;
    view.segments([&](int64_t done, int64_t n) {
      const C* const g = read_row(dy.as<T>() + at[0] + done, 1, n, dy_buffer);
      const C* const v = read_row(x.as<T>() + at[1] + done, 1, n, x_buffer);
      if (wants_x) gradient_sums(g, v, weight ? weight + done : nullptr, n, mean, s1, s2);
      sums.add(part, done, n, g, v, mean, rstd);
    });
    if (!wants_x) return;
    const C minus = rms ? C(0) : C(s1 / double(width)), slope = C(s2 / double(width) * double(rstd) * double(rstd));
    view.segments([&](int64_t done, int64_t n) {
      const C* const g = read_row(dy.as<T>() + at[0] + done, 1, n, dy_buffer);
      const C* const v = read_row(x.as<T>() + at[1] + done, 1, n, x_buffer);
      C* const result = row_target(dx.as<T>() + at[2] + done, 1, to);
      const C* const w = weight ? weight + done : nullptr;
      if (w)
        for (int64_t i = 0; i < n; ++i) result[i] = rstd * (g[i] * w[i] - minus - (v[i] - mean) * slope);
      else
        for (int64_t i = 0; i < n; ++i) result[i] = rstd * (g[i] - minus - (v[i] - mean) * slope);
      write_row(dx.as<T>() + at[2] + done, 1, n, result);
    });
  };
  parallel_for(sums.parts, std::max<int64_t>(1, view.grain() / sums.per_part), [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) {
      sums.clear(part);
      view.each(part * sums.per_part, std::min(rows, (part + 1) * sums.per_part),
                [&](int64_t row, const std::array<int64_t, 3>& base) { backward_row(part, row, base); });
    }
  });
  if (wants_x && dx.data != c.dx.data) copy(ctx, {c.dx, dx});
  sums.finish(ctx, sums.dweight, c.dweight);
  sums.finish(ctx, sums.dbias, c.dbias);
}

#define TAPIR_INSTANTIATE(T)                                \
  template void norm_rows<T>(Context&, const entry::Norm&); \
  template void norm_rows_backward<T>(Context&, const entry::NormBackward&);
TAPIR_EACH_FLOAT(TAPIR_INSTANTIATE)
#undef TAPIR_INSTANTIATE

}  // namespace tapir::inline v0::cpu
