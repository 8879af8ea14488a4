#include "conv.h"

#include <cmath>

#include "../ops/pad.h"
#include "init.h"

namespace tapir::inline v0::nn {

/// One number for both axes.
static Dims pair(const Dims& d) { return d.size() == 1 ? Dims{d[0], d[0]} : d; }

Conv2d::Conv2d(int64_t in, int64_t out, const Dims& kernel, const Conv2dOptions& o)
    : in_channels(in), out_channels(out),
      kernel_size(pair(kernel)), options{pair(o.stride), o.padding, pair(o.dilation), o.groups},
      padding_mode(o.padding_mode) {
  check(kernel_size.size() == 2 && kernel_size[0] > 0 && kernel_size[1] > 0,
        "[Conv2d] expected a kernel_size of one or two numbers above 0, got {}", kernel);
  check(o.groups > 0 && in > 0 && out > 0 && in % o.groups == 0 && out % o.groups == 0,
        "[Conv2d] expected in_channels and out_channels above 0 and divisible by groups, got {}, {} and {}", in, out,
        o.groups);
  check(o.padding_mode == "zeros" || o.padding_mode == "reflect" || o.padding_mode == "replicate" ||
            o.padding_mode == "circular",
        "[Conv2d] expected padding_mode zeros, reflect, replicate or circular, got {}", o.padding_mode);
  const double bound = 1 / std::sqrt(double(in / o.groups * kernel_size[0] * kernel_size[1]));
  weight = Parameter(empty({out, in / o.groups, kernel_size[0], kernel_size[1]}));
  init::uniform_(weight, -bound, bound);
  if (!o.bias) return;
  bias = Parameter(empty(out));
  init::uniform_(bias, -bound, bound);
}

Tensor Conv2d::forward(const Tensor& x) {
  if (padding_mode == "zeros") return conv2d(x, weight, bias, options);
  std::vector<int64_t> around(4);  // left, right, top, bottom
  const Dims sizes = pair(options.padding.sizes);
  for (int64_t d = 0; d < 2; ++d) {
    const int64_t total = options.padding.kind == Padding::Kind::Same ? options.dilation[d] * (kernel_size[d] - 1) : 0;
    const bool given = options.padding.kind == Padding::Kind::Sizes;
    around[size_t(2 - 2 * d)] = given ? sizes[d] : total / 2;
    around[size_t(3 - 2 * d)] = given ? sizes[d] : total - total / 2;
  }
  ConvOptions unpadded = options;
  unpadded.padding = 0;
  return conv2d(pad(x, around, {.mode = padding_mode}), weight, bias, unpadded);
}

std::string Conv2d::extra_repr() {
  std::string s = format("{}, {}, kernel_size={}, stride={}", in_channels, out_channels, kernel_size, options.stride);
  const Padding& p = options.padding;
  if (p.kind != Padding::Kind::Sizes) s += p.kind == Padding::Kind::Same ? ", padding=same" : ", padding=valid";
  else if (pair(p.sizes) != Dims{0, 0}) s += format(", padding={}", pair(p.sizes));
  if (options.dilation != Dims{1, 1}) s += format(", dilation={}", options.dilation);
  if (options.groups != 1) s += format(", groups={}", options.groups);
  if (!bias.defined()) s += ", bias=False";
  return padding_mode == "zeros" ? s : s + ", padding_mode=" + padding_mode;
}

}  // namespace tapir::inline v0::nn
