#include "compare.h"

#include "cast.h"
#include "front.h"
#include "reduce.h"

namespace tapir::inline v0 {

/// Numbers do not take part in promotion among integers: is this one beyond what the tensor's dtype holds?
static bool beyond(const Operand& number, const Operand& x) {
  if (number.is_tensor() || !number.scalar().is_int() || !x.is_tensor()) return false;
  const DType t = x.tensor().dtype();
  if (!is_integral(t) || t == kInt64) return false;
  const int64_t v = number.scalar().to_int(), half = int64_t(1) << (size_of(t) * 8 - 1);
  return t == kUInt8 ? v < 0 || v > 255 : v < -half || v >= half;
}

static Tensor compared(const char* name, BinaryOp op, const Operand& a, const Operand& b) {
  if (beyond(b, a)) return compared(name, op, to(a.tensor(), kInt64), b);
  if (beyond(a, b)) return compared(name, op, a, to(b.tensor(), kInt64));
  return Pointwise(name, a, b).run(op, 1, kBool);
}

static Tensor& written(const char* name, Tensor& self, const Tensor& result) {
  check(result.shape() == self.shape(), "[{}] output with shape {} doesn't match the broadcast shape {}", name,
        self.shape(), result.shape());
  return copy_(self, result);
}

#define TAPIR_COMPARISON(name, op)                                                                \
  Tensor name(const Operand& a, const Operand& b) { return compared(#name, BinaryOp::op, a, b); } \
  Tensor& name##_(Tensor& self, const Operand& b) {                                               \
    return written(#name "_", self, compared(#name "_", BinaryOp::op, self, b));                  \
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
  check(a.dtype() == b.dtype(), "[isclose] expected tensors of one dtype, got {} and {}", a, b);
  check(o.rtol >= 0 && o.atol >= 0, "[isclose] expected rtol and atol that are not negative, got {} and {}", o.rtol,
        o.atol);
  return Pointwise("isclose", a, b).run({BinaryOp::IsClose, o.rtol, o.atol, o.equal_nan}, kBool);
}
bool allclose(const Tensor& a, const Tensor& b, const IsCloseOptions& o, SourceLocation where) {
  return all(isclose(a, b, o)).item<bool>(where);
}
bool equal(const Tensor& a, const Tensor& b, SourceLocation where) {
  common_device("equal", {&a, &b});
  return a.shape() == b.shape() && all(eq(a, b)).item<bool>(where);
}

Tensor logical_not(const Tensor& x) { return run_unary(x, {UnaryOp::LogicalNot}); }
Tensor& logical_not_(Tensor& self) { return written("logical_not_", self, logical_not(self)); }

}  // namespace tapir::inline v0
