// Convolutions in 8 bits: an image of q - 128 whose borders hold the zero point, then Note [Integer products on tensor cores].
#include "../runtime/device.h"
#include "../stage.h"
#include "quant.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

QuantImage image_of(V x, const ConvParams& p) {
  QuantImage image{.n = x.sizes[0], .groups = p.groups};
  image.inner = x.sizes[1] / p.groups, image.channels = (image.inner + 15) / 16 * 16;
  for (int64_t d = 0; d < p.spatial; ++d)
    image.size[d + 3 - p.spatial] = x.sizes[d + 2], image.padding[d + 3 - p.spatial] = p.padding[d];
  return image;
}

/// The product of an image's places. Axes that there are not have extent 1.
QuantTiles tiles_of(V w, V y, const QuantImage& image, const ConvParams& p) {
  QuantTiles t{.m = image.n, .n = y.sizes[1] / p.groups, .groups = p.groups, .group_step = image.channels};
  t.channels = t.k = image.channels;
  int64_t pixel = image.groups * image.channels;
  for (int d = 2; d >= 0; pixel *= image.padded(d), --d) {
    const int64_t axis = d - 3 + p.spatial;
    const bool there = axis >= 0;
    t.out[d] = there ? y.sizes[axis + 2] : 1, t.kernel[d] = there ? w.sizes[axis + 2] : 1;
    t.from.strides[d + 1] = there ? p.stride[axis] * pixel : 0, t.step[d] = there ? p.dilation[axis] * pixel : 0;
    t.to.strides[d + 1] = there ? y.strides[axis + 2] : 0;
    t.m *= t.out[d], t.k *= t.kernel[d];
  }
  t.from.strides[0] = pixel, t.to.strides[0] = y.strides[0], t.y_column = y.strides[1];
  return t;
}

}  // namespace

void quant_conv(Context& ctx, const entry::QuantConv& c) {
  const TensorView& y = c.y;
  if (y.numel() == 0) return;
  const QuantImage image = image_of(c.x, c.params);
  QuantTiles t = tiles_of(c.w, y, image, c.params);
  const float* const scale = c.x_scale.as<float>();
  const int32_t* const zero = c.x_zero.as<int32_t>();
  t.finish = {scale,
              zero,
              0,
              static_cast<const float*>(staged(ctx, c.w_scale).data),
              static_cast<const float*>(staged(ctx, c.bias).data),
              y.data,
              kFloat32};
  check_runtime(code_version(ctx.device) >= 75,
                "[quant_conv] expected kernels compiled for compute capability 7.5 or later, got {}.{}",
                code_version(ctx.device) / 10, code_version(ctx.device) % 10);
  t.w = arrange_weights(ctx, "quant_conv", in_row_major(ctx, c.w).data, y.sizes[1], image.inner, t.k / t.channels,
                        t.channels);
  int8_t* const pixels = ctx.scratch_of<int8_t>(image.n * t.from.strides[0]);
  quantize_image(ctx, c.x, image, scale, zero, pixels);
  t.x = pixels;
  quant_tiles(ctx, "quant_conv", t);
}

}  // namespace tapir::inline v0::cuda_kernels
