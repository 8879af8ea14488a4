// Pooling forward: a block of neighbouring channels (channels last) or of neighbouring outputs (other layouts) is kept in registers
// or the first cache while the window runs over it.
#include "pool_window.h"

namespace tapir::inline v0::cpu {
namespace {

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
};

template <class T> struct MaxPool {
  using A = typename PoolAcc<T>::type;
  const Windows& w;
  Field<T> x, y;
  Field<int64_t> indices;

  void take(const Best<A>& best, int64_t at, int64_t step, int64_t index_at, int64_t index_step, int64_t count) const {
    if (step == 1)
      for (int64_t l = 0; l < count; ++l) y.data[at + l] = T(best.value[l]);
    else
      for (int64_t l = 0; l < count; ++l) y.data[at + l * step] = T(best.value[l]);
    if (!indices.data) return;
    if (index_step == 1)
      for (int64_t l = 0; l < count; ++l) indices.data[index_at + l] = best.index[l];
    else
      for (int64_t l = 0; l < count; ++l) indices.data[index_at + l * index_step] = best.index[l];
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
        take(best, to + c0, 1, index_to + c0, 1, count);
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

  /// One output row of channel c, window by window: adaptive ones differ in size.
  void row_of_windows(int64_t n, int64_t c, int64_t i, int64_t j) const {
    const Span &a = w.spans[0][i], &b = w.spans[1][j];
    const T* plane = x.data + n * x.n + c * x.channel;
    Best<A> best;
    for (int64_t k = 0; k < w.out[2]; ++k) {
      const Span& d = w.spans[2][k];
      best.start(1);
      each_position(w, a, b, d, [&](int64_t z, int64_t u, int64_t v) {
        best.offer(0, 1, plane + z * x.at[0] + u * x.at[1] + v * x.at[2], 1, int32_t((z * w.in[1] + u) * w.in[2] + v),
                   0);
      });
      take(best, n * y.n + c * y.channel + i * y.at[0] + j * y.at[1] + k * y.at[2], 1,
           n * indices.n + c * indices.channel + i * indices.at[0] + j * indices.at[1] + k * indices.at[2], 1, 1);
    }
  }

  /// One output row of channel c, the lanes along it. Offset r of the window serves the outputs [lo, hi).
  void row_of_outputs(int64_t n, int64_t c, int64_t i, int64_t j, const PoolParams& params) const {
    const Span &a = w.spans[0][i], &b = w.spans[1][j];
    const int64_t stride = params.stride[2], padding = params.padding[2], dilation = params.dilation[2];
    Best<A> best;
    for (int64_t k0 = 0; k0 < w.out[2]; k0 += kPoolLanes) {
      const int64_t count = std::min(kPoolLanes, w.out[2] - k0);
      best.start(count);
      for (int64_t p = 0; p < a.count; ++p)
        for (int64_t q = 0; q < b.count; ++q)
          for (int64_t r = 0; r < params.kernel[2]; ++r) {
            const int64_t z = a.first + p * w.step[0], u = b.first + q * w.step[1],
                          start = k0 * stride - padding + r * dilation;
            const int64_t lo = start < 0 ? (-start + stride - 1) / stride : 0;
            const int64_t hi = std::min(count, start < w.in[2] ? (w.in[2] - 1 - start) / stride + 1 : 0);
            const int64_t v = start + lo * stride, step = stride * x.at[2];
            if (lo >= hi) continue;
            const T* from = x.data + n * x.n + c * x.channel + z * x.at[0] + u * x.at[1] + v * x.at[2];
            const auto index = int32_t((z * w.in[1] + u) * w.in[2] + v);
            if (step == 1) best.offer(lo, hi, from, 1, index, 1);
            else if (step == 2) best.offer(lo, hi, from, 2, index, int32_t(stride));
            else best.offer(lo, hi, from, step, index, int32_t(stride));
          }
      take(best, n * y.n + c * y.channel + i * y.at[0] + j * y.at[1] + k0 * y.at[2], y.at[2],
           n * indices.n + c * indices.channel + i * indices.at[0] + j * indices.at[1] + k0 * indices.at[2],
           indices.at[2], count);
    }
  }
};

template <class T> struct AvgPool {
  using A = typename PoolAcc<T>::type;
  const Windows& w;
  Field<T> x, y;

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
        each_position(w, a, b, d, [&](int64_t z, int64_t u, int64_t v) {
          const T* from = image + c0 + z * x.at[0] + u * x.at[1] + v * x.at[2];
          for (int64_t l = 0; l < count; ++l) sums[l] += A(from[l]);
        });
        for (int64_t l = 0; l < count; ++l) to[c0 + l] = T(sums[l] / share);
      }
    }
  }

  template <int Count>
  void vectors(const Span& a, const Span& b, const Span& d, const T* from, T* to, float share) const {
    Vec<float> sums[Count] = {};
    each_position(w, a, b, d, [&](int64_t z, int64_t u, int64_t v) {
#pragma GCC unroll 4
      for (int c = 0; c < Count; ++c)
        sums[c] += load_float(from + z * x.at[0] + u * x.at[1] + v * x.at[2] + c * kLanes<float>);
    });
    for (int c = 0; c < Count; ++c) store_as(to + c * kLanes<float>, sums[c] / share);
  }

  void row_of_outputs(int64_t n, int64_t c, int64_t i, int64_t j) const {
    const Span &a = w.spans[0][i], &b = w.spans[1][j], *d = w.spans[2];
    const T* plane = x.data + n * x.n + c * x.channel;
    T* to = y.data + n * y.n + c * y.channel + i * y.at[0] + j * y.at[1];
    if (x.at[2] == 1 && d[0].count >= kLanes<A>) {
      for (int64_t k = 0; k < w.out[2]; ++k)
        to[k * y.at[2]] = T(long_window(plane, a, b, d[k]) / A(w.share(a, b, d[k])));
      return;
    }
    for (int64_t k0 = 0; k0 < w.out[2]; k0 += kPoolLanes) {
      const int64_t count = std::min(kPoolLanes, w.out[2] - k0);
      A sums[kPoolLanes];
      std::fill_n(sums, count, A(0));
      for (int64_t z = a.first; z < a.first + a.count; ++z)
        for (int64_t u = b.first; u < b.first + b.count; ++u) {
          const T* row = plane + z * x.at[0] + u * x.at[1];
          for (int64_t k = 0; k < count; ++k)
            for (int64_t v = 0; v < d[k0 + k].count; ++v) sums[k] += A(row[(d[k0 + k].first + v) * x.at[2]]);
        }
      for (int64_t k = 0; k < count; ++k) to[(k0 + k) * y.at[2]] = T(sums[k] / A(w.share(a, b, d[k0 + k])));
    }
  }

  /// Windows over whole rows are one run of the plane.
  A long_window(const T* plane, const Span& a, const Span& b, const Span& d) const {
    const bool joined = d.count == w.in[2] && x.at[1] == w.in[2];
    A sum = 0;
    for (int64_t z = a.first; z < a.first + a.count; ++z)
      for (int64_t u = b.first; u < b.first + (joined ? 1 : b.count); ++u)
        sum += sum_run(plane + z * x.at[0] + u * x.at[1] + d.first, joined ? b.count * d.count : d.count);
    return sum;
  }
  static A sum_run(const T* from, int64_t count) {
    constexpr int lanes = kLanes<A>;
    A parts[lanes] = {}, rest = 0;
    int64_t v = 0;
    for (; v + lanes <= count; v += lanes)
      for (int l = 0; l < lanes; ++l) parts[l] += A(from[v + l]);
    for (; v < count; ++v) rest += A(from[v]);
    for (int l = 0; l < lanes; ++l) rest += parts[l];
    return rest;
  }
};

/// Runs f over all output rows, image by image; over each channel of its own when `by_channel`.
template <class F> void for_rows(const Windows& w, bool by_channel, F&& f) {
  const int64_t channels = by_channel ? w.c : 1, rows = w.n * channels * w.out[0] * w.out[1];
  const int64_t work = w.out[2] * (by_channel ? 1 : w.c) * std::max<int64_t>(1, volume(w.in) / volume(w.out));
  parallel_for(rows, std::max<int64_t>(1, 16384 / work), [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const int64_t j = row % w.out[1], i = row / w.out[1] % w.out[0], plane = row / (w.out[0] * w.out[1]);
      f(plane / channels, plane % channels, i, j);
    }
  });
}

template <class T> void pool_as(Context& ctx, V y, V indices, V x, const PoolParams& p) {
  const Windows w = windows(ctx, x, y, p);
  const auto fx = field<T>(x), fy = field<T>(y);
  if (p.op == PoolOp::Max || p.op == PoolOp::AdaptiveMax) {
    const MaxPool<T> max{w, fx, fy, indices.defined() ? field<int64_t>(indices) : Field<int64_t>()};
    if (channels_inside(fx, fy, max.indices))
      return for_rows(w, false, [&](int64_t n, int64_t, int64_t i, int64_t j) { max.row_of_channels(n, i, j); });
    for_rows(w, true, [&](int64_t n, int64_t c, int64_t i, int64_t j) {
      p.op == PoolOp::Max ? max.row_of_outputs(n, c, i, j, p) : max.row_of_windows(n, c, i, j);
    });
  } else {
    const AvgPool<T> avg{w, fx, fy};
    if constexpr (!std::is_integral_v<T>)
      if (channels_inside(fx, fy))
        return for_rows(w, false, [&](int64_t n, int64_t, int64_t i, int64_t j) { avg.row_of_channels(n, i, j); });
    for_rows(w, true, [&](int64_t n, int64_t c, int64_t i, int64_t j) { avg.row_of_outputs(n, c, i, j); });
  }
}

}  // namespace

void pool(Context& ctx, const entry::Pool& c) {
  if (c.y.numel() == 0) return;
  const TensorView y = with_three_axes(c.y), indices = with_three_axes(c.indices), x = with_three_axes(c.x);
  const PoolParams p = with_three_axes(c.params);
  switch (x.dtype) {
    case kFloat32: return pool_as<float>(ctx, y, indices, x, p);
    case kFloat64: return pool_as<double>(ctx, y, indices, x, p);
    case kFloat16: return pool_as<Half>(ctx, y, indices, x, p);
    case kBFloat16: return pool_as<BFloat16>(ctx, y, indices, x, p);
    case kInt64: return pool_as<int64_t>(ctx, y, indices, x, p);
    case kInt32: return pool_as<int32_t>(ctx, y, indices, x, p);
    case kInt16: return pool_as<int16_t>(ctx, y, indices, x, p);
    case kInt8: return pool_as<int8_t>(ctx, y, indices, x, p);
    case kUInt8: return pool_as<uint8_t>(ctx, y, indices, x, p);
    default: fail(ErrorKind::Value, "[pool] expected a numeric dtype, got {}", x.dtype);
  }
}

}  // namespace tapir::inline v0::cpu
