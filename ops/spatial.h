#pragma once
// What convolutions and pooling share: options for each spatial axis, samples without a batch, layouts.
#include "../core/backend.h"
#include "../core/tensor.h"

namespace tapir::inline v0 {

/// One number, or one for each of `spatial` axes, each at least `least`, into to[].
void spread(const char* op, const char* option, const Dims& values, int64_t spatial, int64_t least, int64_t* to);
/// Dense in channels_last, and laid out so by its strides, where extents of 1 make it row-major as well.
inline bool prefers_channels_last(const Tensor& x) {
  return x.is_contiguous(kChannelsLast) && suggest_memory_format(x) == kChannelsLast;
}
/// Memory for (N, C, ...) in either layout.
Tensor empty_image(const Shape& shape, const Tensor& like, bool channels_last);
/// a + b and a b for sizes; ValueError where they leave 62 bits.
int64_t checked_add(const char* op, int64_t a, int64_t b);
int64_t checked_mul(const char* op, int64_t a, int64_t b);
/// The extent of a dilated kernel: dilation (kernel - 1) + 1.
inline int64_t checked_extent(const char* op, int64_t kernel, int64_t dilation) {
  return checked_add(op, checked_mul(op, dilation, kernel - 1), 1);
}

struct ConvOptions;
/// What a convolution of x (N, C, ...) with w (O, C / groups, ...) gives; bit d of `dropped`: without the first along dimension d, which
/// padding "same" of an odd sum adds. ValueError for options that do not fit the sizes.
struct ConvGeometry {
  ConvParams params;
  Shape shape;
  uint32_t dropped = 0;
};
ConvGeometry conv_geometry(const char* op, const Tensor& x, const Tensor& w, const ConvOptions& options);

}  // namespace tapir::inline v0
