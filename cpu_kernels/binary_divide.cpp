#include "../core/dispatch.h"
#include "elementwise.h"

namespace tapir::inline v0::cpu {

Choice binary_division(BinaryOp op, DType type) {
  return for_compute("binary", type, [&]<class T>() { return choose<T, Family::Division, Family::Power>(op); });
}

}  // namespace tapir::inline v0::cpu
