#include "channels.h"

#include "arithmetic.h"
#include "cast.h"
#include "pad.h"
#include "pointwise.h"
#include "pool.h"
#include "shape.h"

namespace tapir::inline v0 {

Tensor channel_shuffle(const Tensor& x, int64_t groups) {
  check(x.dim() > 2, "[channel_shuffle] expected an input with more than 2 dimensions, got {}", x);
  const int64_t channels = x.shape()[1];
  check(groups > 0 && channels % groups == 0,
        "[channel_shuffle] expected a number of groups that divides the {} channels, got {}", channels, groups);
  Shape split = x.shape();
  split[1] = groups, split.insert(2, channels / groups);
  return reshape(transpose(reshape(x, split), 1, 2), x.shape());
}

Tensor local_response_norm(const Tensor& x, int64_t size, const LocalResponseNormOptions& o) {
  check(x.dim() > 2, "[local_response_norm] expected 3D or higher dimensionality input, got {}", x);
  check(size > 0, "[local_response_norm] expected a size above 0, got {}", size);
  if (x.numel() == 0) return x;
  const int64_t samples = x.shape()[0], channels = x.shape()[1];
  const Tensor rows = reshape(mul(x, x), {samples, 1, channels, x.numel() / (samples * channels)});
  const Tensor means = avg_pool2d(pad(rows, {0, 0, size / 2, (size - 1) / 2}), {size, 1}, {.stride = 1});
  return div(x, reshape(pow(add(mul(means, o.alpha), o.k), o.beta), x.shape()));
}

}  // namespace tapir::inline v0
