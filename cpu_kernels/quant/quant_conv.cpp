// Convolutions in 8 bits: the activations are quantized into a channels-last image whose borders already hold the zero point, so that
// what follows needs no padding: the library's kernel, or sums over stretches of neighbouring bytes.
#include "../../core/layout.h"
#include "../../core/parallel.h"
#include "../dnn.h"
#include "../pack.h"
#include "quant_dot.h"
#include "quant_product.h"

namespace tapir::inline v0::cpu {
namespace {

/// The sizes of a padded image; axes that there are not are 1.
dnn::ConvShape padded_shape(V x, V w, V y, const ConvParams& p) {
  dnn::ConvShape s{.n = x.sizes[0], .c = x.sizes[1], .o = y.sizes[1], .groups = p.groups, .spatial = p.spatial};
  for (int64_t d = 0; d < p.spatial; ++d) {
    s.in[d] = x.sizes[d + 2] + 2 * p.padding[d], s.out[d] = y.sizes[d + 2], s.kernel[d] = w.sizes[d + 2];
    s.stride[d] = p.stride[d], s.dilation[d] = p.dilation[d];
  }
  return s;
}
TensorView channels_last(Context& ctx, V v, bool written) {
  TensorView image = v;
  image.strides[1] = 1;
  for (int64_t d = v.rank, step = v.sizes[1]; d-- > 0;)
    if (d != 1) image.strides[d] = step, step *= v.sizes[d];
  bool same = true;
  for (int64_t d = 0; d < v.rank; ++d) same = same && (v.sizes[d] == 1 || v.strides[d] == image.strides[d]);
  if (same) return image;
  image.data = ctx.scratch(v.numel() * size_of(v.dtype));
  if (!written) copy(ctx, {image, v});
  count_layout_conversion();
  return image;
}

/// The padded image in uint8.
uint8_t* quantize_image(Context& ctx, V x, const dnn::ConvShape& s, const ConvParams& p, formulas::QuantScale scale) {
  const int64_t d0 = s.in[0], d1 = s.in[1], d2 = s.in[2], c = s.c, skip = p.spatial;
  uint8_t* image = ctx.scratch_of<uint8_t>(s.n * d0 * d1 * d2 * c);
  int64_t before[3] = {}, size[3] = {1, 1, 1};
  for (int64_t d = 0; d < skip; ++d) before[d] = p.padding[d], size[d] = x.sizes[d + 2];
  const int zero = int(scale.zero_point);
  // A line is the last axis that there is, a plane all but the first of three.
  const int64_t last = skip - 1, line = s.in[last] * c, lines = s.n * d0 * d1 * d2 * c / line;
  parallel_for(lines, std::max<int64_t>(1, (1 << 15) / line), [&](int64_t first, int64_t end) {
    for (int64_t at = first; at < end; ++at) {
      uint8_t* to = image + at * line;
      int64_t rest = at, from = 0, step = size[last] * c;
      bool inside = true;
      for (int64_t d = last; d-- > 0;) {
        const int64_t i = rest % s.in[d] - before[d];
        rest /= s.in[d], inside = inside && i >= 0 && i < size[d], from += i * step, step *= size[d];
      }
      if (!inside) {
        std::fill_n(to, line, uint8_t(zero));
        continue;
      }
      const int64_t left = before[last] * c, width = size[last] * c;
      std::fill_n(to, left, uint8_t(zero));
      quantize_row(to + left, x.as<float>() + rest * step + from, width, 1 / scale.scale, scale.zero_point);
      std::fill_n(to + left + width, line - left - width, uint8_t(zero));
    }
  });
  return image;
}

/// w (O, C / groups, spatial...) as (O, spatial..., C / groups).
const int8_t* channels_inside(Context& ctx, const int8_t* w, const dnn::ConvShape& s) {
  const int64_t inner = s.c / s.groups, positions = s.kernel[0] * s.kernel[1] * s.kernel[2];
  int8_t* to = ctx.scratch_of<int8_t>(s.o * inner * positions);
  for (int64_t o = 0; o < s.o; ++o)
    for (int64_t c = 0; c < inner; ++c)
      for (int64_t q = 0; q < positions; ++q) to[(o * positions + q) * inner + c] = w[(o * inner + c) * positions + q];
  return to;
}

/// Our own kernel. Six outputs along the last axis and four channels at a time; where neither groups nor dilation part them, a row of
/// the kernel's positions is one stretch.
void own_conv(Context& ctx, const dnn::QuantConv& c) {
  const dnn::ConvShape& s = c.shape;
  const int64_t last = s.spatial - 1, inner = s.c / s.groups, wide = s.o / s.groups;
  int64_t steps[3] = {}, outputs[3] = {1, 1, 1};  // of the image, in bytes
  for (int64_t d = s.spatial, step = s.c; d-- > 0; step *= s.in[d]) steps[d] = step, outputs[d] = s.out[d];
  const bool joined = s.groups == 1 && s.dilation[last] == 1;
  const int64_t length = joined ? s.kernel[last] * inner : inner, positions = s.kernel[0] * s.kernel[1] * s.kernel[2],
                count = positions * inner / length;
  int64_t* offsets = ctx.scratch_of<int64_t>(count);
  for (int64_t i = 0; i < count; ++i) {
    offsets[i] = 0;
    for (int64_t d = s.spatial, q = joined ? i * s.kernel[last] : i; d-- > 0; q /= s.kernel[d])
      offsets[i] += q % s.kernel[d] * s.dilation[d] * steps[d];
  }
  const Stretches stretches{count, length, offsets};
  const int8_t* w = channels_inside(ctx, static_cast<const int8_t*>(c.w), s);
  const int64_t k = positions * inner, image = steps[0] * s.in[0], across = s.out[last],
                lines = s.n * outputs[0] * outputs[1] * outputs[2] / across;
  parallel_for(lines, std::max<int64_t>(1, (1 << 16) / (across * s.o * k)), [&](int64_t first, int64_t end) {
    int32_t sums[kDotRows * kDotColumns];
    for (int64_t at = first; at < end; ++at) {
      int64_t rest = at, from = 0;
      for (int64_t d = last; d-- > 0; rest /= s.out[d]) from += rest % s.out[d] * s.stride[d] * steps[d];
      const uint8_t* x = static_cast<const uint8_t*>(c.x) + rest * image + from;
      float* y = static_cast<float*>(c.y) + at * across * s.o;
      for (int64_t g = 0; g < s.groups; ++g)
        for (int64_t o = g * wide; o < (g + 1) * wide; o += kDotColumns) {
          const int64_t columns = std::min(kDotColumns, (g + 1) * wide - o), stride = s.stride[last] * s.c;
          for (int64_t i = 0; i < across; i += kDotRows) {
            const int64_t rows = std::min(kDotRows, across - i);
            dot_block(rows, columns, stretches, x + i * stride + g * inner, stride, w + o * k, k, sums, kDotColumns);
            for (int64_t r = 0; r < rows; ++r)
              for (int64_t b = o; b < o + columns; ++b) {
                const float product = float(sums[kDotColumns * r + b - o] - c.zero[b]) * c.multiply[b];
                y[(i + r) * s.o + b] = c.bias ? product + c.bias[b] : product;
              }
          }
        }
    }
  });
}

}  // namespace

void quant_conv(Context& ctx, const entry::QuantConv& call) {
  V y = call.y, x = call.x, w = call.w, w_scale = call.w_scale, bias = call.bias;
  if (y.numel() == 0) return;
  const formulas::QuantScale scale = given_scale("quantized_conv", call.x_scale, call.x_zero);
  const dnn::ConvShape s = padded_shape(x, w, y, call.params);
  const TensorView image = channels_last(ctx, x, false), out = channels_last(ctx, y, true),
                   weight = w.is_contiguous() ? w : dense(ctx, w, kInt8),
                   own_bias = bias.defined() ? dense(ctx, bias, kFloat32) : bias;
  const int64_t k = s.c / s.groups * s.kernel[0] * s.kernel[1] * s.kernel[2];
  float* multiply = ctx.scratch_of<float>(s.o);
  int32_t* zero = ctx.scratch_of<int32_t>(s.o);
  for (int64_t o = 0; o < s.o; ++o) {
    multiply[o] = scale.scale * w_scale.as<float>()[o * w_scale.strides[0]];
    zero[o] = int32_t(scale.zero_point) * sum_of(weight.as<int8_t>() + o * k, k);
  }
  uint8_t* pixels = quantize_image(ctx, image, s, call.params, scale);
  const dnn::QuantConv c{s, pixels, weight.data, out.data, multiply, zero, own_bias.as<float>()};
  if (!dnn::quant_conv(ctx, c)) own_conv(ctx, c);
  if (out.data != y.data) copy(ctx, {y, out});
}

}  // namespace tapir::inline v0::cpu
