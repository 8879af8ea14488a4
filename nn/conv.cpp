#include "conv.h"

#include <cmath>

#include "../core/fail_as.h"
#include "../ops/pad.h"
#include "init.h"

namespace tapir::inline v0::nn {

/// One number for every axis, or one for each.
static Dims spread(const char* name, const char* option, const Dims& d, int64_t spatial, int64_t least) {
  bool fits = d.size() == 1 || d.size() == spatial;
  for (int64_t v : d) fits &= v >= least;
  check(fits, "[{}] expected {} of one or {} numbers of at least {}, got {}", name, option, spatial, least, d);
  return d.size() == spatial ? d : Dims::filled(spatial, d[0]);
}

ConvBase::ConvBase(const char* name, int64_t spatial, int64_t in, int64_t out, const Dims& kernel, const ConvOptions& o,
                   const Dims& more) try
    : in_channels(in), out_channels(out), kernel_size(spread(name, "a kernel_size", kernel, spatial, 1)),
      options{spread(name, "a stride", o.stride, spatial, 1), o.padding,
              spread(name, "a dilation", o.dilation, spatial, 1), o.groups},
      output_padding(more.empty() ? more : spread(name, "an output_padding", more, spatial, 0)),
      padding_mode(o.padding_mode) {
  check(o.groups > 0 && in > 0 && out > 0 && in % o.groups == 0 && out % o.groups == 0,
        "[{}] expected in_channels and out_channels above 0 and divisible by groups, got {}, {} and {}", name, in, out,
        o.groups);
  if (o.padding.kind == Padding::Kind::Sizes)
    options.padding.sizes = spread(name, "a padding", o.padding.sizes, spatial, 0);
  check(o.padding_mode == "zeros" || o.padding_mode == "reflect" || o.padding_mode == "replicate" ||
            o.padding_mode == "circular",
        "[{}] expected padding_mode zeros, reflect, replicate or circular, got {}", name, o.padding_mode);
  const bool transposed = !more.empty();
  Shape shape{transposed ? in : out, (transposed ? out : in) / o.groups};
  for (int64_t k : kernel_size) shape.push_back(k);
  weight = Parameter(empty(shape));
  const double bound = 1 / std::sqrt(double(weight.numel() / shape[0]));
  init::uniform_(weight, -bound, bound);
  if (!o.bias) return;
  bias = Parameter(empty(out));
  init::uniform_(bias, -bound, bound);
} catch (...) {
  fail_as(name);
}

Tensor ConvBase::convolve(decltype(conv2d)* op, const Tensor& x) {
  if (padding_mode == "zeros") return op(x, weight, bias, options);
  std::vector<int64_t> around;  // the last axis first: left, right, top, bottom
  for (int64_t d = kernel_size.size(); d-- > 0;) {
    const int64_t total = options.padding.kind == Padding::Kind::Same ? options.dilation[d] * (kernel_size[d] - 1) : 0;
    const bool given = options.padding.kind == Padding::Kind::Sizes;
    around.push_back(given ? options.padding.sizes[d] : total / 2);
    around.push_back(given ? options.padding.sizes[d] : total - total / 2);
  }
  tapir::ConvOptions unpadded = options;
  unpadded.padding = 0;
  return op(pad(x, around, {.mode = padding_mode}), weight, bias, unpadded);
}

Tensor ConvBase::convolve_transposed(const char* name, decltype(conv_transpose2d)* op, const Tensor& x,
                                     const Dims& size) {
  const int64_t spatial = kernel_size.size();
  Dims more = output_padding;
  if (!size.empty()) {
    check(x.dim() > spatial, "[{}] expected an input with channels and {} spatial dimensions, got {}", name, spatial,
          x);
    check(size.size() == spatial || size.size() == x.dim(), "[{}] expected an output_size of {} or {} numbers, got {}",
          name, spatial, x.dim(), size);
    for (int64_t d = 0; d < spatial; ++d) {
      const int64_t n = x.shape()[x.dim() - spatial + d], s = options.stride[d];
      const int64_t least = (n - 1) * s - 2 * options.padding.sizes[d] + options.dilation[d] * (kernel_size[d] - 1) + 1;
      more[d] = size[size.size() - spatial + d] - least;
      check(more[d] >= 0 && more[d] < s,
            "[{}] requested an output size of {}, but valid sizes range from {} to {} (axis {})", name, size, least,
            least + s - 1, d);
    }
  }
  return op(x, weight, bias, {options.stride, options.padding.sizes, more, options.groups, options.dilation});
}

std::string ConvBase::extra_repr() {
  const int64_t n = kernel_size.size();
  std::string s =
      tapir::format("{}, {}, kernel_size={}, stride={}", in_channels, out_channels, kernel_size, options.stride);
  const Padding& p = options.padding;
  if (p.kind != Padding::Kind::Sizes) s += p.kind == Padding::Kind::Same ? ", padding=same" : ", padding=valid";
  else if (p.sizes != Dims::filled(n, 0)) s += tapir::format(", padding={}", p.sizes);
  if (options.dilation != Dims::filled(n, 1)) s += tapir::format(", dilation={}", options.dilation);
  if (!output_padding.empty() && output_padding != Dims::filled(n, 0))
    s += tapir::format(", output_padding={}", output_padding);
  if (options.groups != 1) s += tapir::format(", groups={}", options.groups);
  if (!bias.defined()) s += ", bias=False";
  return padding_mode == "zeros" ? s : s + ", padding_mode=" + padding_mode;
}

TAPIR_DEFINE_FIELDS(ConvBase, Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)

}  // namespace tapir::inline v0::nn
