// Pooling forward: a block of neighbouring channels (channels last) or of neighbouring outputs (planes) is kept in registers or the first
// cache while the window runs over it. Planes are dense; short rows, which fill no vector, and windows that differ in size are gathered.
#include "../../core/arithmetic.h"
#include "../../core/dispatch.h"
#include "../reduce/lanes.h"
#include "pool_window.h"

namespace tapir::inline v0::cpu {
namespace {

constexpr int64_t kShortRow = 16;  // outputs
constexpr int64_t kLongRun = 16;   // elements
constexpr int64_t kMostPlaces = 1 << 16;

/// Where the outputs of a plane read: at[r * outputs + o] for element r of the window of output o, -1 where it has fewer.
struct Places {
  int64_t outputs, most;
  int32_t* at;
};
/// f(o, window) for the outputs of a plane, the window as its spans.
template <class F> void each_output(const Windows& w, F&& f) {
  for (int64_t i = 0, o = 0; i < w.out[0]; ++i)
    for (int64_t j = 0; j < w.out[1]; ++j)
      for (int64_t k = 0; k < w.out[2]; ++k) f(o++, w.spans[0][i], w.spans[1][j], w.spans[2][k]);
}
int64_t largest_window(const Windows& w) {
  int64_t largest = 1;
  for (int d = 0; d < 3; ++d) {
    int64_t most = 0;
    for (int64_t o = 0; o < w.out[d]; ++o) most = std::max(most, w.spans[d][o].count);
    largest *= most;
  }
  return largest;
}
std::array<Span, 3> spans_of(const Windows& w, int64_t output) {
  return {w.spans[0][output / (w.out[1] * w.out[2])], w.spans[1][output / w.out[2] % w.out[1]],
          w.spans[2][output % w.out[2]]};
}
Places places_of(Context& ctx, const Windows& w) {
  Places p{volume(w.out), largest_window(w), nullptr};
  p.at = ctx.scratch_of<int32_t>(p.most * p.outputs);
  std::fill_n(p.at, p.most * p.outputs, -1);
  each_output(w, [&](int64_t o, const Span& a, const Span& b, const Span& d) {
    int32_t* to = p.at + o;
    each_position(w, a, b, d, [&](int64_t z, int64_t u, int64_t v) {
      *to = int32_t((z * w.in[1] + u) * w.in[2] + v), to += p.outputs;
    });
  });
  return p;
}

/// f(lo, hi, at, stride) for each position of the windows of outputs [k0, k0 + count) of a row, in order: output k0 + l reads element
/// at + (l - lo) stride of the plane where lo <= l < hi, and nothing elsewhere. A usual stride is a constant.
template <class F>
void each_run(const Windows& w, const PoolParams& p, int64_t i, int64_t j, int64_t k0, int64_t count, F&& f) {
  const Span &a = w.spans[0][i], &b = w.spans[1][j], one{0, 1, 1};
  const int64_t stride = p.stride[2];
  each_position(w, a, b, one, [&](int64_t z, int64_t u, int64_t) {
    for (int64_t r = 0; r < p.kernel[2]; ++r) {
      const int64_t start = k0 * stride - p.padding[2] + r * w.step[2], last = start + (count - 1) * stride;
      const int64_t lo = start < 0 ? (-start + stride - 1) / stride : 0;
      const int64_t hi = last < w.in[2] ? count : start < w.in[2] ? (w.in[2] - 1 - start) / stride + 1 : 0;
      if (lo >= hi) continue;
      const int64_t at = (z * w.in[1] + u) * w.in[2] + start + lo * stride;
      if (stride == 1) f(lo, hi, at, std::integral_constant<int64_t, 1>());
      else if (stride == 2) f(lo, hi, at, std::integral_constant<int64_t, 2>());
      else f(lo, hi, at, stride);
    }
  });
}

/// The largest values so far and where they were; the first position always enters, NaN wins, later ones only if larger.
template <class A> struct Best {
  A value[kPoolLanes];
  int32_t index[kPoolLanes];
  void start(int64_t count) {
    std::fill_n(
        value, count,
        std::numeric_limits<A>::has_infinity ? -std::numeric_limits<A>::infinity() : std::numeric_limits<A>::lowest());
    std::fill_n(index, count, -1);
  }
  template <class T>
  void offer(int64_t lo, int64_t hi, const T* x, int64_t stride, int32_t index0, int32_t index_step) {
    for (int64_t i = lo; i < hi; ++i) {
      const A v = A(x[(i - lo) * stride]);
      const bool wins = (v > value[i]) | (v != v) | (index[i] < 0);
      value[i] = wins ? v : value[i];
      index[i] = wins ? index0 + int32_t(i - lo) * index_step : index[i];
    }
  }
  template <class T> void offer_places(int64_t count, const T* x, const int32_t* at) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const int32_t place = at[i];
      const A v = A(x[place < 0 ? 0 : place]);
      const bool wins = (place >= 0) & ((v > value[i]) | (v != v) | (index[i] < 0));
      value[i] = wins ? v : value[i];
      index[i] = wins ? place : index[i];
    }
  }
};

template <class T> struct MaxPool {
  using A = typename PoolAcc<T>::type;
  const Windows& w;
  Field<T> x, y;
  Field<int64_t> indices;

  void take(const Best<A>& best, int64_t at, int64_t index_at, int64_t count) const {
    for (int64_t l = 0; l < count; ++l) y.data[at + l] = T(best.value[l]);
    if (!indices.data) return;
    for (int64_t l = 0; l < count; ++l) indices.data[index_at + l] = best.index[l];
  }

  /// One output row of image n, channels last.
  void row_of_channels(int64_t n, int64_t i, int64_t j) const {
    const Span &a = w.spans[0][i], &b = w.spans[1][j];
    Best<A> best;
    for (int64_t k = 0; k < w.out[2]; ++k) {
      const Span& d = w.spans[2][k];
      const T* image = x.data + n * x.n;
      const int64_t to = n * y.n + i * y.at[0] + j * y.at[1] + k * y.at[2];
      const int64_t index_to = n * indices.n + i * indices.at[0] + j * indices.at[1] + k * indices.at[2];
      int64_t c0 = 0;
      if constexpr (FloatLike<T>) {
        for (; c0 + 4 * kLanes<float> <= w.c; c0 += 4 * kLanes<float>)
          vectors<4>(a, b, d, image + c0, to + c0, index_to + c0);
        for (; c0 + kLanes<float> <= w.c; c0 += kLanes<float>) vectors<1>(a, b, d, image + c0, to + c0, index_to + c0);
      }
      for (; c0 < w.c; c0 += kPoolLanes) {
        const int64_t count = std::min(kPoolLanes, w.c - c0);
        best.start(count);
        each_position(w, a, b, d, [&](int64_t z, int64_t u, int64_t v) {
          best.offer(0, count, image + c0 + z * x.at[0] + u * x.at[1] + v * x.at[2], 1,
                     int32_t((z * w.in[1] + u) * w.in[2] + v), 0);
        });
        take(best, to + c0, index_to + c0, count);
      }
    }
  }

  static void store_wide(int64_t* to, Vec<int32_t> v) {
    using HalfVec = Vec<int32_t, kVectorBytes / 2>;
    HalfVec halves[2];
    std::memcpy(halves, &v, sizeof v);
    store(to, __builtin_convertvector(halves[0], Vec<int64_t>));
    store(to + kLanes<int64_t>, __builtin_convertvector(halves[1], Vec<int64_t>));
  }

  /// The same for `Count` vectors of channels, all in registers.
  template <int Count>
  void vectors(const Span& a, const Span& b, const Span& d, const T* from, int64_t to, int64_t index_to) const {
    constexpr int lanes = kLanes<float>;
    Vec<float> value[Count];
    Vec<int32_t> index[Count];
    for (int c = 0; c < Count; ++c)
      value[c] = Vec<float>{} - std::numeric_limits<float>::infinity(), index[c] = Vec<int32_t>{} - 1;
    each_position(w, a, b, d, [&](int64_t z, int64_t u, int64_t v) {
      const auto here = int32_t((z * w.in[1] + u) * w.in[2] + v);
      const T* p = from + z * x.at[0] + u * x.at[1] + v * x.at[2];
#pragma GCC unroll 4
      for (int c = 0; c < Count; ++c) {
        const Vec<float> got = load_float(p + c * lanes);
        const auto wins = (got > value[c]) | (got != got) | (index[c] < 0);
        value[c] = wins ? got : value[c];
        index[c] = wins ? Vec<int32_t>{} + here : index[c];
      }
    });
    for (int c = 0; c < Count; ++c) {
      store_as(y.data + to + c * lanes, value[c]);
      if (indices.data) store_wide(indices.data + index_to + c * lanes, index[c]);
    }
  }

  /// One output row of channel c, the lanes along it.
  void row_of_outputs(int64_t n, int64_t c, int64_t i, int64_t j, const PoolParams& params) const {
    const T* plane = x.data + n * x.n + c * x.channel;
    const int64_t row = (i * w.out[1] + j) * w.out[2];
    Best<A> best;
    for (int64_t k0 = 0; k0 < w.out[2]; k0 += kPoolLanes) {
      const int64_t count = std::min(kPoolLanes, w.out[2] - k0);
      best.start(count);
      each_run(w, params, i, j, k0, count, [&](int64_t lo, int64_t hi, int64_t at, auto stride) {
        best.offer(lo, hi, plane + at, stride, int32_t(at), int32_t(stride));
      });
      take(best, n * y.n + c * y.channel + row + k0, n * indices.n + c * indices.channel + row + k0, count);
    }
  }
  /// Outputs [o, o + count) of the plane of channel c.
  void block_of_plane(int64_t n, int64_t c, int64_t o, int64_t count, const Places& places) const {
    Best<A> best;
    best.start(count);
    for (int64_t r = 0; r < places.most; ++r)
      best.offer_places(count, x.data + n * x.n + c * x.channel, places.at + r * places.outputs + o);
    take(best, n * y.n + c * y.channel + o, n * indices.n + c * indices.channel + o, count);
  }
  /// One output of the plane of channel c.
  void window(int64_t n, int64_t c, int64_t o) const {
    const T* plane = x.data + n * x.n + c * x.channel;
    const auto [a, b, d] = spans_of(w, o);
    Best<A> best;
    best.start(1);
    each_position(w, a, b, d, [&](int64_t z, int64_t u, int64_t v) {
      const auto at = int32_t((z * w.in[1] + u) * w.in[2] + v);
      best.offer(0, 1, plane + at, 1, at, 0);
    });
    take(best, n * y.n + c * y.channel + o, n * indices.n + c * indices.channel + o, 1);
  }
};

template <class T> struct AvgPool {
  using A = typename MeanAcc<T>::type;
  const Windows& w;
  Field<T> x, y;
  A* shares = nullptr;  // of planes: what the sum of each output is divided by

  void row_of_channels(int64_t n, int64_t i, int64_t j) const {
    const Span &a = w.spans[0][i], &b = w.spans[1][j];
    for (int64_t k = 0; k < w.out[2]; ++k) {
      const Span& d = w.spans[2][k];
      const T* image = x.data + n * x.n;
      T* to = y.data + n * y.n + i * y.at[0] + j * y.at[1] + k * y.at[2];
      const A share = A(w.share(a, b, d));
      int64_t c0 = 0;
      if constexpr (FloatLike<T>) {
        for (; c0 + 4 * kLanes<float> <= w.c; c0 += 4 * kLanes<float>) vectors<4>(a, b, d, image + c0, to + c0, share);
        for (; c0 + kLanes<float> <= w.c; c0 += kLanes<float>) vectors<1>(a, b, d, image + c0, to + c0, share);
      }
      for (; c0 < w.c; c0 += kPoolLanes) {
        const int64_t count = std::min(kPoolLanes, w.c - c0);
        A sums[kPoolLanes];
        std::fill_n(sums, count, A(0));
        each_position(w, a, b, {0, 1, 1}, [&](int64_t z, int64_t u, int64_t) {
          A row[kPoolLanes] = {};
          for (int64_t v = d.first; v < d.first + d.count; ++v) {
            const T* from = image + c0 + z * x.at[0] + u * x.at[1] + v * x.at[2];
            for (int64_t l = 0; l < count; ++l) row[l] = wrap_add(row[l], A(from[l]));
          }
          for (int64_t l = 0; l < count; ++l) sums[l] = wrap_add(sums[l], row[l]);
        });
        for (int64_t l = 0; l < count; ++l) to[c0 + l] = T(sums[l] / share);
      }
    }
  }

  template <int Count>
  void vectors(const Span& a, const Span& b, const Span& d, const T* from, T* to, float share) const {
    Vec<float> sums[Count] = {};
    each_position(w, a, b, {0, 1, 1}, [&](int64_t z, int64_t u, int64_t) {
      Vec<float> row[Count] = {};  // of the window: float32 adds few terms at a time
      for (int64_t v = d.first; v < d.first + d.count; ++v)
#pragma GCC unroll 4
        for (int c = 0; c < Count; ++c)
          row[c] += load_float(from + z * x.at[0] + u * x.at[1] + v * x.at[2] + c * kLanes<float>);
#pragma GCC unroll 4
      for (int c = 0; c < Count; ++c) sums[c] += row[c];
    });
    for (int c = 0; c < Count; ++c) store_as(to + c * kLanes<float>, sums[c] / share);
  }

  void row_of_outputs(int64_t n, int64_t c, int64_t i, int64_t j, const PoolParams& params) const {
    const T* plane = x.data + n * x.n + c * x.channel;
    const int64_t row = (i * w.out[1] + j) * w.out[2];
    A sums[kPoolLanes];
    for (int64_t k0 = 0; k0 < w.out[2]; k0 += kPoolLanes) {
      const int64_t count = std::min(kPoolLanes, w.out[2] - k0);
      std::fill_n(sums, count, A(0));
      each_run(w, params, i, j, k0, count, [&](int64_t lo, int64_t hi, int64_t at, auto stride) {
        for (int64_t l = lo; l < hi; ++l) sums[l] = wrap_add(sums[l], A(plane[at + (l - lo) * stride]));
      });
      divide(sums, n, c, row + k0, count);
    }
  }
  void block_of_plane(int64_t n, int64_t c, int64_t o, int64_t count, const Places& places) const {
    const T* plane = x.data + n * x.n + c * x.channel;
    A sums[kPoolLanes] = {};
    for (int64_t r = 0; r < places.most; ++r) {
      const int32_t* at = places.at + r * places.outputs + o;
#pragma omp simd
      for (int64_t l = 0; l < count; ++l) {
        const A v = A(plane[at[l] < 0 ? 0 : at[l]]);
        sums[l] = wrap_add(sums[l], at[l] < 0 ? A(0) : v);
      }
    }
    divide(sums, n, c, o, count);
  }
  void divide(const A* sums, int64_t n, int64_t c, int64_t o, int64_t count) const {
    T* to = y.data + n * y.n + c * y.channel + o;
    for (int64_t l = 0; l < count; ++l) to[l] = T(sums[l] / shares[o + l]);
  }

  /// One output of the plane of channel c; a window over whole rows is one run.
  void window(int64_t n, int64_t c, int64_t o) const {
    const auto [a, b, d] = spans_of(w, o);
    const bool joined = d.count == w.in[2];
    const int64_t runs = joined ? 1 : b.count, length = joined ? b.count * d.count : d.count;
    A sum = 0;
    for (int64_t z = a.first; z < a.first + a.count; ++z)
      for (int64_t u = b.first; u < b.first + runs; ++u) {
        const T* from = x.data + n * x.n + c * x.channel + (z * w.in[1] + u) * w.in[2] + d.first;
        sum = wrap_add(sum, fold<kLongRun>(
                                from, length, A(0), [](T v) { return A(v); }, [](A p, A q) { return wrap_add(p, q); }));
      }
    divide(&sum, n, c, o, 1);
  }
};

/// Runs f(n, c, i, j) over all output rows, image by image; over each channel of its own when `by_channel`.
template <class F> void for_rows(const Windows& w, bool by_channel, F&& f) {
  const int64_t channels = by_channel ? w.c : 1, rows = w.n * channels * w.out[0] * w.out[1];
  const int64_t work = w.out[2] * (by_channel ? 1 : w.c) * std::max<int64_t>(1, volume(w.in) / volume(w.out));
  parallel_for(rows, std::max<int64_t>(1, 16384 / work),
               [&](int64_t first, int64_t last) { each_row(first, last, channels, w.out, f); });
}
/// Runs f(n, c, o) over all planes, and over the outputs o of each in steps of `step`, of which one costs `work`.
template <class F> void for_planes(const Windows& w, int64_t step, int64_t work, F&& f) {
  const int64_t blocks = (volume(w.out) + step - 1) / step;
  parallel_for(w.n * w.c * blocks, 16384 / std::clamp<int64_t>(work, 1, 16384), [&](int64_t first, int64_t last) {
    for (int64_t q = first; q < last; ++q) f(q / blocks / w.c, q / blocks % w.c, q % blocks * step);
  });
}

/// Rows of many outputs have these in the lanes; so have planes of short rows, by a list of what each reads, where that is short; the
/// rest is taken window by window.
template <class Pool>
void pool_planes(Context& ctx, const Windows& w, const Pool& pool, const PoolParams& p, bool regular) {
  const int64_t outputs = volume(w.out), largest = largest_window(w);
  const bool listed = outputs >= kShortRow && largest * outputs <= kMostPlaces;
  if (regular && (w.out[2] >= kShortRow || (outputs >= kShortRow && !listed)))
    return for_rows(w, true, [&](int64_t n, int64_t c, int64_t i, int64_t j) { pool.row_of_outputs(n, c, i, j, p); });
  if (!listed) return for_planes(w, 1, largest, [&](int64_t n, int64_t c, int64_t o) { pool.window(n, c, o); });
  const Places places = places_of(ctx, w);
  for_planes(w, kPoolLanes, kPoolLanes * largest, [&](int64_t n, int64_t c, int64_t o) {
    pool.block_of_plane(n, c, o, std::min(kPoolLanes, outputs - o), places);
  });
}

/// Channels last where `inside`; dense planes otherwise.
template <class T> void pool_as(Context& ctx, V y, V indices, V x, const PoolParams& p, bool inside) {
  const Windows w = windows(ctx, x, y, p);
  const auto fx = field<T>(x), fy = field<T>(y);
  if (p.op == PoolOp::Max || p.op == PoolOp::AdaptiveMax) {
    const MaxPool<T> max{w, fx, fy, indices.defined() ? field<int64_t>(indices) : Field<int64_t>()};
    if (inside)
      return for_rows(w, false, [&](int64_t n, int64_t, int64_t i, int64_t j) { max.row_of_channels(n, i, j); });
    return pool_planes(ctx, w, max, p, p.op == PoolOp::Max);
  }
  AvgPool<T> avg{w, fx, fy};
  if (inside)
    return for_rows(w, false, [&](int64_t n, int64_t, int64_t i, int64_t j) { avg.row_of_channels(n, i, j); });
  using A = typename AvgPool<T>::A;
  avg.shares = ctx.scratch_of<A>(volume(w.out));
  each_output(w, [&](int64_t o, const Span& a, const Span& b, const Span& d) { avg.shares[o] = A(w.share(a, b, d)); });
  pool_planes(ctx, w, avg, p, p.op == PoolOp::Avg);
}

}  // namespace

void pool(Context& ctx, const entry::Pool& c) {
  if (c.y.numel() == 0) return;
  const TensorView out = with_three_axes(c.y), indices_out = with_three_axes(c.indices);
  TensorView y = out, indices = indices_out, x = with_three_axes(c.x);
  const bool inside = y.strides[1] == 1 && x.strides[1] == 1 && (!c.indices.defined() || indices.strides[1] == 1);
  if (!inside && !is_dense_inside(x, 3)) x = dense(ctx, x, x.dtype);
  if (!inside && !is_dense_inside(y, 3)) y = scratch_like(ctx, y, y.dtype);
  if (!inside && c.indices.defined() && !is_dense_inside(indices, 3)) indices = scratch_like(ctx, indices, kInt64);
  const PoolParams p = with_three_axes(c.params);
  for_all("pool", x.dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, bool>) fail_dtype("pool", kBool);
    else pool_as<T>(ctx, y, indices, x, p, inside);
  });
  if (y.data != out.data) copy(ctx, {out, y});
  if (indices.data != indices_out.data) copy(ctx, {indices_out, indices});
}

}  // namespace tapir::inline v0::cpu
