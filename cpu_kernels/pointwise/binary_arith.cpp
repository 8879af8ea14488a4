#include "../../core/dispatch.h"
#include "elementwise.h"

namespace tapir::inline v0::cpu {

Choice binary_arithmetic(BinaryOp op, DType type) {
  return for_compute("binary", type, [&]<class T>() {
    if constexpr (std::floating_point<T>) return choose<T, Family::All, Family::Floats>(op);
    else return choose<T, Family::All>(op);
  });
}

}  // namespace tapir::inline v0::cpu
