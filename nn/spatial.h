#pragma once
#include <optional>

#include "../ops/channels.h"
#include "../ops/fold.h"
#include "module.h"

// Layers without parameters that move or resample the elements of images.
namespace tapir::inline v0::nn {

struct UpsampleOptions {
  Dims size = {};                         // this, or
  std::vector<double> scale_factor = {};  // this: one number or one for each spatial axis
  std::string mode = "nearest";           // those of interpolate()
  std::optional<bool> align_corners = {};
  bool recompute_scale_factor = false;
};
/// (N, C, ...) resampled to `size`, or by `scale_factor`.
struct Upsample : Module {
  UpsampleOptions options;
  explicit Upsample(const UpsampleOptions& options);
  Tensor forward(const Tensor& x);
  std::string extra_repr() override;
  TAPIR_DECLARE_FIELDS(options)
};
struct UpsamplingOptions {
  Dims size = {};
  std::vector<double> scale_factor = {};
};
struct UpsamplingNearest2d : Upsample {
  explicit UpsamplingNearest2d(const UpsamplingOptions& o) : Upsample({o.size, o.scale_factor, "nearest", {}, false}) {}
  TAPIR_DECLARE_FIELDS_WITH_BASE(Upsample)
};
/// The corners are fixed points.
struct UpsamplingBilinear2d : Upsample {
  explicit UpsamplingBilinear2d(const UpsamplingOptions& o)
      : Upsample({o.size, o.scale_factor, "bilinear", true, false}) {}
  TAPIR_DECLARE_FIELDS_WITH_BASE(Upsample)
};

/// The windows of an image as columns: (N, C, H, W) -> (N, C kh kw, L).
struct Unfold : Module {
  Dims kernel_size;
  FoldOptions options;
  explicit Unfold(const Dims& kernel_size, const FoldOptions& options = {})
      : kernel_size(kernel_size), options(options) {}
  Tensor forward(const Tensor& x) { return unfold(x, kernel_size, options); }
  std::string extra_repr() override;
  TAPIR_DECLARE_FIELDS(kernel_size, options)
};
/// Its transpose: overlapping windows add up.
struct Fold : Module {
  Dims output_size, kernel_size;
  FoldOptions options;
  Fold(const Dims& output_size, const Dims& kernel_size, const FoldOptions& options = {})
      : output_size(output_size), kernel_size(kernel_size), options(options) {}
  Tensor forward(const Tensor& x) { return fold(x, output_size, kernel_size, options); }
  std::string extra_repr() override;
  TAPIR_DECLARE_FIELDS(output_size, kernel_size, options)
};

#define TAPIR_REARRANGEMENT(Name, function, factor)                 \
  struct Name : Module {                                            \
    int64_t factor;                                                 \
    explicit Name(int64_t factor) : factor(factor) {}               \
    Tensor forward(const Tensor& x) { return function(x, factor); } \
    TAPIR_DECLARE_FIELDS(factor)                                    \
  };
/// (N, C r r, H, W) -> (N, C, H r, W r)
TAPIR_REARRANGEMENT(PixelShuffle, pixel_shuffle, upscale_factor)
/// (N, C, H r, W r) -> (N, C r r, H, W)
TAPIR_REARRANGEMENT(PixelUnshuffle, pixel_unshuffle, downscale_factor)
/// Channels dealt from `groups` groups in turn.
TAPIR_REARRANGEMENT(ChannelShuffle, channel_shuffle, groups)
#undef TAPIR_REARRANGEMENT

}  // namespace tapir::inline v0::nn
