#include <limits>

#include "../../core/denormals.h"
#include "../../core/dispatch.h"
#include "../../core/math.h"
#include "../kernels.h"
#include "../reduce/softmax_lanes.h"

namespace tapir::inline v0::cpu {
namespace {

/// K operands of one shape as lanes along `dim`. See Note [Lanes].
template <int K> struct Lanes {
  int64_t size;
  std::array<int64_t, size_t(K)> step;  // along a lane
  Walk<K> others;
  bool tiled;

  Lanes(V x, int64_t dim, const std::array<const int64_t*, K>& strides)
      : size(x.rank ? x.sizes[dim] : 1), others(x.shape(), strides, dim) {
    bool adjacent = true, side_by_side = true;
    for (int k = 0; k < K; ++k) {
      step[size_t(k)] = x.rank ? strides[size_t(k)][dim] : 1;
      adjacent = adjacent && step[size_t(k)] == 1;
      side_by_side = side_by_side && others.step(k) == 1;
    }
    tiled = others.inner() >= 4 && ((side_by_side && !adjacent) || size <= kShortLane);
  }
};

/// y = softmax(x) of one lane; y may be x. All -inf gives NaN.
template <class C> void softmax_row(const C* x, C* y, int64_t n, bool log) {
  const C top = top_of(x, n);
  if (log) {
    const C rest = math::log(C(sum_exponentials(x, n, top, [](int64_t, int64_t, const C*) {})));
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] - top - rest;
    return;
  }
  const C scale =
      1 / C(sum_exponentials(x, n, top, [y](int64_t i, int64_t count, const C* e) { std::copy_n(e, count, y + i); }));
  for (int64_t i = 0; i < n; ++i) y[i] *= scale;
}

template <class T> void softmax_rows(Context& ctx, V y, V x, const Lanes<2>& lanes, bool log) {
  using C = Compute<T>;
  const int64_t n = lanes.size, ys = lanes.step[0], xs = lanes.step[1];
  const bool direct = std::is_same_v<C, T> && ys == 1 && xs == 1;
  for_lanes<C>(ctx, lanes.others, n, direct ? 0 : n,
               [&](C* buffer, int64_t, int64_t count, const std::array<int64_t, 2>& at) {
                 for (int64_t i = 0; i < count; ++i) {
                   const C* const from = read_row(x.as<T>() + at[1] + i * lanes.others.step(1), xs, n, buffer);
                   T* const place = y.as<T>() + at[0] + i * lanes.others.step(0);
                   C* const to = row_target(place, ys, buffer);
                   softmax_row(from, to, n, log);
                   write_row(place, ys, n, to);
                 }
               });
}

/// One tile, brought into a buffer (size, width). y, x: the first lane; the offsets of its neighbours are `others.step`.
template <class T, class C>
void softmax_tile(T* y, const T* x, const Lanes<2>& lanes, int64_t width, C* tile, bool log) {
  alignas(64) C top[kTileWidth];
  ColumnSums<C, kTileWidth> sums(width, lanes.size);
  C* const sum = sums.sum;
  const int64_t y_step = lanes.others.step(0), x_step = lanes.others.step(1);
  std::fill_n(top, width, -std::numeric_limits<C>::infinity());
  for (int64_t k = 0; k < lanes.size; ++k) {
    C* const row = tile + k * width;
    const C* const from = read_row(x + k * lanes.step[1], x_step, width, row);
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) row[j] = from[j], top[j] = from[j] > top[j] ? from[j] : top[j];
  }
  for (int64_t k = 0; k < lanes.size; ++k) {
    C* const row = tile + k * width;
    if (log) {
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) row[j] -= top[j], sum[j] += math::exp(row[j]);
    } else {
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) row[j] = math::exp(row[j] - top[j]), sum[j] += row[j];
    }
    sums.end_row(k);
  }
  for (int64_t j = 0; j < width; ++j) sum[j] = log ? math::log(sum[j]) : 1 / sum[j];
  for (int64_t k = 0; k < lanes.size; ++k) {
    C* const row = tile + k * width;
    C* const to = row_target(y + k * lanes.step[0], y_step, row);
    if (log) {
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) to[j] = row[j] - sum[j];
    } else {
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) to[j] = row[j] * sum[j];
    }
    write_row(y + k * lanes.step[0], y_step, width, to);
  }
}

template <class T> void softmax_tiles(Context& ctx, V y, V x, const Lanes<2>& lanes, bool log) {
  using C = Compute<T>;
  const int64_t wanted = tile_width(lanes.size, sizeof(C));
  for_lanes<C>(ctx, lanes.others, lanes.size, lanes.size * wanted,
               [&](C* tile, int64_t, int64_t count, const std::array<int64_t, 2>& at) {
                 for (int64_t j = 0; j < count; j += wanted)
                   softmax_tile(y.as<T>() + at[0] + j * lanes.others.step(0),
                                x.as<T>() + at[1] + j * lanes.others.step(1), lanes, std::min(wanted, count - j), tile,
                                log);
               });
}

/// dx of one lane from y: (dy - sum(dy y)) y, or dy - e^y sum(dy) for log.
template <class C> void softmax_grad_row(const C* dy, const C* y, C* dx, int64_t n, bool log) {
  const C sum = C(sum_of_parts(n, 4096, [dy, y, log](int64_t i, int64_t last) {
    constexpr int kWidth = kLanes<C>, kAtOnce = 4;  // an addition waits for the one before it
    Vec<C> sums[kAtOnce] = {};
    for (; i + kAtOnce * kWidth <= last; i += kAtOnce * kWidth)
#pragma GCC unroll 4
      for (int q = 0; q < kAtOnce; ++q) {
        const Vec<C> v = load(dy + i + q * kWidth);
        sums[q] += log ? v : v * load(y + i + q * kWidth);
      }
    C part = sum_lanes<C>(sums[0] + sums[1] + (sums[2] + sums[3]));
    for (; i < last; ++i) part += log ? dy[i] : dy[i] * y[i];
    return part;
  }));
  if (log) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] - math::exp(y[i]) * sum;
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) dx[i] = (dy[i] - sum) * y[i];
  }
}

template <class T> void softmax_grad_rows(Context& ctx, V dx, V dy, V y, const Lanes<3>& lanes, bool log) {
  using C = Compute<T>;
  const int64_t n = lanes.size;
  const bool direct = std::is_same_v<C, T> && lanes.step == std::array<int64_t, 3>{1, 1, 1};
  for_lanes<C>(ctx, lanes.others, n, direct ? 0 : 2 * n,
               [&](C* buffer, int64_t, int64_t count, const std::array<int64_t, 3>& at) {
                 for (int64_t i = 0; i < count; ++i) {
                   const C* const g = read_row(dy.as<T>() + at[1] + i * lanes.others.step(1), lanes.step[1], n, buffer);
                   const C* const v = read_row(y.as<T>() + at[2] + i * lanes.others.step(2), lanes.step[2], n,
                                               buffer + (direct ? 0 : n));
                   T* const place = dx.as<T>() + at[0] + i * lanes.others.step(0);
                   C* const to = row_target(place, lanes.step[0], buffer);
                   softmax_grad_row(g, v, to, n, log);
                   write_row(place, lanes.step[0], n, to);
                 }
               });
}

/// Asks for n neighbours that are read kAhead rows later: rows of a tile lie far apart, where no processor fetches ahead.
constexpr int64_t kAhead = 4;
template <class T> void fetch_row(const T* p, int64_t n) {
  for (int64_t j = 0; j < n; j += int64_t(64 / sizeof(T))) __builtin_prefetch(p + j);
}

/// tile: 2 size * width elements, where dy and y stay between the two passes: neighbours in a lane may be a power of two apart. Null where
/// lanes are too long for wide tiles: both are read twice.
template <class T, class C>
void softmax_grad_tile(T* dx, const T* dy, const T* y, const Lanes<3>& lanes, int64_t width, C* tile, bool log) {
  alignas(64) C row[2 * kTileWidth];
  ColumnSums<C, kTileWidth> sums(width, lanes.size);
  C* const sum = sums.sum;
  const auto read = [&](int64_t k, C* g, C* v) {
    if (const int64_t next = k + kAhead; next < lanes.size)
      fetch_row(dy + next * lanes.step[1], width), fetch_row(y + next * lanes.step[2], width);
    const C* const from_g = read_row(dy + k * lanes.step[1], lanes.others.step(1), width, g);
    const C* const from_v = read_row(y + k * lanes.step[2], lanes.others.step(2), width, v);
    if (log) {
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) g[j] = from_g[j], v[j] = math::exp(from_v[j]);
    } else {
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) g[j] = from_g[j], v[j] = from_v[j];
    }
  };
  for (int64_t k = 0; k < lanes.size; ++k) {
    C *const g = tile ? tile + 2 * k * width : row, *const v = g + width;
    read(k, g, v);
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) sum[j] += log ? g[j] : g[j] * v[j];
    sums.end_row(k);
  }
  for (int64_t k = 0; k < lanes.size; ++k) {
    C *const g = tile ? tile + 2 * k * width : row, *const v = g + width;
    if (!tile) read(k, g, v);
    C* const to = row_target(dx + k * lanes.step[0], lanes.others.step(0), g);
    if (log) {
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) to[j] = g[j] - v[j] * sum[j];
    } else {
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) to[j] = (g[j] - sum[j]) * v[j];
    }
    write_row(dx + k * lanes.step[0], lanes.others.step(0), width, to);
  }
}

template <class T> void softmax_grad_tiles(Context& ctx, V dx, V dy, V y, const Lanes<3>& lanes, bool log) {
  using C = Compute<T>;
  const Walk<3>& others = lanes.others;
  const int64_t kept = tile_width(lanes.size, 2 * sizeof(C)), wanted = kept < 32 ? kTileWidth : kept;
  const bool keeps = wanted == kept;
  for_lanes<C>(ctx, others, lanes.size, keeps ? 2 * lanes.size * wanted : 0,
               [&](C* tile, int64_t, int64_t count, const std::array<int64_t, 3>& at) {
                 for (int64_t j = 0; j < count; j += wanted)
                   softmax_grad_tile(dx.as<T>() + at[0] + j * others.step(0), dy.as<T>() + at[1] + j * others.step(1),
                                     y.as<T>() + at[2] + j * others.step(2), lanes, std::min(wanted, count - j),
                                     keeps ? tile : nullptr, log);
               });
}

}  // namespace

void softmax(Context& ctx, const entry::Softmax& c) {
  if (c.x.numel() == 0) return;
  const Lanes<2> lanes(c.x, c.params.dim, {c.y.strides, c.x.strides});
  const detail::FlushDenormals flush(c.x.dtype);  // an exponential of -90 is denormal, and so is what is computed of it
  for_any_float("softmax", c.x.dtype, [&]<class T>() {
    if (lanes.tiled) softmax_tiles<T>(ctx, c.y, c.x, lanes, c.params.log);
    else softmax_rows<T>(ctx, c.y, c.x, lanes, c.params.log);
  });
}

void softmax_backward(Context& ctx, const entry::SoftmaxBackward& c) {
  if (c.y.numel() == 0) return;
  const Lanes<3> lanes(c.y, c.params.dim, {c.dx.strides, c.dy.strides, c.y.strides});
  const detail::FlushDenormals flush(c.y.dtype);
  for_any_float("softmax_backward", c.y.dtype, [&]<class T>() {
    if (lanes.tiled) softmax_grad_tiles<T>(ctx, c.dx, c.dy, c.y, lanes, c.params.log);
    else softmax_grad_rows<T>(ctx, c.dx, c.dy, c.y, lanes, c.params.log);
  });
}

}  // namespace tapir::inline v0::cpu
