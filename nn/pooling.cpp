#include "pooling.h"

namespace tapir::inline v0::nn {

/// PyTorch prints one number where one was given.
static std::string number(const Dims& d) { return d.size() == 1 ? std::to_string(d[0]) : d.str(); }
static const Dims& stride_of(const Dims& stride, const Dims& kernel) { return stride.empty() ? kernel : stride; }

std::string MaxPool2d::extra_repr() {
  return format("kernel_size={}, stride={}, padding={}, dilation={}, ceil_mode={}", number(kernel_size),
                number(stride_of(options.stride, kernel_size)), number(options.padding), number(options.dilation),
                options.ceil_mode ? "True" : "False");
}
std::string AvgPool2d::extra_repr() {
  return format("kernel_size={}, stride={}, padding={}", number(kernel_size),
                number(stride_of(options.stride, kernel_size)), number(options.padding));
}
std::string AdaptiveAvgPool2d::extra_repr() { return "output_size=" + number(output_size); }

}  // namespace tapir::inline v0::nn
