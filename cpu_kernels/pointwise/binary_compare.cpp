#include "../../core/dispatch.h"
#include "elementwise.h"

namespace tapir::inline v0::cpu {

Choice binary_compare(BinaryOp op, DType type) {
  return for_compute("binary", type, [&]<class T>() { return choose<T, Family::Compare>(op); });
}
Choice binary_bitwise(BinaryOp op, DType type) {
  if (is_floating(type)) return {};
  return for_integers("binary", type, [&]<class T>() {
    if constexpr (std::same_as<T, bool>) return choose<T, Family::Bitwise>(op);
    else return choose<T, Family::Bitwise, Family::Shift>(op);
  });
}

}  // namespace tapir::inline v0::cpu
