#include "unary.h"

#include <numbers>

#include "arithmetic.h"
#include "create.h"
#include "unary_front.h"

namespace tapir::inline v0 {

static constexpr double kLn2 = std::numbers::ln2, kLn10 = std::numbers::ln10,
                        kTwoBySqrtPi = 2 * std::numbers::inv_sqrtpi;

// A line gives name, kernel, operand (float: integers become float32; number: they stay), what the gradient is a
// function of, and it.
#define TAPIR_UNARY(name, op, operand, saved, gradient)                                                             \
  static Tensor name(const char* label, const Tensor& x, Tensor* self) {                                            \
    return unary_by_##saved(label, {UnaryOp::op}, operand##_operand(label, x, self), self,                          \
                            [](const Tensor& g, [[maybe_unused]] const Tensor& saved) { return Grads{gradient}; }); \
  }                                                                                                                 \
  Tensor name(const Tensor& x) { return name(#name, x, nullptr); }                                                  \
  Tensor& name##_(Tensor& self) { return name(#name "_", self, &self), self; }

TAPIR_UNARY(abs, Abs, number, x, mul(g, sign(x)))
TAPIR_UNARY(exp, Exp, float, y, mul(g, y))
TAPIR_UNARY(expm1, Expm1, float, y, mul(g, add(y, 1)))
TAPIR_UNARY(log, Log, float, x, div(g, x))
TAPIR_UNARY(log1p, Log1p, float, x, div(g, add(x, 1)))
TAPIR_UNARY(log2, Log2, float, x, div(g, mul(x, kLn2)))
TAPIR_UNARY(log10, Log10, float, x, div(g, mul(x, kLn10)))
TAPIR_UNARY(sqrt, Sqrt, float, y, div(g, mul(y, 2)))
TAPIR_UNARY(rsqrt, Rsqrt, float, y, mul(mul(g, -0.5), mul(y, square(y))))
TAPIR_UNARY(reciprocal, Reciprocal, float, y, neg(mul(g, square(y))))
TAPIR_UNARY(sin, Sin, float, x, mul(g, cos(x)))
TAPIR_UNARY(cos, Cos, float, x, neg(mul(g, sin(x))))
TAPIR_UNARY(tan, Tan, float, y, mul(g, add(square(y), 1)))
TAPIR_UNARY(asin, Asin, float, x, mul(g, rsqrt(sub(1, square(x)))))
TAPIR_UNARY(acos, Acos, float, x, neg(mul(g, rsqrt(sub(1, square(x))))))
TAPIR_UNARY(atan, Atan, float, x, div(g, add(square(x), 1)))
TAPIR_UNARY(sinh, Sinh, float, x, mul(g, cosh(x)))
TAPIR_UNARY(cosh, Cosh, float, x, mul(g, sinh(x)))
TAPIR_UNARY(erf, Erf, float, x, mul(g, mul(exp(neg(square(x))), kTwoBySqrtPi)))
#undef TAPIR_UNARY

/// Constant in pieces: nothing is saved, so that y may be written later.
static Tensor step(const char* name, UnaryOp op, const Tensor& x, Tensor* self) {
  const Tensor from = number_operand(name, x, self);
  return record(name, run_unary(from, {op}, self), {from}, [](const Tensor& g) { return Grads{zeros_like(g)}; });
}
Tensor floor(const Tensor& x) { return step("floor", UnaryOp::Floor, x, nullptr); }
Tensor& floor_(Tensor& self) { return step("floor_", UnaryOp::Floor, self, &self), self; }
Tensor ceil(const Tensor& x) { return step("ceil", UnaryOp::Ceil, x, nullptr); }
Tensor& ceil_(Tensor& self) { return step("ceil_", UnaryOp::Ceil, self, &self), self; }
Tensor round(const Tensor& x) { return step("round", UnaryOp::Round, x, nullptr); }
Tensor& round_(Tensor& self) { return step("round_", UnaryOp::Round, self, &self), self; }
Tensor trunc(const Tensor& x) { return step("trunc", UnaryOp::Trunc, x, nullptr); }
Tensor& trunc_(Tensor& self) { return step("trunc_", UnaryOp::Trunc, self, &self), self; }

// bool has a sign, itself; its square is an integer.
static Tensor sign(const char* name, const Tensor& x, Tensor* self) {
  if (x.dtype() == kBool) {
    if (self) check_inplace(name, x, false);
    return self ? x : clone(x);
  }
  return step(name, UnaryOp::Sign, x, self);
}
Tensor sign(const Tensor& x) { return sign("sign", x, nullptr); }
Tensor& sign_(Tensor& self) { return sign("sign_", self, &self), self; }

static Tensor square(const char* name, const Tensor& x, Tensor* self) {
  const Tensor from = number_operand(name, x.dtype() == kBool && !self ? to(x, kInt64) : x, self);
  return unary_by_x(name, {UnaryOp::Square}, from, self,
                    [](const Tensor& g, const Tensor& x) { return Grads{mul(g, mul(x, 2))}; });
}
Tensor square(const Tensor& x) { return square("square", x, nullptr); }
Tensor& square_(Tensor& self) { return square("square_", self, &self), self; }

Tensor isnan(const Tensor& x) { return run_unary(x, {UnaryOp::IsNan}); }
Tensor isinf(const Tensor& x) { return run_unary(x, {UnaryOp::IsInf}); }
Tensor isfinite(const Tensor& x) { return run_unary(x, {UnaryOp::IsFinite}); }

}  // namespace tapir::inline v0
