#include "spatial.h"

#include "../ops/interpolate.h"

namespace tapir::inline v0::nn {

using detail::dims_text;

Upsample::Upsample(const UpsampleOptions& o) : options(o) {
  check(o.size.empty() != o.scale_factor.empty(), "[Upsample] expected either size or scale_factor, got {}",
        o.size.empty() ? "none" : "both");
}
Tensor Upsample::forward(const Tensor& x) {
  return interpolate(
      x, {options.size, options.scale_factor, options.mode, options.align_corners, options.recompute_scale_factor});
}
std::string Upsample::extra_repr() {
  std::string s = "size=" + dims_text(options.size);
  if (options.size.empty()) {
    s.clear();
    for (double f : options.scale_factor) s += (s.empty() ? "" : ", ") + detail::float_text(f);
    s = options.scale_factor.size() == 1 ? "scale_factor=" + s : "scale_factor=(" + s + ")";
  }
  return s + ", mode='" + options.mode + "'";
}

static std::string fold_text(const Dims& kernel_size, const FoldOptions& o) {
  return tapir::format("kernel_size={}, dilation={}, padding={}, stride={}", dims_text(kernel_size),
                       dims_text(o.dilation), dims_text(o.padding), dims_text(o.stride));
}
std::string Unfold::extra_repr() { return fold_text(kernel_size, options); }
std::string Fold::extra_repr() {
  return "output_size=" + dims_text(output_size) + ", " + fold_text(kernel_size, options);
}

TAPIR_DEFINE_FIELDS(Upsample, UpsamplingNearest2d, UpsamplingBilinear2d, Unfold, Fold, PixelShuffle, PixelUnshuffle,
                    ChannelShuffle)

}  // namespace tapir::inline v0::nn
