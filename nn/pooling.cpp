#include "pooling.h"

namespace tapir::inline v0::nn {

using detail::float_text, detail::dims_text;
static const Dims& stride_of(const Dims& stride, const Dims& kernel) { return stride.empty() ? kernel : stride; }
/// One number becomes a tuple.
static Dims tuple_of(const Dims& d, int64_t n) { return d.size() == 1 ? Dims::filled(n, d[0]) : d; }

std::string MaxPoolBase::extra_repr() {
  return tapir::format("kernel_size={}, stride={}, padding={}, dilation={}, ceil_mode={}", dims_text(kernel_size),
                       dims_text(stride_of(options.stride, kernel_size)), dims_text(options.padding),
                       dims_text(options.dilation), detail::bool_text(options.ceil_mode));
}
std::string AvgPoolBase::extra_repr() {
  const bool tuples = dynamic_cast<AvgPool1d*>(this) != nullptr;  // PyTorch's AvgPool1d keeps "(2,)"
  const auto text = [&](const Dims& d) { return tuples ? d.str() : dims_text(d); };
  return tapir::format("kernel_size={}, stride={}, padding={}", text(kernel_size),
                       text(stride_of(options.stride, kernel_size)), text(options.padding));
}
std::string AdaptivePoolBase::extra_repr() {
  std::string s = "output_size=" + dims_text(output_size);
  for (size_t i = 0; (i = s.find("-1", i)) != s.npos;) s.replace(i, 2, "None");
  return s;
}
std::string LPPoolBase::extra_repr() {
  return tapir::format("norm_type={}, kernel_size={}, stride={}, ceil_mode={}", float_text(norm_type),
                       dims_text(kernel_size), options.stride.empty() ? std::string("None") : dims_text(options.stride),
                       detail::bool_text(options.ceil_mode));
}
std::string MaxUnpoolBase::repr_of(int64_t n) const {
  return tapir::format("kernel_size={}, stride={}, padding={}", tuple_of(kernel_size, n), tuple_of(stride, n),
                       tuple_of(padding, n));
}

TAPIR_DEFINE_FIELDS(MaxPoolBase, AvgPoolBase, AdaptivePoolBase, LPPoolBase, MaxUnpoolBase, MaxPool1d, AvgPool1d,
                    AdaptiveAvgPool1d, AdaptiveMaxPool1d, LPPool1d, MaxUnpool1d, MaxPool2d, AvgPool2d,
                    AdaptiveAvgPool2d, AdaptiveMaxPool2d, LPPool2d, MaxUnpool2d, MaxPool3d, AvgPool3d,
                    AdaptiveAvgPool3d, AdaptiveMaxPool3d, LPPool3d, MaxUnpool3d, FractionalMaxPool2d,
                    FractionalMaxPool3d)

}  // namespace tapir::inline v0::nn
