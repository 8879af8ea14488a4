#include "../ternary.h"

#include <array>
#include <cmath>
#include <limits>

#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../compare.h"
#include "../create.h"
#include "../front.h"
#include "unary_front.h"

namespace tapir::inline v0 {

namespace {

/// Three operands of a pointwise kernel, broadcast and cast to `dtype`; a mask as the first one stays. In place `self`
/// is one of them.
class Three {
 public:
  Three(const char* op, DType dtype, const Operand& a, const Operand& b, const Operand& c, const Tensor* self,
        bool masked = false)
      : dtype(dtype), shape(broadcast_shapes(op, broadcast_shapes(op, shape_of(a), shape_of(b)), shape_of(c))),
        device(common_device(op, {&a.tensor_or_undefined(), &b.tensor_or_undefined(), &c.tensor_or_undefined()})),
        a(masked ? a : cast(op, a, held_[0])), b(cast(op, b, held_[1])), c(cast(op, c, held_[2])), op_(op),
        self_(self) {
    if (!self) return;
    check(shape == self->shape(), "[{}] output with shape {} doesn't match the broadcast shape {}", op, self->shape(),
          shape);
    check_can_cast(op, dtype, self->dtype());
    cast_back = dtype != self->dtype();
    if (cast_back) check_inplace(op, *self, wants_grad({this->a, this->b, this->c}));
  }
  Tensor run(TernaryOp op, Scalar alpha = 1) const {
    Tensor y, apart[3];
    if (self_) check_inplace(op_, *self_, wants_grad({a, b, c})), y = *self_;
    else
      y = empty_pointwise(shape, dtype, device,
                          {&a.tensor_or_undefined(), &b.tensor_or_undefined(), &c.tensor_or_undefined()});
    backend(device).ternary(context(device), {y, view(a, apart[0]), view(b, apart[1]), view(c, apart[2]), {op, alpha}});
    return y;
  }
  /// As Pointwise::old_values(). saved: the closure needs a.
  std::array<Operand, 3> old_values(bool saved = true) {
    if (!self_ || !wants_grad({a, b, c})) return {a, b, c};
    return {saved ? old_value(*self_, a, old_[0]) : a, old_value(*self_, b, old_[1]), old_value(*self_, c, old_[2])};
  }

  DType dtype;
  Shape shape;
  Device device;
  bool cast_back = false;

 private:
  static Shape shape_of(const Operand& x) { return x.is_tensor() ? x.tensor().shape() : Shape(); }
  Operand cast(const char* op, const Operand& x, Tensor& held) const {
    check_held(op, x, dtype);
    if (!x.is_tensor() || x.tensor().dtype() == dtype) return x;
    return held = to(x.tensor(), dtype);
  }
  entry::In view(const Operand& x, Tensor& apart) const {
    if (!self_ || !x.is_tensor()) return view_as(x, shape, dtype);
    return view_as(apart = apart_from(*self_, x.tensor(), true), shape, dtype);
  }
  Tensor held_[3], old_[3];

 public:
  Operand a, b, c;

 private:
  const char* op_;
  const Tensor* self_;
};

void check_mask(const char* op, const Tensor& mask) {
  check(mask.dtype() == kBool, "[{}] expected a mask of dtype bool, got {}", op, mask);
}

}  // namespace

Tensor where(const Tensor& given, const Operand& x, const Operand& y) {
  check_defined("where", "given", given, "x", x, "y", y);
  const Tensor condition = given.defined() && given.dtype() == kUInt8 ? to(given, kBool) : given;
  check_mask("where", condition);
  Three p("where", result_type({&x, &y}), condition, x, y, nullptr, true);
  return record(
      "where", p.run(TernaryOp::Where), {p.b, p.c}, save(condition),
      [](Needs needs, const Tensor& g, const Tensor& condition) {
        return Grads{needs[0] ? where(condition, g, 0) : Tensor(), needs[1] ? where(condition, 0, g) : Tensor()};
      });
}

static Tensor fill_masked(const char* name, const Tensor& x, const Tensor& mask, const Operand& value,
                          Tensor* self = nullptr) {
  check_defined(name, "x", x, "mask", mask, "value", value);
  check_mask(name, mask);
  check(!value.is_tensor() || value.tensor().dim() == 0, "[{}] expected a number or a 0-dim tensor as value, got {}",
        name, value.tensor_or_undefined());
  if (!value.is_tensor()) check_fits(name, value.scalar(), x.dtype());
  Three p(name, x.dtype(), mask, value, x, self, true);
  return record(name, p.run(TernaryOp::Where), {p.c, p.b}, save(mask),
                [](Needs needs, const Tensor& g, const Tensor& mask) {
                  return Grads{needs[0] ? masked_fill(g, mask, 0) : Tensor(), needs[1] ? where(mask, g, 0) : Tensor()};
                });
}
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Operand& value) {
  return fill_masked("masked_fill", x, mask, value);
}
Tensor& masked_fill_(Tensor& self, const Tensor& mask, const Operand& value) {
  return fill_masked("masked_fill_", self, mask, value, &self), self;
}

// Clamping by numbers.

static DType clamp_type(const char* name, const Tensor& x, const Operand& min, const Operand& max, const Tensor* self) {
  const Operand operand(x);
  const DType dtype = result_type({&operand, &min, &max});
  check(dtype != kBool, "[{}] expected a tensor of numbers, got {}", name, x);
  if (self) check_can_cast(name, dtype, self->dtype());
  check_limits(name, min, max, dtype);
  return dtype;
}
/// Numbers that the one-operand kernel, whose bounds are doubles, would not see as they are.
static bool needs_exact(const std::optional<Scalar>& bound) {
  return bound && (bound->is_int() ? std::abs(bound->to_double()) >= 0x1p53 : std::isnan(bound->to_double()));
}

static Tensor clamp_numbers(const char* name, const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max,
                            Tensor* self = nullptr) {
  check_defined(name, "x", x);
  check(min || max, "[{}] at least one of min or max must be given, got none", name);
  const Tensor none;
  const DType dtype =
      clamp_type(name, x, min ? Operand(*min) : Operand(none), max ? Operand(*max) : Operand(none), self);
  if (self && dtype != x.dtype()) return copy_(*self, clamp(x, min, max));
  constexpr double inf = std::numeric_limits<double>::infinity();
  const double low = min ? min->to_double() : -inf, high = max ? max->to_double() : inf;
  const Tensor from = to(x, dtype), old = self && wants_grad({x}) ? clone(x) : Tensor();
  if (self) check_inplace(name, x, wants_grad({x}));
  Tensor y;
  if ((is_floating(dtype) || dtype == kInt64) && (needs_exact(min) || needs_exact(max))) {
    constexpr int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
    const bool real = is_floating(dtype);
    y = Three(name, dtype, from, min.value_or(real ? Scalar(-inf) : Scalar(least)),
              max.value_or(real ? Scalar(inf) : Scalar(most)), self)
            .run(TernaryOp::Clamp);
  } else y = run_unary(from, {UnaryOp::Clamp, low, high}, self);
  return record(name, y, {from}, save(old.defined() ? old : from), [low, high](const Tensor& g, const Tensor& x) {
    return Grads{fused_gradient("clamp_grad", {BinaryOp::ClampGrad, low, high}, g, x, kNoBend)};
  });
}
Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max) {
  return clamp_numbers("clamp", x, min, max);
}
Tensor& clamp_(Tensor& self, std::optional<Scalar> min, std::optional<Scalar> max) {
  return clamp_numbers("clamp_", self, min, max, &self), self;
}

// Clamping by tensors. An element's gradient goes to what the result was taken from; x shares it with a bound it equals.

static Tensor clamp_tensors(const char* name, const Tensor& x, const Tensor& min, const Tensor& max,
                            Tensor* self = nullptr) {
  check_defined(name, "x", x);
  check(min.defined() || max.defined(), "[{}] at least one of min or max must be given, got none", name);
  if (!max.defined()) return extreme(name, BinaryOp::Maximum, x, min, self);
  if (!min.defined()) return extreme(name, BinaryOp::Minimum, x, max, self);
  Three p(name, clamp_type(name, x, min, max, self), x, min, max, self);
  if (p.cast_back) return copy_(*self, clamp(x, min, max));
  const auto [old_a, old_b, old_c] = p.old_values();
  Tensor y = p.run(TernaryOp::Clamp);
  return record(name, y, {p.a, p.b, p.c}, save(old_a, old_b, old_c),
                [](Needs needs, const Tensor& g, const Operand& x, const Operand& min, const Operand& max) {
                  // Between bounds that are equal, or crossed, nothing is shared.
                  const Tensor ordered = lt(min, max), half = mul(g, 0.5);
                  const Tensor at_min = logical_and(ordered, eq(x, min)), at_max = logical_and(ordered, eq(x, max));
                  const auto part = [&](const Tensor& all, const Tensor& shares) {
                    return where(shares, half, where(all, g, 0));
                  };
                  return Grads{
                      needs[0] ? part(logical_and(ge(x, min), le(x, max)), logical_or(at_min, at_max)) : Tensor(),
                      needs[1] ? part(logical_and(le(min, max), lt(x, min)), at_min) : Tensor(),
                      needs[2] ? part(logical_or(gt(x, max), lt(max, min)), at_max) : Tensor()};
                });
}
Tensor clamp(const Tensor& x, const Tensor& min, const Tensor& max) { return clamp_tensors("clamp", x, min, max); }
Tensor& clamp_(Tensor& self, const Tensor& min, const Tensor& max) {
  return clamp_tensors("clamp_", self, min, max, &self), self;
}

Tensor clamp_min(const Tensor& x, const Operand& min) try {
  return min.is_tensor() ? extreme("clamp_min", BinaryOp::Maximum, x, min.tensor())
                         : clamp_numbers("clamp_min", x, min.scalar(), {});
} catch (...) {
  fail_as("clamp_min");
}
Tensor clamp_max(const Tensor& x, const Operand& max) try {
  return max.is_tensor() ? extreme("clamp_max", BinaryOp::Minimum, x, max.tensor())
                         : clamp_numbers("clamp_max", x, {}, max.scalar());
} catch (...) {
  fail_as("clamp_max");
}
Tensor& clamp_min_(Tensor& self, const Operand& min) {
  check_defined("clamp_min_", "self", self, "min", min);
  if (min.is_tensor()) extreme("clamp_min_", BinaryOp::Maximum, self, min.tensor(), &self);
  else clamp_numbers("clamp_min_", self, min.scalar(), {}, &self);
  return self;
}
Tensor& clamp_max_(Tensor& self, const Operand& max) {
  check_defined("clamp_max_", "self", self, "max", max);
  if (max.is_tensor()) extreme("clamp_max_", BinaryOp::Minimum, self, max.tensor(), &self);
  else clamp_numbers("clamp_max_", self, {}, max.scalar(), &self);
  return self;
}

static Tensor interpolate(const char* name, const Tensor& x, const Tensor& end, const Operand& weight,
                          Tensor* self = nullptr) {
  check_defined(name, "x", x, "end", end, "weight", weight);
  const Operand a(x), b(end);
  const DType dtype = result_type({&a, &b, &weight});
  check(is_floating(x.dtype()) && is_floating(end.dtype()),
        "[{}] expected tensors of floating point dtype, got {} and {}", name, x, end);
  Three p(name, dtype, x, end, weight, self);
  if (p.cast_back) return copy_(*self, lerp(x, end, weight));
  const auto [old_a, old_b, old_c] = p.old_values();
  Tensor y = p.run(TernaryOp::Lerp);
  return record(name, y, {p.a, p.b, p.c}, save(old_a, old_b, old_c),
                [](Needs needs, const Tensor& g, const Operand& x, const Operand& end, const Operand& weight) {
                  const Tensor share = needs[0] || needs[1] ? mul(g, weight) : Tensor();
                  return Grads{needs[0] ? sub(g, share) : Tensor(), share, needs[2] ? mul(g, sub(end, x)) : Tensor()};
                });
}
Tensor lerp(const Tensor& x, const Tensor& end, const Operand& weight) { return interpolate("lerp", x, end, weight); }
Tensor& lerp_(Tensor& self, const Tensor& end, const Operand& weight) {
  return interpolate("lerp_", self, end, weight, &self), self;
}

static DType common_type(const Tensor& x, const Tensor& a, const Tensor& b) {
  const Operand first(x), second(a), third(b);
  return result_type({&first, &second, &third});
}

static Tensor add_product(const char* name, const Tensor& x, const Tensor& a, const Tensor& b, Scalar value,
                          Tensor* self = nullptr) {
  check_defined(name, "x", x, "a", a, "b", b);
  Three p(name, common_type(x, a, b), x, a, b, self);
  check(p.dtype != kBool, "[{}] expected tensors of numbers, got {}", name, x);
  check_factor(name, "value", value, p.dtype);
  if (p.cast_back) return copy_(*self, addcmul(x, a, b, value));
  const auto [old_a, old_b, old_c] = p.old_values(false);
  Tensor y = p.run(TernaryOp::AddCMul, value);
  return record(name, y, {p.a, p.b, p.c}, save(needed_by(2, old_b), needed_by(1, old_c)),
                [value](Needs needs, const Tensor& g, const Operand& a, const Operand& b) {
                  return Grads{needs[0] ? g : Tensor(), needs[1] ? mul(g, mul(b, value)) : Tensor(),
                               needs[2] ? mul(g, mul(a, value)) : Tensor()};
                });
}
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value) {
  check_defined("addcmul", "x", x, "a", a, "b", b);
  TAPIR_AUTOCAST(addcmul, x, a, b, value);
  return add_product("addcmul", x, a, b, value);
}
Tensor& addcmul_(Tensor& self, const Tensor& a, const Tensor& b, Scalar value) {
  return add_product("addcmul_", self, a, b, value, &self), self;
}

static Tensor add_quotient(const char* name, const Tensor& x, const Tensor& a, const Tensor& b, Scalar value,
                           Tensor* self = nullptr) {
  check_defined(name, "x", x, "a", a, "b", b);
  check(is_floating(a.dtype()) || is_floating(b.dtype()),
        "[{}] expected tensors of floating point dtype, got {} and {}: it divides", name, a, b);
  Three p(name, common_type(x, a, b), x, a, b, self);
  if (p.cast_back) return copy_(*self, addcdiv(x, a, b, value));
  const auto [old_a, old_b, old_c] = p.old_values(false);
  Tensor y = p.run(TernaryOp::AddCDiv, value);
  return record(name, y, {p.a, p.b, p.c}, save(needed_by(2, old_b), needed_by(1, 2, old_c)),
                [value](Needs needs, const Tensor& g, const Operand& a, const Operand& b) {
                  const Tensor part = needs[1] || needs[2] ? div(mul(g, value), b) : Tensor();
                  return Grads{needs[0] ? g : Tensor(), part, needs[2] ? neg(mul(part, div(a, b))) : Tensor()};
                });
}
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value) {
  check_defined("addcdiv", "x", x, "a", a, "b", b);
  TAPIR_AUTOCAST(addcdiv, x, a, b, value);
  return add_quotient("addcdiv", x, a, b, value);
}
Tensor& addcdiv_(Tensor& self, const Tensor& a, const Tensor& b, Scalar value) {
  return add_quotient("addcdiv_", self, a, b, value, &self), self;
}

}  // namespace tapir::inline v0
