#include "../kernel.h"
#include "../launch.h"
#include "conv_problem.h"

// Convolutions of which each group has one channel: nothing is shared, so that they are as fast as memory. Threads take packs of channels
// where these are innermost, else neighbouring pixels.
namespace tapir::inline v0::cuda_kernels {

using dnn::Pass;

namespace {

constexpr int kThreads = 256;

/// An image as (image, channel, spatial), or a weight as (output, -, kernel), of any strides.
struct Field {
  void* data = nullptr;
  int64_t outer = 0, channel = 0, axis[3] = {};
};
struct Problem {
  Field x, y, w;
  const void* bias;  // (optional)
  int64_t bias_stride;
  bool relu;
  int images, outputs, multiplier, positions;  // outputs = channels of x times the multiplier
  Axis axes[3];
  // Elements of what is written in the order of its memory: channels innermost, or pixels.
  bool channels_last;
  Divider by_axis[3], by_channel;
  // The gradient of the weight
  float* sums;
  int lanes, tiles, splits, pixels;  // lanes: threads side by side on packs of channels
};

template <class T, int N> struct Values { Compute<T> of[N]; };
template <class T, int N> __device__ __forceinline__ Values<T, N> load(const Field& f, int64_t at) {
  const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(static_cast<const T*>(f.data) + at);
  Values<T, N> v;
#pragma unroll
  for (int i = 0; i < N; ++i) v.of[i] = widen(pack.of[i]);
  return v;
}

/// Element number e of what is written: its image, its first channel and its place.
template <int N>
__device__ __forceinline__ void locate(const Problem& p, uint32_t e, int& image, int& channel, int (&at)[3]) {
  const auto next = [&](const Divider& by) {
    const uint32_t quotient = by.quotient(e), rest = e - quotient * by.d;
    return e = quotient, int(rest);
  };
  if (p.channels_last) channel = next(p.by_channel) * N;
#pragma unroll
  for (int d = 3; d-- > 0;) at[d] = next(p.by_axis[d]);
  if (!p.channels_last) channel = next(p.by_channel) * N;
  image = int(e);
}
/// Calls f(kernel position) in order.
template <class F> __device__ __forceinline__ void for_positions(const Problem& p, F&& f) {
  int q[3];
  for (q[0] = 0; q[0] < p.axes[0].kernel; ++q[0])
    for (q[1] = 0; q[1] < p.axes[1].kernel; ++q[1])
      for (q[2] = 0; q[2] < p.axes[2].kernel; ++q[2]) f(q);
}
__device__ __forceinline__ int64_t place_of(const Field& f, const int (&at)[3]) {
  return at[0] * f.axis[0] + at[1] * f.axis[1] + at[2] * f.axis[2];
}
/// The pixel of x that pixel `at` of y sees at position q; false where that is padding.
__device__ __forceinline__ bool seen(const Problem& p, const int (&at)[3], const int (&q)[3], int (&from)[3]) {
  bool inside = true;
#pragma unroll
  for (int d = 0; d < 3; ++d) {
    const Axis& a = p.axes[d];
    from[d] = at[d] * a.stride - a.padding + q[d] * a.dilation;
    inside = inside && unsigned(from[d]) < unsigned(a.x);
  }
  return inside;
}
/// The pixel of y that saw pixel `at` of x at position q.
__device__ __forceinline__ bool sees(const Problem& p, const int (&at)[3], const int (&q)[3], int (&to)[3]) {
  bool inside = true;
#pragma unroll
  for (int d = 0; d < 3; ++d) {
    const Axis& a = p.axes[d];
    const int up = at[d] + a.padding - q[d] * a.dilation;
    to[d] = a.stride == 1 ? up : up / a.stride;
    inside = inside && up >= 0 && to[d] * a.stride == up && to[d] < a.y;
  }
  return inside;
}

/// y, or dx; N > 1: the multiplier is 1.
template <class T, int N, bool kBackward> __global__ void depthwise_kernel(Problem p, int64_t total) {
  const Field &from = kBackward ? p.y : p.x, &to = kBackward ? p.x : p.y;
  for (const int64_t e : grid_stride(total)) {
    int image, channel, at[3], other[3];
    locate<N>(p, uint32_t(e), image, channel, at);
    Values<T, N> sum{};
    const int repeats = kBackward ? p.multiplier : 1;
    for (int r = 0; r < repeats; ++r) {
      const int output = kBackward ? channel * p.multiplier + r : channel;
      const int input = kBackward ? output : channel / p.multiplier;
      const int64_t start = image * from.outer + input * from.channel;
      for_positions(p, [&](const int(&q)[3]) {
        if (!(kBackward ? sees(p, at, q, other) : seen(p, at, q, other))) return;
        const Values<T, N> x = load<T, N>(from, start + place_of(from, other)),
                           w = load<T, N>(p.w, output * p.w.outer + place_of(p.w, q));
#pragma unroll
        for (int i = 0; i < N; ++i) sum.of[i] += x.of[i] * w.of[i];
      });
    }
    Pack<T, N> made;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (p.bias) sum.of[i] += widen(static_cast<const T*>(p.bias)[(channel + i) * p.bias_stride]);
      made.of[i] = narrow<T>(p.relu && sum.of[i] < 0 ? 0 : sum.of[i]);
    }
    T* const place = static_cast<T*>(to.data) + image * to.outer + channel * to.channel + place_of(to, at);
    *reinterpret_cast<Pack<T, N>*>(place) = made;
  }
}

/// Sums of one kernel position, for `lanes` packs of outputs and one share of the pixels: the block's rows of threads share these out.
template <class T, int N> __global__ void depthwise_weight_kernel(Problem p, int64_t total) {
  __shared__ float shared[kThreads][N];
  const int lane = int(threadIdx.x) % p.lanes, row = int(threadIdx.x) / p.lanes, rows = kThreads / p.lanes;
  for (int64_t number = blockIdx.x; number < total; number += gridDim.x) {
    const int position = int(number % p.positions), tile = int(number / p.positions % p.tiles),
              split = int(number / p.positions / p.tiles), output = (tile * p.lanes + lane) * N;
    int q[3], rest = position;
    for (int d = 3; d-- > 0;) q[d] = rest % p.axes[d].kernel, rest /= p.axes[d].kernel;
    const int last = int(int64_t(p.pixels) * (split + 1) / p.splits);
    Values<T, N> sum{};
    for (int i = int(int64_t(p.pixels) * split / p.splits) + row; output < p.outputs && i < last; i += rows) {
      int at[3], from[3];
      uint32_t image = uint32_t(i);
#pragma unroll
      for (int d = 3; d-- > 0;) {
        const uint32_t next = p.by_axis[d].quotient(image);
        at[d] = int(image - next * p.by_axis[d].d), image = next;
      }
      if (!seen(p, at, q, from)) continue;
      const Values<T, N> dy = load<T, N>(p.y, image * p.y.outer + output * p.y.channel + place_of(p.y, at)),
                         x = load<T, N>(p.x,
                                        image * p.x.outer + output / p.multiplier * p.x.channel + place_of(p.x, from));
#pragma unroll
      for (int k = 0; k < N; ++k) sum.of[k] += dy.of[k] * x.of[k];
    }
    for (int k = 0; k < N; ++k) shared[threadIdx.x][k] = sum.of[k];
    for (int half = rows / 2; half > 0; half /= 2) {
      __syncthreads();
      if (row < half)
        for (int k = 0; k < N; ++k) shared[threadIdx.x][k] += shared[threadIdx.x + half * p.lanes][k];
    }
    for (int k = 0; k < N && row == 0 && output < p.outputs; ++k)
      p.sums[(int64_t(split) * p.outputs + output + k) * p.positions + position] = shared[threadIdx.x][k];
    __syncthreads();  // before sums are written again
  }
}

Field field(V v) {
  Field f{v.data, v.strides[0], v.strides[1], {}};
  for (int64_t d = 2; d < v.rank; ++d) f.axis[5 - v.rank + (d - 2)] = v.strides[d];
  return f;
}
/// May channels be read, or written, in packs?
bool is_in_packs(V v, int64_t pack) {
  bool ok = v.sizes[1] % pack == 0 && v.strides[1] == 1 && reinterpret_cast<uintptr_t>(v.data) % 16 == 0;
  for (int64_t d = 0; d < v.rank; ++d) ok = ok && (d == 1 || v.sizes[d] == 1 || v.strides[d] % pack == 0);
  return ok;
}
/// A copy with outputs innermost.
TensorView outputs_innermost(Context& ctx, V w) {
  TensorView image = w;
  int64_t step = image.strides[0] = 1;
  step = w.sizes[0];
  for (int64_t d = w.rank; d-- > 1;) image.strides[d] = step, step *= w.sizes[d];
  image.data = ctx.scratch(step * size_of(w.dtype));
  copy(ctx, {image, w});
  return image;
}

template <class T, int N> void run(Context& ctx, Pass pass, Problem& p, V x, V w, V y) {
  const bool backward = pass == Pass::BackwardData;
  const TensorView& to = backward ? x : y;
  p.channels_last = N > 1;
  p.by_channel = Divider(uint32_t(to.sizes[1] / N));
  for (int d = 0; d < 3; ++d) p.by_axis[d] = Divider(uint32_t(backward ? p.axes[d].x : p.axes[d].y));
  if (pass != Pass::BackwardWeight) {
    p.w = field(N > 1 ? outputs_innermost(ctx, w) : w);
    const int64_t total = to.numel() / N;
    if (backward) launch(ctx, "conv_backward_data", grid_of(total, kThreads), depthwise_kernel<T, N, true>, p, total);
    else launch(ctx, "conv", grid_of(total, kThreads), depthwise_kernel<T, N, false>, p, total);
    return;
  }
  const int packs = p.outputs / N;
  for (p.lanes = 1; N > 1 && p.lanes < 32 && p.lanes < packs;) p.lanes *= 2;
  p.tiles = (packs + p.lanes - 1) / p.lanes;
  const int64_t blocks = int64_t(p.tiles) * p.positions, rows = kThreads / p.lanes;
  p.splits = int(
      std::clamp<int64_t>(16 * multiprocessors(ctx.device) / blocks, 1, std::max<int64_t>(1, p.pixels / (8 * rows))));
  p.sums = static_cast<float*>(ctx.scratch(int64_t(p.splits) * p.outputs * p.positions * int64_t(sizeof(float))));
  const Grid grid{grid_of(blocks * p.splits, 1).blocks, dim3(kThreads)};
  launch(ctx, "conv_backward_weight", grid, depthwise_weight_kernel<T, N>, p, blocks * p.splits);
  add_splits(ctx, w, p.sums, p.splits, 1);
}
template <class T> void run(Context& ctx, Pass pass, Problem& p, V x, V w, V y) {
  constexpr int kPack = kPackSize<T>;
  const bool packs = p.multiplier == 1 && is_in_packs(x, kPack) && is_in_packs(y, kPack);
  packs ? run<T, kPack>(ctx, pass, p, x, w, y) : run<T, 1>(ctx, pass, p, x, w, y);
}

}  // namespace

bool depthwise_conv(Context& ctx, Pass pass, V x, V w, V y, V bias, const ConvParams& params) {
  if (w.sizes[1] != 1 || params.groups != x.sizes[1]) return false;
  if (x.dtype != kFloat32 && x.dtype != kFloat16 && x.dtype != kBFloat16) return false;
  Problem p{};
  if (!make_axes(p.axes, x, w, y, params, false) || std::max(x.numel(), y.numel()) > INT32_MAX) return false;
  p.x = field(x), p.y = field(y), p.bias = bias.data, p.bias_stride = bias.defined() ? bias.strides[0] : 0;
  p.relu = params.relu;
  p.images = int(x.sizes[0]), p.outputs = int(y.sizes[1]), p.multiplier = int(y.sizes[1] / x.sizes[1]);
  p.positions = int(w.numel() / w.sizes[0]), p.pixels = int(y.numel() / y.sizes[1]);
  if (x.dtype == kFloat32) run<float>(ctx, pass, p, x, w, y);
  else if (x.dtype == kFloat16) run<Half>(ctx, pass, p, x, w, y);
  else run<BFloat16>(ctx, pass, p, x, w, y);
  return true;
}

}  // namespace tapir::inline v0::cuda_kernels
