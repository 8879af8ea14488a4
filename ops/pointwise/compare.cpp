#include "../compare.h"

#include "../cast.h"
#include "../front.h"
#include "../reduce.h"

namespace tapir::inline v0 {

static Tensor& written(const char* name, Tensor& self, const Tensor& result) {
  check(result.shape() == self.shape(), "[{}] output with shape {} doesn't match the broadcast shape {}", name,
        self.shape(), result.shape());
  check_inplace(name, self, wants_grad({self}));
  return copy_(self, result);
}

#define TAPIR_COMPARISON(name, op)                                                              \
  Tensor name(const Operand& a, const Operand& b) {                                             \
    return noted(#name, Pointwise(#name, a, b).run(BinaryOp::op, 1, kBool));                    \
  }                                                                                             \
  Tensor& name##_(Tensor& self, const Operand& b) {                                             \
    return written(#name "_", self, Pointwise(#name "_", self, b).run(BinaryOp::op, 1, kBool)); \
  }

TAPIR_COMPARISON(eq, Eq)
TAPIR_COMPARISON(ne, Ne)
TAPIR_COMPARISON(lt, Lt)
TAPIR_COMPARISON(le, Le)
TAPIR_COMPARISON(gt, Gt)
TAPIR_COMPARISON(ge, Ge)
TAPIR_COMPARISON(logical_and, LogicalAnd)
TAPIR_COMPARISON(logical_or, LogicalOr)
TAPIR_COMPARISON(logical_xor, LogicalXor)
#undef TAPIR_COMPARISON

Tensor isclose(const Tensor& a, const Tensor& b, const IsCloseOptions& o) {
  check_defined("isclose", "a", a, "b", b);
  check(a.dtype() == b.dtype(), "[isclose] expected tensors of one dtype, got {} and {}", a, b);
  check(o.rtol >= 0 && o.atol >= 0, "[isclose] expected rtol and atol that are not negative, got {} and {}", o.rtol,
        o.atol);
  return noted("isclose", Pointwise("isclose", a, b).run({BinaryOp::IsClose, o.rtol, o.atol, o.equal_nan}, kBool));
}
bool allclose(const Tensor& a, const Tensor& b, const IsCloseOptions& o, SourceLocation where) {
  return all(isclose(a, b, o)).item<bool>(where);
}
bool equal(const Tensor& a, const Tensor& b, SourceLocation where) {
  common_device("equal", {&a, &b});
  return a.shape() == b.shape() && all(eq(a, b)).item<bool>(where);
}

Tensor logical_not(const Tensor& x) {
  check_defined("logical_not", "x", x);
  return noted("logical_not", run_unary(x, {UnaryOp::LogicalNot}));
}
Tensor& logical_not_(Tensor& self) { return written("logical_not_", self, logical_not(self)); }

}  // namespace tapir::inline v0
