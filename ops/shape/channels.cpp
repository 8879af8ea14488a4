#include "../channels.h"

#include "../arithmetic.h"
#include "../cast.h"
#include "../front.h"
#include "../pad.h"
#include "../pointwise.h"
#include "../pool.h"
#include "../shape.h"
#include "../spatial.h"

namespace tapir::inline v0 {

Tensor channel_shuffle(const Tensor& x, int64_t groups) {
  check_defined("channel_shuffle", "x", x);
  check(x.dim() > 2, "[channel_shuffle] expected an input with more than 2 dimensions, got {}", x);
  const int64_t channels = x.shape()[1];
  check(groups > 0 && channels % groups == 0,
        "[channel_shuffle] expected a number of groups that divides the {} channels, got {}", channels, groups);
  Shape split = x.shape();
  split[1] = groups, split.insert(2, channels / groups);
  return reshape(transpose(reshape(x, split), 1, 2), x.shape());
}

/// x in that split of its last three dimensions, permuted, and joined again to `to`; a copy.
static Tensor regrouped(const Tensor& x, const Dims& split, const Dims& order, const Dims& to) {
  const int64_t lead = x.dim() - 3;
  Shape parts = x.shape(), joined = parts;
  parts.resize(lead), joined.resize(lead);
  Dims dims;
  for (int64_t d = 0; d < lead; ++d) dims.push_back(d);
  for (int64_t n : split) parts.push_back(n);
  for (int64_t d : order) dims.push_back(lead + d);
  for (int64_t n : to) joined.push_back(n);
  const Tensor y = reshape(permute(reshape(x, parts), dims), joined);
  return y.impl().storage.get() == x.impl().storage.get() ? clone(y) : y;
}

Tensor pixel_shuffle(const Tensor& x, int64_t r) {
  check_defined("pixel_shuffle", "x", x);
  check(x.dim() >= 3, "[pixel_shuffle] expected input to have at least 3 dimensions, but got {}", x);
  check(r > 0, "[pixel_shuffle] expected a positive upscale_factor, but got {}", r);
  const int64_t channels = x.size(-3), height = x.size(-2), width = x.size(-1);
  const int64_t squared = checked_mul("pixel_shuffle", r, r), c = channels / squared;
  check(channels % squared == 0,
        "[pixel_shuffle] expected input channels to be divisible by upscale_factor squared ({}), but got {}", squared,
        x);
  return regrouped(x, {c, r, r, height, width}, {0, 3, 1, 4, 2},
                   {c, checked_mul("pixel_shuffle", height, r), checked_mul("pixel_shuffle", width, r)});
}

Tensor pixel_unshuffle(const Tensor& x, int64_t r) {
  check_defined("pixel_unshuffle", "x", x);
  check(x.dim() >= 3, "[pixel_unshuffle] expected input to have at least 3 dimensions, but got {}", x);
  check(r > 0, "[pixel_unshuffle] expected a positive downscale_factor, but got {}", r);
  const int64_t channels = x.size(-3), height = x.size(-2), width = x.size(-1);
  check(height % r == 0 && width % r == 0,
        "[pixel_unshuffle] expected height and width to be divisible by downscale_factor {}, but got {}", r, x);
  return regrouped(
      x, {channels, height / r, r, width / r, r}, {0, 2, 4, 1, 3},
      {checked_mul("pixel_unshuffle", channels, checked_mul("pixel_unshuffle", r, r)), height / r, width / r});
}

Tensor local_response_norm(const Tensor& x, int64_t size, const LocalResponseNormOptions& o) try {
  check_defined("local_response_norm", "x", x);
  check(x.dim() > 2, "[local_response_norm] expected 3D or higher dimensionality input, got {}", x);
  check(size > 0, "[local_response_norm] expected a size above 0, got {}", size);
  if (x.numel() == 0) return x;
  const int64_t samples = x.shape()[0], channels = x.shape()[1];
  const Tensor rows = reshape(mul(x, x), {samples, 1, channels, x.numel() / (samples * channels)});
  const Tensor means = avg_pool2d(pad(rows, {0, 0, size / 2, (size - 1) / 2}), {size, 1}, {.stride = 1});
  return div(x, reshape(pow(add(mul(means, o.alpha), o.k), o.beta), x.shape()));
} catch (...) {
  fail_as("local_response_norm");
}

}  // namespace tapir::inline v0
