#include <limits>

#include "../../core/dispatch.h"
#include "../kernel.h"
#include "../kernels.h"
#include "../planes.h"

// Pooling over up to three axes. Forward: a thread has an output (or a pack of neighbouring channels, where channels lie side by side) and
// walks its window; the mean of a large window in one plane is a warp's. Backward: a thread has an element of dx and gathers from the windows
// that hold it, in their order, so that nothing is added by two.
namespace tapir::inline v0::cuda_kernels {
namespace {

/// What one output position reads along one axis: `count` positions from `first` on, `step` apart, all inside the input.
struct Span {
  int first, count;
  int64_t extent;  // for the mean: positions that count when padding does
};
struct Axis {
  int in, out, kernel, stride, padding, dilation;
  bool adaptive, narrow = false;  // 32 bits hold what is divided here, which is then several times as fast
  Divider by_stride = {}, by_dilation = {};
  template <class I> __device__ static I over(I n, int d, const Divider& by) {
    if constexpr (sizeof(I) == 4) return I(by.quotient(uint32_t(n)));
    else return n / d;
  }

  /// Adaptive windows are [floor(o in / out), ceil((o + 1) in / out)).
  template <class I> __device__ Span span_as(I o) const {
    if (adaptive) {
      const int first = int(o * in / out), last = int(((o + 1) * in + out - 1) / out);
      return {first, last - first, last - first};
    }
    const I start = o * stride - padding;
    const I skipped = start < 0 ? over<I>(dilation - 1 - start, dilation, by_dilation) : 0,
            first = start + skipped * dilation;
    const I fits = first < in ? over<I>(in - 1 - first, dilation, by_dilation) + 1 : 0,
            left = kernel > skipped ? kernel - skipped : 0;
    const I end = start + kernel < in + padding ? start + kernel : I(in) + padding;
    return {int(first), int(fits < left ? fits : left), end - start};
  }
  __device__ Span span(int o) const { return narrow ? span_as<int>(o) : span_as<int64_t>(o); }

  /// The outputs [first, last] whose windows may hold position z.
  template <class I> __device__ void holders_as(I z, int& first, int& last) const {
    if (adaptive) {
      first = int(z * out / in), last = int(((z + 1) * out + in - 1) / in) - 1;
    } else {
      const I reach = I(dilation) * (kernel - 1), at = z + padding;
      first = at > reach ? int(over<I>(at - reach + stride - 1, stride, by_stride)) : 0,
      last = int(over<I>(at, stride, by_stride));
    }
    if (last > out - 1) last = out - 1;
  }
  __device__ void holders(int z, int& first, int& last) const {
    return narrow ? holders_as<int>(z, first, last) : holders_as<int64_t>(z, first, last);
  }
  /// Above every number that is divided.
  int64_t most() const {
    const int64_t i = in, o = out;
    return adaptive ? (i + 1) * (o + 1) + i + o
                    : i + (o + 1) * stride + 2 * int64_t(padding) + int64_t(kernel) * dilation;
  }
};

struct Windows : Planes {
  Axis axes[3];
  int64_t divisor;
  bool include_pad;
  Field indices;

  /// What the sum of a window is divided by for the mean.
  __device__ int64_t share(const Span (&s)[3]) const {
    if (divisor) return divisor;
    return include_pad ? s[0].extent * s[1].extent * s[2].extent : int64_t(s[0].count) * s[1].count * s[2].count;
  }
  /// f(z, u, v) for the positions of a window.
  template <class F> __device__ void each_position(const Span (&s)[3], F&& f) const {
    for (int p = 0, z = s[0].first; p < s[0].count; ++p, z += axes[0].dilation)
      for (int q = 0, u = s[1].first; q < s[1].count; ++q, u += axes[1].dilation)
        for (int r = 0, v = s[2].first; r < s[2].count; ++r, v += axes[2].dilation) f(z, u, v);
  }
  __device__ int flat(int z, int u, int v) const { return (z * axes[1].in + u) * axes[2].in + v; }
};

template <class T> __device__ T lowest() {
  if constexpr (std::is_integral_v<T>) return std::numeric_limits<T>::lowest();
  else return -std::numeric_limits<T>::infinity();
}

/// The first position always enters, NaN wins, later ones only if larger. An empty window: -inf at -1.
template <class T, int P> __global__ void max_pool(T* y, int64_t* indices, const T* x, Windows w, int64_t total) {
  using A = Compute<T>;
  for (const int64_t i : grid_stride(total)) {
    const Place o = place_of(w, i, P);
    const Span s[3] = {w.axes[0].span(o.at[0]), w.axes[1].span(o.at[1]), w.axes[2].span(o.at[2])};
    const T* const from = x + w.x.offset(o.n, o.c, 0, 0, 0);
    A best[P];
    int where[P];
    for (int l = 0; l < P; ++l) best[l] = lowest<A>(), where[l] = -1;
    w.each_position(s, [&](int z, int u, int v) {
      const auto got = *reinterpret_cast<const Pack<T, P>*>(from + z * w.x.at[0] + u * w.x.at[1] + v * w.x.at[2]);
      for (int l = 0; l < P; ++l) {
        const A value = widen(got.of[l]);
        if (value > best[l] || value != value || where[l] < 0) best[l] = value, where[l] = w.flat(z, u, v);
      }
    });
    Pack<T, P> to;
    for (int l = 0; l < P; ++l) to.of[l] = narrow<T>(best[l]);
    *reinterpret_cast<Pack<T, P>*>(y + w.y.offset(o.n, o.c, o.at[0], o.at[1], o.at[2])) = to;
    if (!indices) continue;
    int64_t* const index = indices + w.indices.offset(o.n, o.c, o.at[0], o.at[1], o.at[2]);
    for (int l = 0; l < P; ++l) index[l] = where[l];
  }
}

template <class T, int P> __global__ void average_pool(T* y, const T* x, Windows w, int64_t total) {
  using A =
      std::conditional_t<std::is_integral_v<T>, int64_t, Compute<T>>;  // sums of narrow integers do not fit their type
  for (const int64_t i : grid_stride(total)) {
    const Place o = place_of(w, i, P);
    const Span s[3] = {w.axes[0].span(o.at[0]), w.axes[1].span(o.at[1]), w.axes[2].span(o.at[2])};
    const T* const from = x + w.x.offset(o.n, o.c, 0, 0, 0);
    A sums[P] = {};
    w.each_position(s, [&](int z, int u, int v) {
      const auto got = *reinterpret_cast<const Pack<T, P>*>(from + z * w.x.at[0] + u * w.x.at[1] + v * w.x.at[2]);
      for (int l = 0; l < P; ++l) sums[l] += widen(got.of[l]);
    });
    Pack<T, P> to;
    for (int l = 0; l < P; ++l) to.of[l] = narrow<T>(Compute<T>(sums[l] / A(w.share(s))));
    *reinterpret_cast<Pack<T, P>*>(y + w.y.offset(o.n, o.c, o.at[0], o.at[1], o.at[2])) = to;
  }
}
/// The same with a warp to each output: for large windows whose positions, not channels, are neighbours.
template <class T> __global__ void average_pool_by_warp(T* y, const T* x, Windows w, int64_t total) {
  using A = Compute<T>;
  const int64_t warps = int64_t(gridDim.x) * (blockDim.x / 32);
  for (int64_t i = blockIdx.x * int64_t(blockDim.x / 32) + threadIdx.x / 32; i < total; i += warps) {
    const Place o = place_of(w, i, 1);
    const Span s[3] = {w.axes[0].span(o.at[0]), w.axes[1].span(o.at[1]), w.axes[2].span(o.at[2])};
    const T* const from = x + w.x.offset(o.n, o.c, s[0].first, s[1].first, s[2].first);
    const int volume = s[0].count * s[1].count * s[2].count;
    A sum = 0;
    for (int p = int(threadIdx.x % 32); p < volume; p += 32) {
      const int v = p % s[2].count, u = p / s[2].count % s[1].count, z = p / (s[2].count * s[1].count);
      sum += widen(from[z * w.x.at[0] + u * w.x.at[1] + v * w.x.at[2]]);
    }
    sum = warp_fold(sum, Plus{});
    if (threadIdx.x % 32 == 0) y[w.y.offset(o.n, o.c, o.at[0], o.at[1], o.at[2])] = narrow<T>(sum / A(w.share(s)));
  }
}

/// Two by a load where they can be: threads lie P indices apart, so that single loads would ask for every sector four times.
template <int P> __device__ void load_indices(const int64_t* from, int64_t (&to)[P]) {
  if (P % 2 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
    for (int l = 0; l + 1 < P; l += 2) {
      const auto two = *reinterpret_cast<const Pack<int64_t, 2>*>(from + l);
      to[l] = two.of[0], to[l + 1] = two.of[1];
    }
  } else {
    for (int l = 0; l < P; ++l) to[l] = from[l];
  }
}
/// dx = the sum of dy over the windows whose maximum was here, or of dy / share over those that hold this place.
template <class T, int P>
__global__ void pool_backward_kernel(T* dx, const T* dy, const int64_t* indices, Windows w, int64_t total) {
  using A = Compute<T>;
  for (const int64_t i : grid_stride(total)) {
    const Place e = place_of(w, i, P);
    int first[3], last[3];
    for (int d = 0; d < 3; ++d) w.axes[d].holders(e.at[d], first[d], last[d]);
    const int here = w.flat(e.at[0], e.at[1], e.at[2]);
    A sums[P] = {};
    for (int a = first[0]; a <= last[0]; ++a)
      for (int b = first[1]; b <= last[1]; ++b)
        for (int c = first[2]; c <= last[2]; ++c) {
          const auto g = *reinterpret_cast<const Pack<T, P>*>(dy + w.y.offset(e.n, e.c, a, b, c));
          if (indices) {
            int64_t index[P];
            load_indices(indices + w.indices.offset(e.n, e.c, a, b, c), index);
            for (int l = 0; l < P; ++l) sums[l] += index[l] == here ? widen(g.of[l]) : A(0);
          } else {
            const Span s[3] = {w.axes[0].span(a), w.axes[1].span(b), w.axes[2].span(c)};
            const A share = A(w.share(s));
            for (int l = 0; l < P; ++l) sums[l] += widen(g.of[l]) / share;
          }
        }
    Pack<T, P> to;
    for (int l = 0; l < P; ++l) to.of[l] = narrow<T>(sums[l]);
    *reinterpret_cast<Pack<T, P>*>(dx + w.x.offset(e.n, e.c, e.at[0], e.at[1], e.at[2])) = to;
  }
}

bool is_max(const PoolParams& p) { return p.op == PoolOp::Max || p.op == PoolOp::AdaptiveMax; }

Windows windows_of(V x, V y, V indices, const PoolParams& p) {
  int64_t plane = 1;
  for (int64_t d = 2; d < x.rank; ++d) plane *= x.sizes[d];
  check(plane <= std::numeric_limits<int32_t>::max(), "[pool] expected planes of fewer than 2^31 elements, got {}",
        x.shape());
  Windows w{planes_of(x, y), {}, p.divisor, p.count_include_pad, {}};
  const auto number = [](int64_t n) { return int(std::min<int64_t>(n, std::numeric_limits<int>::max())); };
  for (int64_t d = 0; d < 3; ++d) {
    const int64_t own = d - (3 - p.spatial);
    if (own < 0) w.axes[d] = {1, 1, 1, 1, 0, 1, false};
    else
      w.axes[d] = {number(x.sizes[own + 2]),
                   number(y.sizes[own + 2]),
                   number(p.kernel[own]),
                   number(p.stride[own]),
                   number(p.padding[own]),
                   p.op == PoolOp::Max ? number(p.dilation[own]) : 1,
                   p.op == PoolOp::AdaptiveAvg || p.op == PoolOp::AdaptiveMax};
    w.axes[d].by_stride = Divider(uint32_t(std::max(w.axes[d].stride, 1))),
    w.axes[d].by_dilation = Divider(uint32_t(std::max(w.axes[d].dilation, 1)));
    w.axes[d].narrow = w.axes[d].most() < std::numeric_limits<int>::max();
  }
  if (indices.defined()) {
    w.indices = field_of(indices);
    w.channels_inside = w.channels_inside && w.indices.channel == 1;
  }
  return w;
}

template <class T> inline constexpr int kPack = std::is_integral_v<T> ? 1 : kPackSize<T>;

template <class T> void pool_as(Context& ctx, const entry::Pool& c) {
  const TensorView &y = c.y, &indices = c.indices, &x = c.x;
  Windows w = windows_of(x, y, indices, c.params);
  const int64_t total = y.numel();
  constexpr int P = kPack<T>;
  const bool packed = P > 1 && packs(w, x, y, P);
  w.walk(y, packed ? P : 1);
  const Grid grid = grid_of(packed ? total / P : total);
  if (is_max(c.params)) {
    int64_t* const to = indices.defined() ? indices.as<int64_t>() : nullptr;
    if (packed) return launch(ctx, "pool", grid, max_pool<T, P>, y.as<T>(), to, x.as<T>(), w, total / P);
    return launch(ctx, "pool", grid, max_pool<T, 1>, y.as<T>(), to, x.as<T>(), w, total);
  }
  if (packed) return launch(ctx, "pool", grid, average_pool<T, P>, y.as<T>(), x.as<T>(), w, total / P);
  if constexpr (P > 1) {
    int64_t window = 1;
    for (const Axis& a : w.axes) window *= a.adaptive ? (a.in + a.out - 1) / a.out : std::min(a.kernel, a.in);
    if (window >= 32 && !w.channels_inside)
      return launch(ctx, "pool", grid_of(32 * total), average_pool_by_warp<T>, y.as<T>(), x.as<T>(), w, total);
  }
  launch(ctx, "pool", grid, average_pool<T, 1>, y.as<T>(), x.as<T>(), w, total);
}

}  // namespace

void pool(Context& ctx, const entry::Pool& c) {
  if (c.y.numel() == 0) return;
  check(c.x.dtype != kBool, "[pool] expected a numeric dtype, got {}", c.x.dtype);
  for_all("pool", c.x.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) pool_as<T>(ctx, c);
  });
}

void pool_backward(Context& ctx, const entry::PoolBackward& c) {
  const TensorView &dx = c.dx, &dy = c.dy;
  if (dx.numel() == 0) return;
  if (dy.numel() == 0) return fill(ctx, {dx, 0.0});
  Windows w = windows_of(dx, dy, c.indices, c.params);
  const int64_t total = dx.numel();
  for_any_float("pool_backward", dx.dtype, [&]<class T>() {
    constexpr int P = kPack<T>;
    const int64_t* const from = is_max(c.params) ? c.indices.as<int64_t>() : nullptr;
    const bool packed = packs(w, dx, dy, P);
    w.walk(dx, packed ? P : 1);
    if (packed)
      return launch(ctx, "pool_backward", grid_of(total / P), pool_backward_kernel<T, P>, dx.as<T>(), dy.as<T>(), from,
                    w, total / P);
    launch(ctx, "pool_backward", grid_of(total), pool_backward_kernel<T, 1>, dx.as<T>(), dy.as<T>(), from, w, total);
  });
}

}  // namespace tapir::inline v0::cuda_kernels
