#include "../../core/dispatch.h"
#include "elementwise.h"

namespace tapir::inline v0::cpu {

Choice unary_activation(UnaryOp op, DType type) {
  if (!is_floating(type)) return {};
  return for_floats("unary", type, [&]<class T>() { return choose<T, Family::Activation>(op); });
}

}  // namespace tapir::inline v0::cpu
