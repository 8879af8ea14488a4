#include <cmath>

#include "../../core/parallel.h"
#include "norm.h"

namespace tapir::inline v0::cpu {
namespace {

constexpr int64_t kGrain = 16384;  // elements: some 10 us

/// x as rows of `width` elements: the last `axes` dimensions. K operands of its shape.
template <int K> struct RowView {
  Walk<K> rows, inside;

  RowView(V x, int64_t axes, const std::array<const int64_t*, K>& strides)
      : rows(head(x, axes), strides), inside(tail(x, axes), tails(strides, x.rank - axes)) {}
  static Shape head(V x, int64_t axes) { return std::span(x.sizes, size_t(x.rank - axes)); }
  static Shape tail(V x, int64_t axes) { return std::span(x.sizes + (x.rank - axes), size_t(axes)); }
  static std::array<const int64_t*, K> tails(std::array<const int64_t*, K> strides, int64_t from) {
    for (auto& s : strides) s += from;
    return strides;
  }
  int64_t width() const { return inside.total; }
  int64_t grain() const { return std::max<int64_t>(1, kGrain / std::max<int64_t>(1, width())); }

  /// f(row, offsets of its first elements) for rows [first, last).
  template <class F> void each(int64_t first, int64_t last, F&& f) const {
    rows.run(first, last, [&](int64_t row, int64_t n, std::array<int64_t, size_t(K)> at) {
      for (int64_t i = 0; i < n; ++i) {
        f(row + i, at);
        for (int k = 0; k < K; ++k) at[size_t(k)] += rows.step(k);
      }
    });
  }
  /// f(position in the row, count, offsets) for segments of a row.
  template <class F> void segments(const std::array<int64_t, size_t(K)>& base, F&& f) const {
    inside.run(0, inside.total, [&](int64_t position, int64_t n, std::array<int64_t, size_t(K)> at) {
      for (int k = 0; k < K; ++k) at[size_t(k)] += base[size_t(k)];
      for (int64_t done = 0; done < n; done += kSegment) {
        f(position + done, std::min(kSegment, n - done), at);
        for (int k = 0; k < K; ++k) at[size_t(k)] += kSegment * inside.step(k);
      }
    });
  }
};

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
  const RowView<2> view(c.x, c.params.axes, {c.x.strides, c.y.strides});
  const int64_t width = view.width();
  C* const means = rms ? nullptr : staged<C>(ctx, c.mean, false);
  C* const rstds = staged<C>(ctx, c.rstd, false);
  const C* const weight = staged<C>(ctx, c.weight, true);
  const C* const bias = staged<C>(ctx, c.bias, true);
  const int64_t xs = view.inside.step(0), ys = view.inside.step(1);
  parallel_for(view.rows.total, view.grain(), [&](int64_t first, int64_t last) {
    alignas(64) C from[kSegment], to[kSegment];
    view.each(first, last, [&](int64_t row, const std::array<int64_t, 2>& base) {
      Moments moments;
      double squares = 0;
      view.segments(base, [&](int64_t, int64_t n, const std::array<int64_t, 2>& at) {
        const C* const x = read_row(c.x.as<T>() + at[0], xs, n, from);
        if (rms) squares += sum_of_squares(x, n);
        else moments.add(x, n);
      });
      const C mean = rms ? C(0) : C(moments.mean);
      const C rstd = C(1 / std::sqrt((rms ? squares / double(width) : moments.variance()) + c.params.eps));
      if (means) means[row] = mean;
      if (rstds) rstds[row] = rstd;
      view.segments(base, [&](int64_t position, int64_t n, const std::array<int64_t, 2>& at) {
        const C* const x = read_row(c.x.as<T>() + at[0], xs, n, from);
        C* const y = row_target(c.y.as<T>() + at[1], ys, to);
        scale_row(x, y, n, mean, rstd, weight ? weight + position : nullptr, bias ? bias + position : nullptr);
        write_row(c.y.as<T>() + at[1], ys, n, y);
      });
    });
  });
  if (means) unstage(c.mean, means);
  if (rstds) unstage(c.rstd, rstds);
}

// With xhat = (x - mean) rstd and g = dy weight: dx = rstd (g - avg(g) - xhat avg(g xhat)); Rms has no avg(g).
template <class T> void norm_rows_backward(Context& ctx, const entry::NormBackward& c) {
  using C = Compute<T>;
  const bool rms = c.params.op == NormOp::Rms, wants_x = c.dx.defined();
  const RowView<3> view(c.x, c.params.axes, {c.dy.strides, c.x.strides, wants_x ? c.dx.strides : c.x.strides});
  const int64_t rows = view.rows.total, width = view.width();
  const C* const means = rms ? nullptr : staged<C>(ctx, c.mean, true);
  const C* const rstds = staged<C>(ctx, c.rstd, true);
  const C* const weight = staged<C>(ctx, c.weight, true);
  const WeightSums<C> sums(ctx, c, rows, width);
  const int64_t gs = view.inside.step(0), xs = view.inside.step(1), ds = view.inside.step(2);
  const auto backward_row = [&](int64_t part, int64_t row, const std::array<int64_t, 3>& base) {
    alignas(64) C dy_buffer[kSegment], x_buffer[kSegment], to[kSegment];
    const C mean = means ? means[row] : C(0), rstd = rstds[row];
    double s1 = 0, s2 = 0;
    view.segments(base, [&](int64_t position, int64_t n, const std::array<int64_t, 3>& at) {
      const C* const dy = read_row(c.dy.as<T>() + at[0], gs, n, dy_buffer);
      const C* const x = read_row(c.x.as<T>() + at[1], xs, n, x_buffer);
      if (wants_x) gradient_sums(dy, x, weight ? weight + position : nullptr, n, mean, s1, s2);
      sums.add(part, position, n, dy, x, mean, rstd);
    });
    if (!wants_x) return;
    const C minus = rms ? C(0) : C(s1 / double(width)), slope = C(s2 / double(width) * double(rstd) * double(rstd));
    view.segments(base, [&](int64_t position, int64_t n, const std::array<int64_t, 3>& at) {
      const C* const dy = read_row(c.dy.as<T>() + at[0], gs, n, dy_buffer);
      const C* const x = read_row(c.x.as<T>() + at[1], xs, n, x_buffer);
      C* const dx = row_target(c.dx.as<T>() + at[2], ds, to);
      const C* const w = weight ? weight + position : nullptr;
      if (w)
        for (int64_t i = 0; i < n; ++i) dx[i] = rstd * (dy[i] * w[i] - minus - (x[i] - mean) * slope);
      else
        for (int64_t i = 0; i < n; ++i) dx[i] = rstd * (dy[i] - minus - (x[i] - mean) * slope);
      write_row(c.dx.as<T>() + at[2], ds, n, dx);
    });
  };
  parallel_for(sums.parts, std::max<int64_t>(1, view.grain() / sums.per_part), [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) {
      sums.clear(part);
      view.each(part * sums.per_part, std::min(rows, (part + 1) * sums.per_part),
                [&](int64_t row, const std::array<int64_t, 3>& base) { backward_row(part, row, base); });
    }
  });
  sums.finish(ctx, sums.dweight, c.dweight);
  sums.finish(ctx, sums.dbias, c.dbias);
}

#define TAPIR_INSTANTIATE(T)                                \
  template void norm_rows<T>(Context&, const entry::Norm&); \
  template void norm_rows_backward<T>(Context&, const entry::NormBackward&);
TAPIR_EACH_FLOAT(TAPIR_INSTANTIATE)
#undef TAPIR_INSTANTIATE

}  // namespace tapir::inline v0::cpu
