// Activations in 8 bits, and int8 weights as tiles and packs read them: Note [Quantized products on a GPU].
#include "../../core/formulas/quantize.h"
#include "quant_device.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

constexpr int kThreads = 256;

/// q - 128 as a byte.
__device__ __forceinline__ uint8_t stored(uint8_t q) { return uint8_t(q ^ 128); }

/// Of the numbers x[i W] to x[(i + 1) W], by the threads of a group; what is not finite makes `high` NaN.
template <int W, class T> __device__ formulas::QuantScale scale_of_row(const T* x, int64_t k, int lane, int lanes) {
  __shared__ float shared[32];
  float low = 0, high = 0, bad = 0;
  for (int64_t i = int64_t(lane) * W; i < k; i += int64_t(lanes) * W) {
    float v[W];
    load_numbers(x + i, v);
#pragma unroll
    for (int l = 0; l < W; ++l) low = v[l] < low ? v[l] : low, high = v[l] > high ? v[l] : high, bad += v[l] * 0;
  }
  low = group_fold(low, 0.f, shared, lanes, Smaller{}), high = group_fold(high, 0.f, shared, lanes, Larger{});
  bad = group_fold(bad, 0.f, shared, lanes, Plus{});
  formulas::QuantScale s = formulas::affine_scale(low, high);
  if (bad != bad) s.scale = bad;  // a row with NaN or infinity has no scale
  return s;
}

/// scale and zero: one for all rows where they are given, else each row's own, which are written.
template <class T, int W> __global__ void __launch_bounds__(kThreads)
    quantize_rows_kernel(const T* x, int64_t m, int64_t k, int lanes, bool given, float* scale, int32_t* zero,
                         QuantRows to) {
  for (RowGroups at(lanes); at.base < m; at.next()) {
    const int64_t row = at.row();
    const T* const from = x + row * k;
    formulas::QuantScale s;
    if (given) s = {*scale, float(*zero)};
    else s = scale_of_row<W>(from, row < m ? k : 0, at.lane, lanes);
    if (row >= m) continue;
    if (!given && at.lane == 0) scale[row] = s.scale, zero[row] = int32_t(s.zero_point);
    const float inverse = 1 / s.scale;
    int8_t* const bytes = to.data + row * to.stride;
    for (int64_t i = int64_t(at.lane) * W; i < k; i += int64_t(lanes) * W) {
      float v[W];
      load_numbers(from + i, v);
      Pack<uint8_t, W> q;
#pragma unroll
      for (int l = 0; l < W; ++l) q.of[l] = stored(formulas::quantize_uint8(v[l], inverse, s.zero_point));
      *reinterpret_cast<Pack<uint8_t, W>*>(bytes + i) = q;
    }
    for (int64_t i = k + at.lane; i < to.stride; i += lanes) bytes[i] = 0;
  }
}

/// Strides of an image, in elements.
struct ImageStrides {
  int64_t n, c, spatial[3];
};

/// A thread makes 16 channels of a pixel. In an image without channels last, neighbours make neighbouring pixels.
__global__ void __launch_bounds__(kThreads)
    quantize_image_kernel(const float* x, ImageStrides strides, bool last, QuantImage image, const float* scale,
                          const int32_t* zero, int8_t* to) {
  const int64_t chunks = image.groups * image.channels / 16, pixels = image.pixels();
  const float inverse = 1 / *scale, zero_point = float(*zero);
  const auto border = stored(uint8_t(*zero));
  for (const int64_t i : grid_stride(image.n * pixels * chunks)) {
    const int64_t chunk = last ? i % chunks : i / pixels % chunks, pixel = last ? i / chunks % pixels : i % pixels;
    const int64_t n = i / chunks / pixels, g = chunk * 16 / image.channels, first = chunk * 16 % image.channels;
    int64_t rest = pixel, from = n * strides.n + (g * image.inner + first) * strides.c;
    bool inside = true;
#pragma unroll
    for (int d = 2; d >= 0; --d) {
      const int64_t at = rest % image.padded(d) - image.padding[d];
      rest /= image.padded(d), from += at * strides.spatial[d], inside = inside && at >= 0 && at < image.size[d];
    }
    Pack<uint8_t, 16> q;
#pragma unroll
    for (int l = 0; l < 16; ++l) {
      q.of[l] = border;
      if (first + l >= image.inner) q.of[l] = 0;
      else if (inside) q.of[l] = stored(formulas::quantize_uint8(x[from + l * strides.c], inverse, zero_point));
    }
    *reinterpret_cast<Pack<uint8_t, 16>*>(to + ((n * pixels + pixel) * chunks + chunk) * 16) = q;
  }
}

__global__ void arrange_weights_kernel(const int8_t* w, int64_t chunks_in_all, int64_t inner, int64_t positions,
                                       int64_t chunks, int8_t* to) {
  for (const int64_t i : grid_stride(chunks_in_all)) {
    const int64_t first = i % chunks * 16, position = i / chunks % positions, o = i / chunks / positions;
    Pack<int8_t, 16> q;
#pragma unroll
    for (int l = 0; l < 16; ++l)
      q.of[l] = first + l < inner ? w[(o * inner + first + l) * positions + position] : int8_t(0);
    *reinterpret_cast<Pack<int8_t, 16>*>(to + i * 16) = q;
  }
}

template <class T>
void quantize(Context& ctx, const QuantProduct& p, bool given, float* scale, int32_t* zero, QuantRows to) {
  const auto run = [&](int lanes, auto kernel) {
    launch(ctx, "quant_matmul", row_grid(p.m, lanes), kernel, static_cast<const T*>(p.x), p.m, p.k, lanes, given, scale,
           zero, to);
  };
  if (p.k % 16 == 0) run(lanes_for(p.k, 16, kThreads), quantize_rows_kernel<T, 16>);
  else run(lanes_for(p.k, 4, kThreads), quantize_rows_kernel<T, 1>);
}

}  // namespace

QuantRows quantize_rows(Context& ctx, const QuantProduct& p, V x_scale, V x_zero, QuantFinish& finish) {
  const bool given = x_scale.defined();
  const int64_t stride = (p.k + 15) / 16 * 16;
  const QuantRows to{ctx.scratch_of<int8_t>(p.m * stride), stride};
  float* const scale = given ? x_scale.as<float>() : ctx.scratch_of<float>(p.m);
  int32_t* const zero = given ? x_zero.as<int32_t>() : ctx.scratch_of<int32_t>(p.m);
  finish.scale = scale, finish.zero = zero, finish.scale_step = given ? 0 : 1;
  if (p.dtype == kFloat32) quantize<float>(ctx, p, given, scale, zero, to);
  else if (p.dtype == kFloat16) quantize<Half>(ctx, p, given, scale, zero, to);
  else quantize<BFloat16>(ctx, p, given, scale, zero, to);
  return to;
}

void quantize_image(Context& ctx, V x, const QuantImage& image, const float* scale, const int32_t* zero, int8_t* to) {
  ImageStrides strides{x.strides[0], x.strides[1], {}};
  for (int64_t d = 2; d < x.rank; ++d) strides.spatial[d + 3 - x.rank] = x.strides[d];
  launch(ctx, "quant_conv", grid_of(image.n * image.pixels() * image.groups * image.channels / 16, kThreads),
         quantize_image_kernel, x.as<float>(), strides, x.strides[1] == 1, image, scale, zero, to);
}

const int8_t* arrange_weights(Context& ctx, const char* op, const void* w, int64_t o, int64_t inner, int64_t positions,
                              int64_t channels) {
  const auto* const from = static_cast<const int8_t*>(w);
  if (positions == 1 && inner == channels && reinterpret_cast<uintptr_t>(w) % 16 == 0) return from;
  int8_t* const to = ctx.scratch_of<int8_t>(o * positions * channels);
  const int64_t chunks = channels / 16, all = o * positions * chunks;
  launch(ctx, op, grid_of(all), arrange_weights_kernel, from, all, inner, positions, chunks, to);
  return to;
}

}  // namespace tapir::inline v0::cuda_kernels
