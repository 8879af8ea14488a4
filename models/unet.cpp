#include "unet.h"

#include "../nn/activation.h"
#include "../nn/norm.h"
#include "../ops/interpolate.h"
#include "../ops/pool.h"
#include "../ops/slicing.h"
#include "init.h"

namespace tapir::inline v0::models {

static nn::Sequential double_conv(int64_t in, int64_t out, int64_t middle) {
  return nn::Sequential(nn::Conv2d(in, middle, 3, {.padding = 1, .bias = false}), nn::BatchNorm2d(middle), nn::ReLU(),
                        nn::Conv2d(middle, out, 3, {.padding = 1, .bias = false}), nn::BatchNorm2d(out), nn::ReLU());
}

static const UNetOptions& checked(const UNetOptions& o) {
  check(o.depth > 0 && o.depth <= 24, "[UNet] expected depth from 1 to 24, got {}", o.depth);
  check(o.width < int64_t(1) << 32, "[UNet] expected width below 2^32, got {}", o.width);
  return o;
}

UNet::UNet(const UNetOptions& o)
    : inc(double_conv(checked(o).in_channels, o.width, o.width)), outc(o.width, o.num_classes, 1) {
  for (int64_t level = 0; level < o.depth; ++level) {
    const int64_t in = o.width << level,
                  out = level + 1 < o.depth ? 2 * in : in;  // the lowest level keeps its channels
    down.push_back(double_conv(in, out, out));
  }
  for (int64_t level = o.depth; level-- > 0;) {
    const int64_t skip = o.width << level, out = level > 0 ? skip / 2 : skip;
    up.push_back(double_conv(2 * skip, out, skip));
  }
  init_convolutions(*this);
}

Tensor UNet::forward(const Tensor& x) {
  std::vector<Tensor> skips{inc(x)};
  for (nn::Sequential& level : down) skips.push_back(level(max_pool2d(skips.back(), 2)));
  Tensor y = skips.back();
  for (nn::Sequential& level : up) {
    skips.pop_back();
    const Tensor& skip = skips.back();
    y = interpolate(y, {.size = Dims{skip.size(2), skip.size(3)}, .mode = "bilinear", .align_corners = true});
    y = level(cat({skip, y}, 1));
  }
  return outc(y);
}

TAPIR_DEFINE_FIELDS(UNet)

}  // namespace tapir::inline v0::models
