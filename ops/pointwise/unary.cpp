#include "../unary.h"

#include <limits>
#include <numbers>

#include "../arithmetic.h"
#include "../compare.h"
#include "../create.h"
#include "../ternary.h"
#include "unary_front.h"

namespace tapir::inline v0 {

static constexpr double kLn2 = std::numbers::ln2, kLn10 = std::numbers::ln10,
                        kTwoBySqrtPi = 2 * std::numbers::inv_sqrtpi, kDegrees = 180 * std::numbers::inv_pi;

TAPIR_UNARY(abs, Abs, number, x, mul(g, sign(x)))
TAPIR_UNARY(exp, Exp, float, y, mul(g, y))
TAPIR_UNARY(exp2, Exp2, float, y, mul(g, mul(y, kLn2)))
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
TAPIR_UNARY(asinh, Asinh, float, x, mul(g, rsqrt(add(square(x), 1))))
TAPIR_UNARY(acosh, Acosh, float, x, mul(g, mul(rsqrt(sub(abs(x), 1)), rsqrt(add(abs(x), 1)))))
TAPIR_UNARY(atanh, Atanh, float, x, div(g, sub(1, square(x))))
TAPIR_UNARY(erf, Erf, float, x, mul(g, mul(exp(neg(square(x))), kTwoBySqrtPi)))

/// Constant in pieces: nothing is saved, so that y may be written later.
static Tensor step(const char* name, UnaryOp op, const Tensor& x, Tensor* self) {
  const Tensor from = number_operand(name, x, self);
  return record(name, run_unary(from, {op}, self), {from}, [](const Tensor& g) { return Grads{zeros_like(g)}; });
}
Tensor floor(const Tensor& x) { return step("floor", UnaryOp::Floor, x, nullptr); }
Tensor& floor_(Tensor& self) { return step("floor_", UnaryOp::Floor, self, &self), self; }
Tensor ceil(const Tensor& x) { return step("ceil", UnaryOp::Ceil, x, nullptr); }
Tensor& ceil_(Tensor& self) { return step("ceil_", UnaryOp::Ceil, self, &self), self; }
Tensor trunc(const Tensor& x) { return step("trunc", UnaryOp::Trunc, x, nullptr); }
Tensor& trunc_(Tensor& self) { return step("trunc_", UnaryOp::Trunc, self, &self), self; }

static Tensor round(const char* name, const Tensor& x, int64_t decimals, Tensor* self) {
  check_defined(name, "x", x);
  if (decimals == 0) return step(name, UnaryOp::Round, x, self);
  check(is_floating(x.dtype()), "[{}] expected a tensor of floating point dtype for decimals = {}, got {}", name,
        decimals, x);
  if (self) check_inplace(name, x, wants_grad({x}));
  return record(name, run_unary(x, {UnaryOp::RoundTo, double(decimals)}, self), {x},
                [](const Tensor& g) { return Grads{zeros_like(g)}; });
}
Tensor round(const Tensor& x, int64_t decimals) { return round("round", x, decimals, nullptr); }
Tensor& round_(Tensor& self, int64_t decimals) { return round("round_", self, decimals, &self), self; }

static Tensor frac(const char* name, const Tensor& x, Tensor* self) {
  check_defined(name, "x", x);
  check(is_floating(x.dtype()), "[{}] expected a tensor of floating point dtype, got {}", name, x);
  if (self) check_inplace(name, x, wants_grad({x}));
  return record(name, run_unary(x, {UnaryOp::Frac}, self), {x}, [](const Tensor& g) { return Grads{g}; });
}
Tensor frac(const Tensor& x) { return frac("frac", x, nullptr); }
Tensor& frac_(Tensor& self) { return frac("frac_", self, &self), self; }

Tensor positive(const Tensor& x) try {
  check_defined("positive", "x", x);
  check(x.dtype() != kBool, "[positive] the `+` operator on a bool tensor is not supported, got {}", x);
  return x;
} catch (...) {
  fail_as("positive");
}
Tensor deg2rad(const Tensor& x) try { return mul(to(x, float_type(x.dtype())), 1 / kDegrees); } catch (...) {
  fail_as("deg2rad");
}
Tensor& deg2rad_(Tensor& self) try { return mul_(self, 1 / kDegrees); } catch (...) {
  fail_as("deg2rad_");
}
Tensor rad2deg(const Tensor& x) try { return mul(to(x, float_type(x.dtype())), kDegrees); } catch (...) {
  fail_as("rad2deg");
}
Tensor& rad2deg_(Tensor& self) try { return mul_(self, kDegrees); } catch (...) {
  fail_as("rad2deg_");
}

/// The largest finite number.
static double largest(DType t) {
  return t == kFloat64    ? std::numeric_limits<double>::max()
         : t == kFloat32  ? std::numeric_limits<float>::max()
         : t == kBFloat16 ? 0x1.fep127
                          : 65504;
}
static Tensor nan_to_num(const char* name, const Tensor& x, const NanToNumOptions& o, Tensor* self) {
  check_defined(name, "x", x);
  if (self) check_inplace(name, x, wants_grad({x}));
  if (!is_floating(x.dtype())) return self ? x : clone(x);
  const double high = o.posinf.value_or(largest(x.dtype())), low = o.neginf.value_or(-largest(x.dtype()));
  return unary_by_x(name, {UnaryOp::NanToNum, o.nan, high, low}, x, self, [](const Tensor& g, const Tensor& x) {
    return Grads{masked_fill(g, logical_not(isfinite(x)), 0)};
  });
}
Tensor nan_to_num(const Tensor& x, const NanToNumOptions& o) { return nan_to_num("nan_to_num", x, o, nullptr); }
Tensor& nan_to_num_(Tensor& self, const NanToNumOptions& o) { return nan_to_num("nan_to_num_", self, o, &self), self; }

// bool has a sign, itself; its square is an integer.
static Tensor sign(const char* name, const Tensor& x, Tensor* self) {
  check_defined(name, "x", x);
  if (x.dtype() == kBool) {
    if (self) check_inplace(name, x, false);
    return self ? x : clone(x);
  }
  return step(name, UnaryOp::Sign, x, self);
}
Tensor sign(const Tensor& x) { return sign("sign", x, nullptr); }
Tensor& sign_(Tensor& self) { return sign("sign_", self, &self), self; }

static Tensor square(const char* name, const Tensor& x, Tensor* self) {
  check_defined(name, "x", x);
  const Tensor from = number_operand(name, x.dtype() == kBool && !self ? to(x, kInt64) : x, self);
  return unary_by_x(name, {UnaryOp::Square}, from, self,
                    [](const Tensor& g, const Tensor& x) { return Grads{mul(g, mul(x, 2))}; });
}
Tensor square(const Tensor& x) { return square("square", x, nullptr); }
Tensor& square_(Tensor& self) { return square("square_", self, &self), self; }

static Tensor predicate(const char* name, UnaryOp op, const Tensor& x) {
  check_defined(name, "x", x);
  return noted(name, run_unary(x, {op}));
}
Tensor isnan(const Tensor& x) { return predicate("isnan", UnaryOp::IsNan, x); }
Tensor isinf(const Tensor& x) { return predicate("isinf", UnaryOp::IsInf, x); }
Tensor signbit(const Tensor& x) { return predicate("signbit", UnaryOp::SignBit, x); }
Tensor isfinite(const Tensor& x) { return predicate("isfinite", UnaryOp::IsFinite, x); }

}  // namespace tapir::inline v0
