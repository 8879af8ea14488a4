#include "../arithmetic.h"

#include "../cast.h"
#include "../create.h"
#include "../front.h"

namespace tapir::inline v0 {

static bool is_bool(const Operand& x) { return x.is_tensor() ? x.tensor().dtype() == kBool : x.scalar().is_bool(); }

static Tensor add_sub(const char* name, bool plus, const Operand& a, const Operand& b, Scalar alpha,
                      Tensor* self = nullptr) {
  Pointwise p(name, a, b, self);
  check_factor(name, "alpha", alpha, p.dtype);
  if (p.cast_back) return copy_(*self, add_sub(name, plus, a, b, alpha));
  Tensor y = p.run(plus ? BinaryOp::Add : BinaryOp::Sub, alpha);
  const Scalar factor = plus ? alpha : alpha.is_float() ? Scalar(-alpha.to_double()) : Scalar(-alpha.to_int());
  return record(name, y, {p.a, p.b}, [factor](Needs needs, const Tensor& g) {
    return Grads{needs[0] ? g : Tensor(), !needs[1] ? Tensor() : factor.to_double() == 1 ? g : mul(g, factor)};
  });
}
Tensor add(const Operand& a, const Operand& b, Scalar alpha) { return add_sub("add", true, a, b, alpha); }
Tensor& add_(Tensor& self, const Operand& b, Scalar alpha) {
  return add_sub("add_", true, self, b, alpha, &self), self;
}

static void check_not_bool(const char* name, const Operand& a, const Operand& b) {
  check_defined(name, "a", a, "b", b);
  check(!(is_bool(a) && is_bool(b)),
        "[{}] subtraction, the `-` operator, with two bool tensors is not supported; use logical_xor", name);
}
Tensor sub(const Operand& a, const Operand& b, Scalar alpha) {
  return check_not_bool("sub", a, b), add_sub("sub", false, a, b, alpha);
}
Tensor& sub_(Tensor& self, const Operand& b, Scalar alpha) {
  check_defined("sub_", "self", self, "b", b);
  check_not_bool("sub_", self, b);
  return add_sub("sub_", false, self, b, alpha, &self), self;
}

static Tensor multiply(const char* name, const Operand& a, const Operand& b, Tensor* self = nullptr) {
  Pointwise p(name, a, b, self);
  if (p.cast_back) return copy_(*self, mul(a, b));
  const auto [old_a, old_b] = p.old_values(true);
  Tensor y = p.run(BinaryOp::Mul);
  return record(name, y, {p.a, p.b}, save(needed_by(1, old_a), needed_by(0, old_b)),
                [](Needs needs, const Tensor& g, const Operand& a, const Operand& b) {
                  return Grads{needs[0] ? mul(g, b) : Tensor(), needs[1] ? mul(g, a) : Tensor()};
                });
}
Tensor mul(const Operand& a, const Operand& b) { return multiply("mul", a, b); }
Tensor& mul_(Tensor& self, const Operand& b) { return multiply("mul_", self, b, &self), self; }

static Tensor divide(const char* name, const Operand& a, const Operand& b, std::string_view rounding,
                     Tensor* self = nullptr) {
  check(rounding.empty() || rounding == "trunc" || rounding == "floor",
        "[{}] expected rounding_mode to be one of \"\", \"trunc\" or \"floor\", got \"{}\"", name, rounding);
  Pointwise p(name, a, b, self, rounding.empty() ? Promote::Float : Promote::Common);
  if (p.cast_back) return copy_(*self, div(a, b, rounding));
  if (!rounding.empty()) {  // piecewise constant
    Tensor y = p.run(rounding == "trunc" ? BinaryOp::TruncDiv : BinaryOp::FloorDiv);
    return record(name, y, {p.a, p.b}, [](const Tensor& g) { return Grads{zeros_like(g), zeros_like(g)}; });
  }
  const auto [old_a, old_b] = p.old_values(true);
  Tensor y = p.run(BinaryOp::Div);
  return record(name, y, {p.a, p.b}, save(needed_by(1, old_a), old_b),
                [](Needs needs, const Tensor& g, const Operand& a, const Operand& b) {
                  const Tensor ga = div(g, b);
                  return Grads{needs[0] ? ga : Tensor(), needs[1] ? neg(mul(ga, div(a, b))) : Tensor()};
                });
}
Tensor div(const Operand& a, const Operand& b, std::string_view rounding) { return divide("div", a, b, rounding); }
Tensor& div_(Tensor& self, const Operand& b, std::string_view rounding) {
  return divide("div_", self, b, rounding, &self), self;
}

static Tensor negate(const char* name, const Tensor& x, Tensor* self = nullptr) {
  check_defined(name, "x", x);
  check(x.dtype() != kBool, "[{}] negation, the `-` operator, on a bool tensor is not supported; use logical_not",
        name);
  if (self) check_inplace(name, x, wants_grad({x}));
  return record(name, run_unary(x, {UnaryOp::Neg}, self), {x}, [](const Tensor& g) { return Grads{neg(g)}; });
}
Tensor neg(const Tensor& x) { return negate("neg", x); }
Tensor& neg_(Tensor& self) { return negate("neg_", self, &self), self; }

}  // namespace tapir::inline v0
