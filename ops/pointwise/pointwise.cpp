#include "../pointwise.h"

#include <cmath>

#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../compare.h"
#include "../create.h"
#include "../front.h"
#include "../ternary.h"
#include "../unary.h"

namespace tapir::inline v0 {

// d a^b / da = b a^(b - 1), 0 where b is 0; d a^b / db = a^b ln a, 0 where a is 0 and b is not negative.
static Tensor pow_gradient_base(const Tensor& g, const Tensor& a, const Operand& b) {
  if (!b.is_tensor()) {
    if (b.scalar().to_double() == 0) return zeros_like(g);
    const Scalar less = b.scalar().is_float() ? Scalar(b.scalar().to_double() - 1) : Scalar(b.scalar().to_int() - 1);
    return mul(g, less.to_double() == 1 ? mul(a, b) : mul(pow(a, less), b));
  }
  return mul(g, masked_fill(mul(b, pow(a, sub(b, 1))), eq(b, 0), 0));
}
static Tensor pow_gradient_exponent(const Tensor& g, const Operand& a, const Tensor& b, const Tensor& y) {
  if (a.is_tensor()) return masked_fill(mul(g, mul(y, log(a.tensor()))), logical_and(eq(a, 0), ge(b, 0)), 0);
  const double base = a.scalar().to_double();
  const Tensor product = mul(g, mul(y, std::log(base)));
  return base == 0 ? masked_fill(product, ge(b, 0), 0) : product;
}

static Tensor power(const char* name, const Operand& a, const Operand& b, Tensor* self = nullptr) {
  Pointwise p(name, a, b, self);
  if (p.cast_back) return copy_(*self, pow(a, b));
  check(p.dtype != kBool, "[{}] expected a base or an exponent that is not bool", name);
  const bool number = !b.is_tensor();
  check(!number || is_floating(p.dtype) || b.scalar().to_int() >= 0,
        "[{}] integers to negative integer powers are not allowed, got exponent {}", name, b.scalar());
  check_held(name, b, p.dtype);
  const auto [old_a, old_b] = p.old_values();
  if (self) check_inplace(name, *self, wants_grad({p.a, p.b}));
  Tensor y =
      number ? run_unary(p.a.tensor(), {UnaryOp::PowScalar, b.scalar().to_double()}, self) : p.run(BinaryOp::Pow);
  if (number)
    return record(name, y, {p.a}, save(old_a, old_b), [](const Tensor& g, const Operand& a, const Operand& b) {
      return Grads{pow_gradient_base(g, a.tensor(), b)};
    });
  return record(name, y, {p.a, p.b}, save(old_a, old_b, y),
                [](Needs needs, const Tensor& g, const Operand& a, const Operand& b, const Tensor& y) {
                  return Grads{needs[0] ? pow_gradient_base(g, a.tensor(), b) : Tensor(),
                               needs[1] ? pow_gradient_exponent(g, a, b.tensor(), y) : Tensor()};
                });
}
Tensor pow(const Operand& a, const Operand& b) {
  TAPIR_AUTOCAST(pow, a, b);
  return power("pow", a, b);
}
Tensor& pow_(Tensor& self, const Operand& b) { return power("pow_", self, b, &self), self; }

Tensor extreme(const char* name, BinaryOp op, const Operand& a, const Operand& b, Tensor* self) {
  const auto loses = op == BinaryOp::Maximum ? &lt : &gt;
  const auto share = [loses](const Tensor& g, const Operand& a, const Operand& b) {
    return masked_fill(where(eq(a, b), mul(g, 0.5), g), loses(a, b), 0);
  };
  return binary_by_operands(name, op, a, b, self, Promote::Common,
                            [share](Needs needs, const Tensor& g, const Operand& a, const Operand& b) {
                              return Grads{needs[0] ? share(g, a, b) : Tensor(), needs[1] ? share(g, b, a) : Tensor()};
                            });
}
Tensor maximum(const Operand& a, const Operand& b) { return extreme("maximum", BinaryOp::Maximum, a, b); }
Tensor minimum(const Operand& a, const Operand& b) { return extreme("minimum", BinaryOp::Minimum, a, b); }

static Tensor float_extreme(const char* name, BinaryOp op, const Operand& a, const Operand& b,
                            Tensor (*wins)(const Operand&, const Operand&)) {
  return binary_by_operands(
      name, op, a, b, nullptr, Promote::Common, [wins](const Tensor& g, const Operand& a, const Operand& b) {
        const Tensor first = b.is_tensor() ? logical_or(wins(a, b), isnan(b.tensor()))
                                           : logical_or(wins(a, b), std::isnan(b.scalar().to_double()));
        const Tensor tie = eq(a, b), half = mul(g, 0.5), share = where(tie, half, g);
        const Tensor rest = where(tie, half, 0);
        return Grads{where(first, share, rest), where(first, rest, share)};
      });
}
Tensor fmax(const Operand& a, const Operand& b) { return float_extreme("fmax", BinaryOp::Fmax, a, b, ge); }
Tensor fmin(const Operand& a, const Operand& b) { return float_extreme("fmin", BinaryOp::Fmin, a, b, le); }

// a - b round(a / b): the quotient counts as a constant.
static Tensor modulo(const char* name, BinaryOp op, const char* rounding, const Operand& a, const Operand& b,
                     Tensor* self = nullptr) {
  return binary_by_operands(
      name, op, a, b, self, Promote::Common,
      [rounding](Needs needs, const Tensor& g, const Operand& a, const Operand& b) {
        return Grads{needs[0] ? g : Tensor(), needs[1] ? neg(mul(g, div(a, b, rounding))) : Tensor()};
      });
}
Tensor remainder(const Operand& a, const Operand& b) { return modulo("remainder", BinaryOp::Remainder, "floor", a, b); }
Tensor& remainder_(Tensor& self, const Operand& b) {
  return modulo("remainder_", BinaryOp::Remainder, "floor", self, b, &self), self;
}
Tensor fmod(const Operand& a, const Operand& b) { return modulo("fmod", BinaryOp::Fmod, "trunc", a, b); }
Tensor& fmod_(Tensor& self, const Operand& b) { return modulo("fmod_", BinaryOp::Fmod, "trunc", self, b, &self), self; }

Tensor floor_divide(const Operand& a, const Operand& b) try { return div(a, b, "floor"); } catch (...) {
  fail_as("floor_divide");
}
Tensor& floor_divide_(Tensor& self, const Operand& b) try { return div_(self, b, "floor"); } catch (...) {
  fail_as("floor_divide_");
}

static Tensor sum_of_squares(const Operand& a, const Operand& b) {
  const auto squared = [](const Operand& x) { return x.scalar().to_double() * x.scalar().to_double(); };
  if (!a.is_tensor()) return add(square(b.tensor()), squared(a));
  return b.is_tensor() ? add(square(a.tensor()), square(b.tensor())) : add(square(a.tensor()), squared(b));
}
/// A float operand is saved, and squared, in the dtype that it came in, as PyTorch does.
static const Operand& as_given(const Operand& x, const Operand& cast) {
  return x.is_tensor() && is_floating(x.tensor().dtype()) ? x : cast;
}
static Tensor angle(const char* name, const Operand& a, const Operand& b, Tensor* self = nullptr) {
  Pointwise p(name, a, b, self, Promote::Float);
  if (p.cast_back) return copy_(*self, atan2(p.a, p.b));  // not a: it would be saved, and is written
  const auto [old_a, old_b] = p.old_values();
  Tensor y = p.run(BinaryOp::Atan2);
  return record(name, y, {p.a, p.b}, save(self ? old_a : as_given(a, p.a), self ? old_b : as_given(b, p.b)),
                [](Needs needs, const Tensor& g, const Operand& a, const Operand& b) {
                  const Tensor squares = sum_of_squares(a, b);  // 0 at the origin, where the gradient counts as 0
                  const Tensor part = div(g, masked_fill(squares, eq(squares, 0), 1));
                  return Grads{needs[0] ? mul(part, b) : Tensor(), needs[1] ? neg(mul(part, a)) : Tensor()};
                });
}
Tensor atan2(const Operand& a, const Operand& b) {
  TAPIR_AUTOCAST(atan2, a, b);
  return angle("atan2", a, b);
}
Tensor& atan2_(Tensor& self, const Operand& b) { return angle("atan2_", self, b, &self), self; }

static Tensor hypotenuse(const char* name, const Operand& a, const Operand& b, Tensor* self = nullptr) {
  Pointwise p(name, a, b, self, Promote::Float);
  if (p.cast_back) return copy_(*self, hypot(a, b));
  const auto [old_a, old_b] = p.old_values();
  Tensor y = p.run(BinaryOp::Hypot);
  return record(name, y, {p.a, p.b}, save(old_a, old_b, y),
                [](Needs needs, const Tensor& g, const Operand& a, const Operand& b, const Tensor& y) {
                  return Grads{needs[0] ? mul(g, div(a, y)) : Tensor(), needs[1] ? mul(g, div(b, y)) : Tensor()};
                });
}
Tensor hypot(const Operand& a, const Operand& b) { return hypotenuse("hypot", a, b); }
Tensor& hypot_(Tensor& self, const Operand& b) { return hypotenuse("hypot_", self, b, &self), self; }

static Tensor with_sign(const char* name, const Tensor& a, const Operand& b, Tensor* self = nullptr) {
  return binary_by_operands(name, BinaryOp::Copysign, a, b, self, Promote::Float,
                            [](Needs needs, const Tensor& g, const Operand& a, const Operand& b) {
                              const auto turned = [&] {
                                const Tensor negative = signbit(a.tensor());
                                const Tensor turns = b.is_tensor() ? ne(negative, signbit(b.tensor()))
                                                                   : ne(negative, std::signbit(b.scalar().to_double()));
                                return masked_fill(where(turns, neg(g), g), eq(a, 0), 0);
                              };
                              return Grads{needs[0] ? turned() : Tensor(), needs[1] ? zeros_like(g) : Tensor()};
                            });
}
Tensor copysign(const Tensor& a, const Operand& b) { return with_sign("copysign", a, b); }
Tensor& copysign_(Tensor& self, const Operand& b) { return with_sign("copysign_", self, b, &self), self; }

static Tensor unit_step(const char* name, const Tensor& x, const Tensor& values, Tensor* self = nullptr) {
  check_defined(name, "x", x, "values", values);
  check(x.dtype() == values.dtype(), "[{}] expected values of dtype {}, got {}", name, x.dtype(), values.dtype());
  Pointwise p(name, x, values, self);
  const Operand old = p.old_values().first;
  Tensor y = p.run(BinaryOp::Heaviside);
  return record(name, y, {p.a, p.b}, save(old), [](Needs needs, const Tensor& g, const Operand& x) {
    return Grads{needs[0] ? zeros_like(g) : Tensor(), needs[1] ? where(eq(x, 0), g, 0) : Tensor()};
  });
}
Tensor heaviside(const Tensor& x, const Tensor& values) { return unit_step("heaviside", x, values); }
Tensor& heaviside_(Tensor& self, const Tensor& values) { return unit_step("heaviside_", self, values, &self), self; }

Tensor float_power(const Operand& a, const Operand& b) try {
  check_defined("float_power", "a", a, "b", b);
  const auto wide = [](const Operand& x) { return x.is_tensor() ? to(x.tensor(), kFloat64) : Tensor(); };
  const Tensor base = wide(a), exponent = wide(b);
  return pow(base.defined() ? Operand(base) : Operand(a.scalar().to_double()),
             exponent.defined() ? Operand(exponent) : Operand(b.scalar().to_double()));
} catch (...) {
  fail_as("float_power");
}
Tensor& float_power_(Tensor& self, const Operand& b) {
  check_defined("float_power_", "self", self, "b", b);
  check(self.dtype() == kFloat64, "[float_power_] expected a tensor of dtype float64, which the result has, got {}",
        self);
  return pow_(self, b);
}

}  // namespace tapir::inline v0
