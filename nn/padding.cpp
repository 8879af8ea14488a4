#include "padding.h"

#include "../ops/pad.h"

namespace tapir::inline v0::nn {

PadBase::PadBase(const char* name, int64_t spatial, const Dims& sizes, const char* mode, double value)
    : padding(sizes.size() == 1 ? Dims::filled(2 * spatial, sizes[0]) : sizes), mode(mode), value(value) {
  check(padding.size() == 2 * spatial, "[{}] expected a padding of one or {} numbers, got {}", name, 2 * spatial,
        sizes);
}
Tensor PadBase::forward(const Tensor& x) {
  tapir::PadOptions o{.mode = mode};
  if (value != 0) o.value = value;
  return pad(x, padding.vec(), o);
}
std::string PadBase::extra_repr() { return padding.str(); }

TAPIR_DEFINE_FIELDS(PadBase, ZeroPad1d, ReflectionPad1d, ReplicationPad1d, CircularPad1d, ConstantPad1d, ZeroPad2d,
                    ReflectionPad2d, ReplicationPad2d, CircularPad2d, ConstantPad2d, ZeroPad3d, ReflectionPad3d,
                    ReplicationPad3d, CircularPad3d, ConstantPad3d)

}  // namespace tapir::inline v0::nn
