#pragma once
#include <cuda_runtime.h>

#include "../divider.h"
#include "conv.h"

// What kernels of Note [Convolutions as products] are given.
namespace tapir::inline v0::cuda_kernels {

/// An operand as (outer, inner, channels, spatial), in elements; channels are 1 apart.
struct Side {
  const void* data = nullptr;
  int64_t outer = 0, inner = 0;
  int axis[3] = {};
};

/// One spatial axis of one phase. Kernel position j of its pixel i sees i scale + base + j dilation.
struct Phase {
  int first, step, count;  // its pixels of the result: first + i step
  int scale, base, dilation;
  int kernel, kernel_step, positions;  // position j is kernel + j kernel_step of the weight
  int larger;                          // the axis has its divider by count: pixels[larger]
};
/// One spatial axis: extents of x and y, kernel.
struct Axis {
  int x = 1, y = 1, kernel = 1, stride = 1, padding = 0, dilation = 1;
  int kernel_step = 1;  // positions that see one phase are so many apart
  Divider pixels[2];    // by the pixels of a phase of x, those of one that has one more; without phases, by y
  Divider kernels;

  TAPIR_HD int phases() const { return stride < x ? stride : x; }  // of x: those behind are empty
  __device__ void forward(Phase& to) const { to = {0, 1, y, stride, -padding, dilation, 0, 1, kernel, 0}; }
  /// x as the result: pixels r + i stride.
  __device__ void backward(Phase& to, int r) const {
    int q = 0;
    while (q < kernel_step && (r + padding - q * dilation) % stride != 0) ++q;
    const int positions = q < kernel_step && q < kernel ? (kernel - q + kernel_step - 1) / kernel_step : 0;
    const int count = r < x ? (x - r + stride - 1) / stride : 0;
    const int base = (r + padding - q * dilation) / stride, apart = kernel_step * dilation / stride;
    to = {r, stride, count, 1, base, -apart, q, kernel_step, positions, r < x % stride};
  }
};

/// False where numbers of pixels, or the coordinates that meet, do not fit. phases: x is the result.
bool make_axes(Axis (&axes)[3], V x, V w, V y, const ConvParams& params, bool phases);

/// y, or dx: `from` is x, or dy, (image, group, ...); `weight` (group, output, ...) has as many channels.
struct ImageProblem {
  Side from, weight;
  void* to;
  int64_t to_image, to_channel, to_axis[3];
  const void* bias;  // (optional)
  int64_t bias_stride;
  bool relu;
  int images, groups, channels, outputs;  // channels and outputs of a group
  int tiles, column_tiles;                // of a phase, of a group
  Axis axes[3];
  bool backward;
  bool packs;  // channels of the result lie in whole packs
  __device__ int extent(int d) const { return backward ? axes[d].y : axes[d].x; }  // of `from`
};

/// Sums of dw: (split, group, output, kernel position, channel).
struct WeightProblem {
  Side x, dy;
  float* sums;
  int images, groups, channels, outputs, columns;  // columns: kernel positions x channels
  int row_tiles, column_tiles, steps, splits;      // steps: tiles of pixels
  int pixels;
  Axis axes[3];
  Divider by_channels;
};

// conv_image.cu, conv_weight.cu: operands of float32, float16 or bfloat16.
void conv_image(Context& ctx, DType dtype, ImageProblem p);
/// Chooses p.splits and makes p.sums.
void conv_weight(Context& ctx, DType dtype, WeightProblem& p);

}  // namespace tapir::inline v0::cuda_kernels
