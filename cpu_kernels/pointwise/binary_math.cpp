#include "../../core/dispatch.h"
#include "elementwise.h"

namespace tapir::inline v0::cpu {

Choice binary_math(BinaryOp op, DType type) {
  if (!is_floating(type)) return {};
  return for_floats("binary", type, [&]<class T>() { return choose<T, Family::Math>(op); });
}

}  // namespace tapir::inline v0::cpu
