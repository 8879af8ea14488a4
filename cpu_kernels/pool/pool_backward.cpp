// Pooling backward: dx is cleared and the windows add to it, image by image, so that no two threads meet and the order is fixed. Where
// the windows of a max tile the plane, each element of dx is written once instead.
#include "pool_window.h"

namespace tapir::inline v0::cpu {
namespace {

template <class T> struct MaxBackward {
  const Windows& w;
  Field<T> dx, dy;
  Field<int64_t> indices;
  static constexpr int64_t kBlock = 64;

  int64_t dy_at(int64_t n, int64_t i, int64_t j, int64_t k) const {
    return n * dy.n + i * dy.at[0] + j * dy.at[1] + k * dy.at[2];
  }
  int64_t index_at(int64_t n, int64_t i, int64_t j, int64_t k) const {
    return n * indices.n + i * indices.at[0] + j * indices.at[1] + k * indices.at[2];
  }

  /// Channels last, tiling windows: every position of a window gets dy or 0.
  void write_row(int64_t n, int64_t i, int64_t j) const {
    const Span &a = w.spans[0][i], &b = w.spans[1][j];
    for (int64_t k = 0; k < w.out[2]; ++k) {
      const T* g = dy.data + dy_at(n, i, j, k);
      const int64_t* index = indices.data + index_at(n, i, j, k);
      for (int64_t c0 = 0; c0 < w.c; c0 += kBlock) {
        const int64_t count = std::min<int64_t>(kBlock, w.c - c0);
        int32_t at[kBlock];  // as wide as what it selects
        for (int64_t c = 0; c < count; ++c) at[c] = int32_t(index[c0 + c]);
        each_position(w, a, b, w.spans[2][k], [&](int64_t z, int64_t u, int64_t v) {
          T* to = dx.data + n * dx.n + z * dx.at[0] + u * dx.at[1] + v * dx.at[2] + c0;
          const auto here = int32_t((z * w.in[1] + u) * w.in[2] + v);
          if (count == kBlock)
            for (int64_t c = 0; c < kBlock; ++c) to[c] = at[c] == here ? g[c0 + c] : T(0);
          else
            for (int64_t c = 0; c < count; ++c) to[c] = at[c] == here ? g[c0 + c] : T(0);
        });
      }
    }
  }
  /// What lies behind the last window of each axis, in image n.
  void clear_rest(int64_t n) const {
    int64_t end[3];
    for (int d = 0; d < 3; ++d) end[d] = w.spans[d][w.out[d] - 1].first + w.spans[d][w.out[d] - 1].count;
    for (int64_t z = 0; z < w.in[0]; ++z)
      for (int64_t u = 0; u < w.in[1]; ++u)
        for (int64_t v = z < end[0] && u < end[1] ? end[2] : 0; v < w.in[2]; ++v)
          std::fill_n(dx.data + n * dx.n + z * dx.at[0] + u * dx.at[1] + v * dx.at[2], w.c, T(0));
  }

  /// Any layout: one plane.
  void add_plane(int64_t n, int64_t c) const {
    T* plane = dx.data + n * dx.n + c * dx.channel;
    const bool rows_join = dx.at[2] == 1 && dx.at[1] == w.in[2] && (w.in[0] == 1 || dx.at[0] == w.in[1] * w.in[2]);
    for (int64_t i = 0; i < w.out[0]; ++i)
      for (int64_t j = 0; j < w.out[1]; ++j) {
        const T* g = dy.data + dy_at(n, i, j, 0) + c * dy.channel;
        const int64_t* index = indices.data + index_at(n, i, j, 0) + c * indices.channel;
        for (int64_t k = 0; k < w.out[2]; ++k) {
          const int64_t at = index[k * indices.at[2]];
          if (at < 0) continue;  // a window without elements
          if (rows_join) plane[at] += g[k * dy.at[2]];
          else
            plane[at / (w.in[1] * w.in[2]) * dx.at[0] + at / w.in[2] % w.in[1] * dx.at[1] + at % w.in[2] * dx.at[2]] +=
                g[k * dy.at[2]];
        }
      }
  }
};

template <class T> struct AvgBackward {
  const Windows& w;
  Field<T> dx, dy;

  /// Adds the windows of `channels` channels from c on, side by side, to one image.
  void add_channels(int64_t n, int64_t c, int64_t channels) const {
    T part[kPoolLanes];
    for (int64_t i = 0; i < w.out[0]; ++i)
      for (int64_t j = 0; j < w.out[1]; ++j)
        for (int64_t k = 0; k < w.out[2]; ++k) {
          const Span &a = w.spans[0][i], &b = w.spans[1][j], &d = w.spans[2][k];
          const T share = T(w.share(a, b, d));
          const T* g = dy.data + n * dy.n + c + i * dy.at[0] + j * dy.at[1] + k * dy.at[2];
          for (int64_t l = 0; l < channels; ++l) part[l] = g[l] / share;
          each_position(w, a, b, d, [&](int64_t z, int64_t u, int64_t v) {
            T* to = dx.data + n * dx.n + c + z * dx.at[0] + u * dx.at[1] + v * dx.at[2];
            for (int64_t l = 0; l < channels; ++l) to[l] += part[l];
          });
        }
  }
  /// Adds the windows of one channel, row by row.
  void add_plane(int64_t n, int64_t c) const {
    T part[kPoolLanes];
    const Span* d = w.spans[2];
    for (int64_t i = 0; i < w.out[0]; ++i)
      for (int64_t j = 0; j < w.out[1]; ++j)
        for (int64_t k0 = 0; k0 < w.out[2]; k0 += kPoolLanes) {
          const Span &a = w.spans[0][i], &b = w.spans[1][j];
          const int64_t count = std::min(kPoolLanes, w.out[2] - k0);
          const T* g = dy.data + n * dy.n + c * dy.channel + i * dy.at[0] + j * dy.at[1] + k0 * dy.at[2];
          for (int64_t k = 0; k < count; ++k) part[k] = g[k * dy.at[2]] / T(w.share(a, b, d[k0 + k]));
          for (int64_t z = a.first; z < a.first + a.count; ++z)
            for (int64_t u = b.first; u < b.first + b.count; ++u) {
              T* row = dx.data + n * dx.n + c * dx.channel + z * dx.at[0] + u * dx.at[1];
              for (int64_t k = 0; k < count; ++k)
                for (int64_t v = 0; v < d[k0 + k].count; ++v) row[(d[k0 + k].first + v) * dx.at[2]] += part[k];
            }
        }
  }
};

template <class T> void clear_image(const Windows& w, const Field<T>& dx, int64_t n, int64_t c, int64_t channels) {
  for (int64_t z = 0; z < w.in[0]; ++z)
    for (int64_t u = 0; u < w.in[1]; ++u) {
      T* to = dx.data + n * dx.n + c * dx.channel + z * dx.at[0] + u * dx.at[1];
      if (channels == 1 && dx.at[2] == 1) std::fill_n(to, w.in[2], T(0));
      else
        for (int64_t v = 0; v < w.in[2]; ++v)
          for (int64_t l = 0; l < channels; ++l) to[v * dx.at[2] + l * dx.channel] = T(0);
    }
}

template <class T> void pool_backward_as(Context& ctx, V dx, V dy, V indices, const PoolParams& p) {
  const Windows w = windows(ctx, dx, dy, p);
  const auto fx = field<T>(dx), fy = field<T>(dy);
  const int64_t plane = volume(w.in), grain = std::max<int64_t>(1, 16384 / plane);
  if (p.op == PoolOp::Max || p.op == PoolOp::AdaptiveMax) {
    const MaxBackward<T> max{w, fx, fy, field<int64_t>(indices)};
    if (w.tiles && channels_inside(fx, fy, max.indices))
      return parallel_for(w.n, std::max<int64_t>(1, grain / w.c), [&](int64_t first, int64_t last) {
        for (int64_t n = first; n < last; ++n) {
          for (int64_t i = 0; i < w.out[0]; ++i)
            for (int64_t j = 0; j < w.out[1]; ++j) max.write_row(n, i, j);
          max.clear_rest(n);
        }
      });
    return parallel_for(w.n * w.c, grain, [&](int64_t first, int64_t last) {
      for (int64_t q = first; q < last; ++q) clear_image(w, fx, q / w.c, q % w.c, 1), max.add_plane(q / w.c, q % w.c);
    });
  }
  const AvgBackward<T> avg{w, fx, fy};
  const bool inside = channels_inside(fx, fy);
  const int64_t block = inside ? std::min(w.c, kPoolLanes) : 1, blocks = (w.c + block - 1) / block;
  parallel_for(w.n * blocks, std::max<int64_t>(1, grain / block), [&](int64_t first, int64_t last) {
    for (int64_t q = first; q < last; ++q) {
      const int64_t c = q % blocks * block, channels = std::min(block, w.c - c);
      clear_image(w, fx, q / blocks, c, channels);
      inside ? avg.add_channels(q / blocks, c, channels) : avg.add_plane(q / blocks, c);
    }
  });
}

/// dy in channels-last order where the others have it: what a flatten() behind the pooling gives back is in rows of pixels, and reading it
/// across costs ten times as much as turning it round.
TensorView as_the_others(Context& ctx, V dx, V dy, V indices) {
  const bool last = dx.strides[1] == 1 && (!indices.defined() || indices.strides[1] == 1);
  if (!last || dx.sizes[1] < 8 || dy.strides[1] == 1) return dy;
  TensorView y = dy;
  y.strides[1] = 1;
  int64_t step = dy.sizes[1];
  for (int64_t d : {4, 3, 2, 0}) y.strides[d] = step, step *= dy.sizes[d];
  y.data = ctx.scratch(step * size_of(dy.dtype));
  copy(ctx, {y, dy});
  return y;
}

}  // namespace

void pool_backward(Context& ctx, const entry::PoolBackward& c) {
  if (c.dx.numel() == 0) return;
  if (c.dy.numel() == 0) return fill(ctx, {c.dx, 0.0});
  TensorView dx = with_three_axes(c.dx), dy = with_three_axes(c.dy);
  const TensorView indices = with_three_axes(c.indices);
  const PoolParams p = with_three_axes(c.params);
  if (is_floating(dx.dtype)) dy = as_the_others(ctx, dx, dy, indices);
  if (dx.dtype == kFloat32) return pool_backward_as<float>(ctx, dx, dy, indices, p);
  if (dx.dtype == kFloat64) return pool_backward_as<double>(ctx, dx, dy, indices, p);
  check(is_floating(dx.dtype), "[pool_backward] expected a floating-point dtype, got {}", dx.dtype);
  const TensorView narrow = dx;  // sums of 16-bit floats are formed in float32
  dx = scratch_like(ctx, dx, kFloat32), dy = dense(ctx, dy, kFloat32);
  pool_backward_as<float>(ctx, dx, dy, indices, p);
  copy(ctx, {narrow, dx});
}

}  // namespace tapir::inline v0::cpu
