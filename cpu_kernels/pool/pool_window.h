#pragma once
#include <limits>

#include "../../core/parallel.h"
#include "../conv/conv_gemm.h"
#include "../pack.h"

namespace tapir::inline v0::cpu {

/// (N, C, W) and (N, C, H, W) are (N, C, 1, 1, W) and (N, C, 1, H, W).
inline TensorView with_three_axes(V x) {
  if (!x.defined()) return {};
  TensorView v = x;
  const int64_t extra = 5 - x.rank;
  v.rank = 5;
  for (int64_t d = 4; d >= 2; --d) {
    v.sizes[d] = d - extra >= 2 ? x.sizes[d - extra] : 1;
    v.strides[d] = d - extra >= 2 ? x.strides[d - extra] : 0;
  }
  return v;
}
inline PoolParams with_three_axes(const PoolParams& params) {
  PoolParams p = params;
  const int64_t extra = 3 - params.spatial;
  p.spatial = 3;
  for (int64_t d = 2; d >= 0; --d) {
    const bool real = d >= extra;
    p.kernel[d] = real ? params.kernel[d - extra] : 1, p.stride[d] = real ? params.stride[d - extra] : 1;
    p.padding[d] = real ? params.padding[d - extra] : 0, p.dilation[d] = real ? params.dilation[d - extra] : 1;
  }
  return p;
}

/// What one output position reads along one axis: `count` positions from `first` on, `step` apart, all inside the input.
struct Span {
  int64_t first, count;
  int64_t extent;  // for the mean: positions that count when padding does
};
/// A pooling over three axes with its windows written out per axis.
struct Windows {
  int64_t n, c, in[3] = {}, out[3] = {}, step[3] = {};
  const Span* spans[3];
  int64_t divisor;
  bool include_pad;
  bool tiles = true;  // windows lie side by side without overlap and without padding, as in a plain 2 x 2 pooling

  /// What the sum of a window is divided by for the mean.
  int64_t share(const Span& a, const Span& b, const Span& d) const {
    return divisor ? divisor : include_pad ? a.extent * b.extent * d.extent : a.count * b.count * d.count;
  }
};

/// Start and end as PyTorch has them: adaptive windows are [floor(o in / out), ceil((o + 1) in / out)).
inline Windows windows(Context& ctx, V x, V y, const PoolParams& p) {
  check(volume(x.sizes + 2) <= std::numeric_limits<int32_t>::max(),
        "[pool] expected planes of fewer than 2^31 elements, got {}", x.shape());
  Windows w{.n = x.sizes[0], .c = x.sizes[1], .spans = {}, .divisor = p.divisor, .include_pad = p.count_include_pad};
  for (int64_t d = 0; d < 3; ++d) {
    w.in[d] = x.sizes[d + 2], w.out[d] = y.sizes[d + 2];
    const bool adaptive = p.op == PoolOp::AdaptiveAvg || p.op == PoolOp::AdaptiveMax;
    const int64_t dilation = p.op == PoolOp::Max ? p.dilation[d] : 1, in = w.in[d];
    w.step[d] = dilation;
    Span* spans = ctx.scratch_of<Span>(w.out[d]);
    for (int64_t o = 0; o < w.out[d]; ++o) {
      if (adaptive) {
        const int64_t first = o * in / w.out[d], last = ((o + 1) * in + w.out[d] - 1) / w.out[d];
        spans[o] = {first, last - first, last - first};
      } else {
        const int64_t start = o * p.stride[d] - p.padding[d];
        const int64_t skipped = start < 0 ? (-start + dilation - 1) / dilation : 0, first = start + skipped * dilation;
        const int64_t fits = first < in ? (in - 1 - first) / dilation + 1 : 0;
        spans[o] = {first, std::clamp<int64_t>(fits, 0, std::max<int64_t>(0, p.kernel[d] - skipped)),
                    std::min(start + p.kernel[d], in + p.padding[d]) - start};
      }
      w.tiles = w.tiles && dilation == 1 && spans[o].count > 0 &&
                spans[o].first == (o ? spans[o - 1].first + spans[o - 1].count : 0);
    }
    w.spans[d] = spans;
  }
  return w;
}

template <class T> struct PoolAcc { using type = T; };
template <> struct PoolAcc<Half> { using type = float; };
template <> struct PoolAcc<BFloat16> { using type = float; };
/// For means: sums of narrow integers do not fit their type.
template <class T> struct MeanAcc : PoolAcc<T> {};
template <std::integral T> struct MeanAcc<T> { using type = int64_t; };

/// Channels lie side by side in every operand that is there.
template <class... F> bool channels_inside(const F&... fields) {
  return ((fields.channel == 1 || !fields.data) && ...);
}
inline constexpr int64_t kPoolLanes = 64;
/// f(z, u, v) for the positions of a window.
template <class F> inline void each_position(const Windows& w, const Span& a, const Span& b, const Span& d, F&& f) {
  for (int64_t p = 0, z = a.first; p < a.count; ++p, z += w.step[0])
    for (int64_t q = 0, u = b.first; q < b.count; ++q, u += w.step[1])
      for (int64_t r = 0, v = d.first; r < d.count; ++r, v += w.step[2]) f(z, u, v);
}
/// f(n, c, i, j) for rows [first, last) of those of `channels` times out[0] times out[1] for each image: counted on, as divisions cost more
/// than a short row.
template <class F> void each_row(int64_t first, int64_t last, int64_t channels, const int64_t* out, F&& f) {
  const int64_t plane = first / (out[0] * out[1]);
  int64_t j = first % out[1], i = first / out[1] % out[0], c = plane % channels, n = plane / channels;
  for (; first < last; ++first) {
    f(n, c, i, j);
    if (++j == out[1]) j = 0, ++i;
    if (i == out[0]) i = 0, ++c;
    if (c == channels) c = 0, ++n;
  }
}
/// Types whose channels are handled as vectors of float32.
template <class T>
concept FloatLike = std::is_same_v < typename PoolAcc<T>::type,
float > ;
inline void store_as(float* p, Vec<float> v) { store(p, v); }
template <class T> inline void store_as(T* p, Vec<float> v) {
  for (int i = 0; i < kLanes<float>; ++i) p[i] = T(v[i]);
}

}  // namespace tapir::inline v0::cpu
