#include "../bitwise.h"

#include "../cast.h"
#include "../front.h"

namespace tapir::inline v0 {

static Tensor bits(const char* name, BinaryOp op, const Operand& a, const Operand& b, Tensor* self = nullptr) {
  Pointwise p(name, a, b, self);
  check(!is_floating(p.dtype), "[{}] expected integers or bool, got {}", name, p.dtype);
  check(p.dtype != kBool || op < BinaryOp::ShiftLeft, "[{}] expected integers, got bool", name);
  if (p.cast_back) return copy_(*self, bits(name, op, a, b));
  Tensor y = p.run(op);
  if (self) bump_version(y);
  return noted(name, y);
}

#define TAPIR_BITWISE(name, op)                                                               \
  Tensor name(const Operand& a, const Operand& b) { return bits(#name, BinaryOp::op, a, b); } \
  Tensor& name##_(Tensor& self, const Operand& b) { return bits(#name "_", BinaryOp::op, self, b, &self), self; }
TAPIR_BITWISE(bitwise_and, BitwiseAnd)
TAPIR_BITWISE(bitwise_or, BitwiseOr)
TAPIR_BITWISE(bitwise_xor, BitwiseXor)
TAPIR_BITWISE(bitwise_left_shift, ShiftLeft)
TAPIR_BITWISE(bitwise_right_shift, ShiftRight)
#undef TAPIR_BITWISE

static Tensor inverted(const char* name, const Tensor& x, Tensor* self = nullptr) {
  check_defined(name, "x", x);
  check(!is_floating(x.dtype()), "[{}] expected integers or bool, got {}", name, x);
  if (self) check_inplace(name, x, false), bump_version(x);
  return noted(name, run_unary(x, {UnaryOp::BitwiseNot}, self));
}
Tensor bitwise_not(const Tensor& x) { return inverted("bitwise_not", x); }
Tensor& bitwise_not_(Tensor& self) { return inverted("bitwise_not_", self, &self), self; }

}  // namespace tapir::inline v0
