#include "../../core/resample.h"

#include <bit>
#include <cstring>

#include "../../core/dispatch.h"
#include "../moments.h"
#include "../pieces.h"
#include "../pool/pool_window.h"

namespace tapir::inline v0::cpu {
namespace {

// Note [Resampling by rows]
// Three axes always, missing ones of extent 1. A row of the output is a weighted sum of rows of the input that were resampled along the
// last axis before; those are kept, as neighbouring output rows read the same ones. Rows run along the last axis, of one channel, or
// along the last axis and the channels where these lie innermost. The transposed map has the same form, with the taps of Transposed.

constexpr int64_t kRowGrain = 8192;  // elements
constexpr int64_t kFewChannels = 8;  // fewer are taken one by one

/// Tap k of output i at [k out + i], places within `count` neighbours. Weights of 0 are skipped: they pad.
template <class C> struct Taps {
  int64_t in, out, count;
  int32_t* place;
  C* weight;
};
template <class C> Taps<C> make_taps(Context& ctx, int64_t in, int64_t out, int64_t count) {
  auto* memory = static_cast<char*>(ctx.scratch(count * out * int64_t(sizeof(C) + sizeof(int32_t))));
  return {in, out, count, reinterpret_cast<int32_t*>(memory + count * out * int64_t(sizeof(C))),
          reinterpret_cast<C*>(memory)};
}
template <class C> Taps<C> direct_taps(Context& ctx, const ResampleAxis& axis) {
  const Taps<C> t = make_taps<C>(ctx, axis.in, axis.out, axis.taps);
  for (int64_t i = 0; i < t.out; ++i)
    axis.each_tap(i, [&](int64_t k, int64_t place, double weight) {
      t.place[k * t.out + i] = int32_t(place), t.weight[k * t.out + i] = C(weight);
    });
  return t;
}
/// Input j gets from the outputs [first, last) that read it. Taps are asked for once: asked twice, a compiler may round them in two ways.
template <class C> Taps<C> transposed_taps(Context& ctx, const ResampleAxis& axis) {
  const Taps<C> direct = direct_taps<C>(ctx, axis);
  const auto each_tap = [&](auto&& f) {
    for (int64_t i = 0; i < axis.out; ++i)
      for (int64_t k = 0; k < axis.taps; ++k)
        if (const C w = direct.weight[k * axis.out + i]; w != 0) f(i, direct.place[k * axis.out + i], w);
  };
  auto *const first = ctx.scratch_of<int32_t>(2 * axis.in), *const last = first + axis.in;
  std::fill_n(first, axis.in, 0), std::fill_n(last, axis.in, 0);
  int64_t count = 1;
  each_tap([&](int64_t i, int32_t j, C) {
    if (last[j] == 0) first[j] = int32_t(i);
    last[j] = int32_t(i + 1), count = std::max<int64_t>(count, i + 1 - first[j]);
  });
  const Taps<C> t = make_taps<C>(ctx, axis.out, axis.in, count);
  for (int64_t j = 0; j < t.out; ++j)
    for (int64_t k = 0; k < count; ++k) {
      t.place[k * t.out + j] = int32_t(std::clamp<int64_t>(first[j] + k, 0, std::max(last[j] - 1, 0)));
      t.weight[k * t.out + j] = 0;
    }
  each_tap([&](int64_t i, int32_t j, C weight) { t.weight[(i - first[j]) * t.out + j] += weight; });
  return t;
}

/// f(a constant K) for the usual numbers of taps, else K = 0.
template <class F> void with_taps(int64_t count, F&& f) {
  switch (count) {
    case 1: return f(std::integral_constant<int, 1>());
    case 2: return f(std::integral_constant<int, 2>());
    case 3: return f(std::integral_constant<int, 3>());
    case 4: return f(std::integral_constant<int, 4>());
    default: return f(std::integral_constant<int, 0>());
  }
}
/// y[i] = sum of weights times x[places]; K taps, or t.count of them where K is 0.
template <int K, class C> void resample_columns(const Taps<C>& t, const C* x, C* y) {
  const int64_t n = t.out;
  if constexpr (K > 0) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      C sum = 0;
#pragma GCC unroll 4
      for (int k = 0; k < K; ++k) {
        const C w = t.weight[k * n + i], v = w * x[t.place[k * n + i]];
        sum += w != 0 ? v : C(0);
      }
      y[i] = sum;
    }
  } else {
    std::fill_n(y, n, C(0));
    for (int64_t k = 0; k < t.count; ++k)
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const C w = t.weight[k * n + i], v = w * x[t.place[k * n + i]];
        y[i] += w != 0 ? v : C(0);
      }
  }
}
/// The same for pixels of `channels` elements side by side, those of x `step` apart.
template <int K, class C> void resample_pixels(const Taps<C>& t, const C* x, int64_t step, int64_t channels, C* y) {
  for (int64_t i = 0; i < t.out; ++i, y += channels) {
    if constexpr (K == 0) std::fill_n(y, channels, C(0));
    for (int64_t k0 = 0; k0 < (K ? 1 : t.count); ++k0) {
      constexpr int kTaps = K ? K : 1;
      C w[kTaps];
      const C* from[kTaps];
      for (int k = 0; k < kTaps; ++k)
        w[k] = t.weight[(k0 + k) * t.out + i], from[k] = x + t.place[(k0 + k) * t.out + i] * step;
#pragma omp simd
      for (int64_t l = 0; l < channels; ++l) {
        C sum = K ? C(0) : y[l];
#pragma GCC unroll 4
        for (int k = 0; k < kTaps; ++k) sum += w[k] != 0 ? w[k] * from[k][l] : C(0);
        y[l] = sum;
      }
    }
  }
}
/// y = w[0] rows[0] + ... : `count` rows of n elements.
template <class C> void combine(const C* const* rows, const C* w, int64_t count, int64_t n, C* y) {
  if (count == 0) std::fill_n(y, n, C(0));
  if (count == 1)
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = w[0] * rows[0][i];
  if (count < 2) return;
  const C *const a = rows[0], *const b = rows[1], wa = w[0], wb = w[1];
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = wa * a[i] + wb * b[i];
  int64_t k = 2;
  for (; k + 2 <= count; k += 2) {
    const C *const c = rows[k], *const d = rows[k + 1], wc = w[k], wd = w[k + 1];
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] += wc * c[i] + wd * d[i];
  }
  if (k < count)
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] += w[k] * rows[k][i];
}

template <class T> struct Resampler {
  using C = Compute<T>;
  Taps<C> taps[3];
  Field<T> x, y;
  int64_t channels;
  bool inside;  // rows hold the channels too
  int64_t width() const { return taps[2].out * (inside ? channels : 1); }
  /// Of the rows that are kept: a power of two along each axis.
  int64_t ring(int d) const { return int64_t(std::bit_ceil(uint64_t(taps[d].count))); }
  int64_t slots() const { return ring(0) * ring(1); }
  /// Elements of C that one thread needs.
  int64_t buffer() const {  // tags and pointers are two elements at most
    return slots() * (width() + 5) + taps[2].in * (inside ? channels : 1) + width() + 2;
  }

  /// Row (z, u) of the input, resampled along the last axis.
  void columns(const T* from, C* buffer, C* to) const {
    const Taps<C>& t = taps[2];
    if (!inside) {
      const C* const row = read_row(from, x.at[2], t.in, buffer);
      return with_taps(t.count, [&](auto k) { resample_columns<k>(t, row, to); });
    }
    const C* row = reinterpret_cast<const C*>(from);
    int64_t step = x.at[2];
    if constexpr (!std::is_same_v<C, T>) {
      const bool dense = step == channels;
      for (int64_t i = 0; i < (dense ? 1 : t.in); ++i)
        read_row(from + i * step, 1, dense ? channels * t.in : channels, buffer + i * channels);
      row = buffer, step = channels;
    }
    with_taps(t.count, [&](auto k) { resample_pixels<k>(t, row, step, channels, to); });
  }

  /// Output rows [first, last): of (n, channel, i, j), or of (n, i, j).
  void rows(int64_t first, int64_t last, C* memory) const {
    const int64_t n = width(), most = slots(), u_ring = ring(1), z_mask = ring(0) - 1;
    C *const cache = memory, *const buffer = cache + most * n,
             *const target = buffer + taps[2].in * (inside ? channels : 1), *const weights = target + n;
    auto* const tags = reinterpret_cast<const T**>(align(weights + most));
    auto* const sources = reinterpret_cast<const C**>(tags + most);
    std::fill_n(tags, most, nullptr);
    const int64_t outs[] = {taps[0].out, taps[1].out};
    each_row(first, last, inside ? 1 : channels, outs, [&](int64_t image, int64_t channel, int64_t i, int64_t j) {
      int64_t count = 0;
      for (int64_t p = 0; p < taps[0].count; ++p)
        for (int64_t q = 0; q < taps[1].count; ++q) {
          const C w = taps[0].weight[p * taps[0].out + i] * taps[1].weight[q * taps[1].out + j];
          if (w == 0) continue;
          const int64_t z = taps[0].place[p * taps[0].out + i], u = taps[1].place[q * taps[1].out + j];
          const int64_t slot = (z & z_mask) * u_ring + (u & (u_ring - 1));
          const T* const row = x.data + image * x.n + channel * x.channel + z * x.at[0] + u * x.at[1];
          C* const here = cache + slot * n;
          if (tags[slot] != row) columns(row, buffer, here);
          tags[slot] = row, weights[count] = w, sources[count++] = here;
        }
      T* const to = y.data + image * y.n + channel * y.channel + i * y.at[0] + j * y.at[1];
      const int64_t step = inside ? 1 : y.at[2], pixels = inside && y.at[2] != channels ? taps[2].out : 1;
      C* const result = pixels == 1 ? row_target(to, step, target) : target;
      combine(sources, weights, count, n, result);
      for (int64_t k = 0; k < pixels; ++k) write_row(to + k * y.at[2], step, n / pixels, result + k * (n / pixels));
    });
  }
  static C* align(C* p) { return reinterpret_cast<C*>((reinterpret_cast<uintptr_t>(p) + 7) / 8 * 8); }
};

template <class T> void run_rows(Context& ctx, const Resampler<T>& r, int64_t images) {
  using C = Compute<T>;
  const int64_t rows = images * (r.inside ? 1 : r.channels) * r.taps[0].out * r.taps[1].out;
  const int64_t work = r.width() * (r.taps[2].count + r.slots());
  const int64_t grain = std::max<int64_t>(1, 4 * kRowGrain / std::max<int64_t>(1, work));
  for_pieces<C>(ctx, rows, grain, r.buffer(),
                [&](C* memory, int64_t first, int64_t last) { r.rows(first, last, memory); });
}

ResampleAxis axis_of(const ResampleParams& p, int64_t d, int64_t in, int64_t out) {
  const int64_t extra = 3 - p.spatial;
  return d < extra ? ResampleAxis({.op = ResampleOp::Nearest}, 0, in, out) : ResampleAxis(p, d - extra, in, out);
}
void check_extents(V x) {
  for (int64_t d = 2; d < 5; ++d)
    check(x.sizes[d] < std::numeric_limits<int32_t>::max(), "[interpolate] expected extents below 2^31, got {}",
          x.shape());
}

/// y from x, whose roles the transposed map exchanges.
template <class T> void resample_as(Context& ctx, V y, V x, const ResampleParams& p, bool transposed) {
  using C = Compute<T>;
  Resampler<T> r{{}, field<T>(x), field<T>(y), x.sizes[1], false};
  r.inside = r.x.channel == 1 && r.y.channel == 1 && r.channels >= kFewChannels;
  for (int64_t d = 0; d < 3; ++d) {
    const int64_t from = x.sizes[2 + d], to = y.sizes[2 + d];
    r.taps[d] =
        transposed ? transposed_taps<C>(ctx, axis_of(p, d, to, from)) : direct_taps<C>(ctx, axis_of(p, d, from, to));
  }
  run_rows(ctx, r, x.sizes[0]);
}

/// Elements are only moved; a row of places that was moved before is copied whole.
template <class T> void nearest_as(Context& ctx, V y, V x, const ResampleParams& p) {
  const auto fx = field<T>(x), fy = field<T>(y);
  int32_t* places[3];
  for (int64_t d = 0; d < 3; ++d) {
    const ResampleAxis axis = axis_of(p, d, x.sizes[2 + d], y.sizes[2 + d]);
    places[d] = ctx.scratch_of<int32_t>(axis.out);
    for (int64_t i = 0; i < axis.out; ++i)
      axis.each_tap(i, [&](int64_t, int64_t place, double) { places[d][i] = int32_t(place); });
  }
  const int64_t channels = x.sizes[1], *const out = y.sizes + 2;
  const bool inside = fx.channel == 1 && fy.channel == 1 && channels >= kFewChannels;
  const int64_t width = out[2] * (inside ? channels : 1), rows = x.sizes[0] * (inside ? 1 : channels) * out[0] * out[1];
  const bool dense = inside ? fy.at[2] == channels : fy.at[2] == 1;
  parallel_for(rows, std::max<int64_t>(1, kRowGrain / width), [&](int64_t first, int64_t last) {
    const T *source = nullptr, *moved = nullptr;
    each_row(first, last, inside ? 1 : channels, out, [&](int64_t image, int64_t channel, int64_t i, int64_t j) {
      const T* const from =
          fx.data + image * fx.n + channel * fx.channel + places[0][i] * fx.at[0] + places[1][j] * fx.at[1];
      T* const to = fy.data + image * fy.n + channel * fy.channel + i * fy.at[0] + j * fy.at[1];
      if (dense && from == source) std::memcpy(to, moved, size_t(width) * sizeof(T));
      else if (inside)
        for (int64_t k = 0; k < out[2]; ++k)
          std::memcpy(to + k * fy.at[2], from + places[2][k] * fx.at[2], size_t(channels) * sizeof(T));
      else
        for (int64_t k = 0; k < out[2]; ++k) to[k * fy.at[2]] = from[places[2][k] * fx.at[2]];
      source = from, moved = to;
    });
  });
}

}  // namespace

void resample(Context& ctx, const entry::Resample& c) {
  if (c.y.numel() == 0) return;
  const TensorView y = with_three_axes(c.y), x = with_three_axes(c.x);
  check_extents(x), check_extents(y);
  if (c.params.op == ResampleOp::Nearest || c.params.op == ResampleOp::NearestExact)
    return for_size(x.dtype, [&]<class T>() { nearest_as<T>(ctx, y, x, c.params); });
  for_any_float("interpolate", x.dtype, [&]<class T>() { resample_as<T>(ctx, y, x, c.params, false); });
}

void resample_backward(Context& ctx, const entry::ResampleBackward& c) {
  if (c.dx.numel() == 0) return;
  const TensorView dx = with_three_axes(c.dx), dy = with_three_axes(c.dy);
  check_extents(dx), check_extents(dy);
  for_any_float("interpolate", dx.dtype, [&]<class T>() { resample_as<T>(ctx, dx, dy, c.params, true); });
}

}  // namespace tapir::inline v0::cpu
