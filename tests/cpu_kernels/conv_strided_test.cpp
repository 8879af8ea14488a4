// The library's kernel of 1 x 1 with strides and few channels wrote past the end of its memory (oneDNN 2.6.3): the heap was spoiled.
#include <tapir/tapir.h>

#include "catch.h"

using namespace tapir;

TEST_CASE("weights of strided convolutions of 1 x 1, any number of channels", "[isa]") {
  manual_seed(1);
  const auto gradient = [](const Tensor& x, const Tensor& dy, int64_t channels, const ConvOptions& options) {
    const Tensor w = zeros({6, channels, 1, 1}, {.dtype = x.dtype()}).requires_grad_();
    conv2d(x, w, {}, options).backward(dy);
    return w.grad().to(kFloat64);
  };
  for (const int64_t channels : {3, 7, 8, 9, 11, 15, 16, 17, 31})
    for (const ConvOptions& options : {ConvOptions{.stride = {1, 2}}, ConvOptions{.stride = {2, 2}}}) {
      INFO(channels << " channels, stride " << options.stride[0] << " x " << options.stride[1]);
      const Tensor x = randn({3, channels, 43, 44}).contiguous(kChannelsLast);
      const Tensor dy = randn({3, 6, options.stride[0] == 1 ? 43 : 22, 22}).contiguous(kChannelsLast);
      const Tensor exact = gradient(x.to(kFloat64), dy.to(kFloat64), channels, options);
      CHECK(max(abs(gradient(x, dy, channels, options) - exact)).item() < 1e-3);
    }
}
