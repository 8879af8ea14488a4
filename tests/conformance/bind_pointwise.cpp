#include "ops.h"

namespace conformance {

std::map<std::string, Binding>& bindings() {
  static std::map<std::string, Binding> table;
  return table;
}

#define UNARY(name)                                                             \
  table[#name] = {[](Args& a) -> Results { return {name(a.tensor("input"))}; }, \
                  [](Tensor& self, Args&) { name##_(self); }}
#define UNARY_ONLY(name) table[#name] = {[](Args& a) -> Results { return {name(a.tensor("input"))}; }, {}}
#define BINARY(name)                                                            \
  table[#name] = {[](Args& a) -> Results { return {name(left(a), right(a))}; }, \
                  [](Tensor& self, Args& a) { name##_(self, right(a)); }}
#define BINARY_ONLY(name) table[#name] = {[](Args& a) -> Results { return {name(left(a), right(a))}; }, {}}

static Operand as_operand(const Value* v) {
  if (!v) throw Refused("an operand is missing");
  return v->kind == Value::Kind::Tensor ? Operand(v->tensor) : Operand(scalar_of(*v));
}
static Operand left(Args& a) { return as_operand(a.positional.empty() ? a.find("input") : a.at(0)); }
static Operand right(Args& a) {
  return as_operand(a.positional.size() > 1 ? a.at(1) : a.find(a.has("exponent") ? "exponent" : "other"));
}

/// clamp's bounds are numbers or tensors, each may be absent.
template <class Numbers, class Tensors> static auto with_bounds(Args& a, Numbers&& numbers, Tensors&& tensors) {
  const Value *low = a.find("min"), *high = a.find("max");
  const bool any_tensor = (low && low->kind == Value::Kind::Tensor) || (high && high->kind == Value::Kind::Tensor);
  if (any_tensor) return tensors(low ? low->tensor : Tensor(), high ? high->tensor : Tensor());
  return numbers(low ? std::optional(scalar_of(*low)) : std::nullopt,
                 high ? std::optional(scalar_of(*high)) : std::nullopt);
}

static IsCloseOptions tolerance(Args& a) {
  return {a.number("rtol", 1e-5), a.number("atol", 1e-8), a.boolean("equal_nan", false)};
}

static void bind_two_operands(std::map<std::string, Binding>& table) {
  BINARY(eq);
  BINARY(ne);
  BINARY(lt);
  BINARY(le);
  BINARY(gt);
  BINARY(ge);
  BINARY(logical_and);
  BINARY(logical_or);
  BINARY(logical_xor);
  BINARY(mul);
  BINARY(pow);
  BINARY(remainder);
  BINARY(fmod);
  BINARY(floor_divide);
  BINARY(atan2);
  BINARY(bitwise_and);
  BINARY(bitwise_or);
  BINARY(bitwise_xor);
  BINARY(bitwise_left_shift);
  BINARY(bitwise_right_shift);
  BINARY(hypot);
  BINARY(xlogy);
  BINARY(float_power);
  BINARY_ONLY(logaddexp);
  BINARY_ONLY(logaddexp2);
  BINARY_ONLY(maximum);
  BINARY_ONLY(minimum);
  BINARY_ONLY(fmax);
  BINARY_ONLY(fmin);
  table["add"] = {[](Args& a) -> Results { return {add(left(a), right(a), a.scalar("alpha", Scalar(1)))}; },
                  [](Tensor& self, Args& a) { self.add_(right(a), a.scalar("alpha", Scalar(1))); }};
  table["sub"] = {[](Args& a) -> Results { return {sub(left(a), right(a), a.scalar("alpha", Scalar(1)))}; },
                  [](Tensor& self, Args& a) { self.sub_(right(a), a.scalar("alpha", Scalar(1))); }};
  const Binding divide = {[](Args& a) -> Results { return {div(left(a), right(a), a.text("rounding_mode", ""))}; },
                          [](Tensor& self, Args& a) { div_(self, right(a), a.text("rounding_mode", "")); }};
  table["div"] = divide;
  table["true_divide"] = divide;
  table["copysign"] = {[](Args& a) -> Results { return {copysign(a.tensor("input"), right(a))}; },
                       [](Tensor& self, Args& a) { copysign_(self, right(a)); }};
  table["heaviside"] = {[](Args& a) -> Results { return {heaviside(a.tensor("input"), a.tensor("values"))}; },
                        [](Tensor& self, Args& a) { heaviside_(self, a.tensor("values")); }};
  table["isclose"] = {[](Args& a) -> Results { return {isclose(a.tensor("input"), a.tensor("other"), tolerance(a))}; },
                      {}};
  table["allclose"] = {
      [](Args& a) -> Results { return {Scalar(allclose(a.tensor("input"), a.tensor("other"), tolerance(a)))}; }, {}};
  table["rsub"] = {[](Args& a) -> Results { return {sub(right(a), left(a), a.scalar("alpha", Scalar(1)))}; }, {}};
}

static void bind_ternary(std::map<std::string, Binding>& table) {
  table["where"] = {
      [](Args& a) -> Results { return {where(a.tensor("condition"), a.operand("self"), a.operand("other"))}; }, {}};
  table["masked_fill"] = {
      [](Args& a) -> Results { return {masked_fill(a.tensor("input"), a.tensor("mask"), a.operand("value"))}; },
      [](Tensor& self, Args& a) { masked_fill_(self, a.tensor("mask"), a.operand("value")); }};
  table["clamp"] = {[](Args& a) -> Results {
                      const Tensor x = a.tensor("input");
                      return {with_bounds(
                          a, [&](auto low, auto high) { return clamp(x, low, high); },
                          [&](const Tensor& low, const Tensor& high) { return clamp(x, low, high); })};
                    },
                    [](Tensor& self, Args& a) {
                      with_bounds(
                          a, [&](auto low, auto high) { return clamp_(self, low, high); },
                          [&](const Tensor& low, const Tensor& high) { return clamp_(self, low, high); });
                    }};
  table["clamp_min"] = {[](Args& a) -> Results { return {clamp_min(a.tensor("input"), a.operand("min"))}; },
                        [](Tensor& self, Args& a) { clamp_min_(self, a.operand("min")); }};
  table["clamp_max"] = {[](Args& a) -> Results { return {clamp_max(a.tensor("input"), a.operand("max"))}; },
                        [](Tensor& self, Args& a) { clamp_max_(self, a.operand("max")); }};
  table["lerp"] = {[](Args& a) -> Results { return {lerp(a.tensor("input"), a.tensor("end"), a.operand("weight"))}; },
                   [](Tensor& self, Args& a) { lerp_(self, a.tensor("end"), a.operand("weight")); }};
  table["addcmul"] = {
      [](Args& a) -> Results {
        return {addcmul(a.tensor("input"), a.tensor("tensor1"), a.tensor("tensor2"), a.scalar("value", Scalar(1)))};
      },
      [](Tensor& self, Args& a) {
        addcmul_(self, a.tensor("tensor1"), a.tensor("tensor2"), a.scalar("value", Scalar(1)));
      }};
  table["addcdiv"] = {
      [](Args& a) -> Results {
        return {addcdiv(a.tensor("input"), a.tensor("tensor1"), a.tensor("tensor2"), a.scalar("value", Scalar(1)))};
      },
      [](Tensor& self, Args& a) {
        addcdiv_(self, a.tensor("tensor1"), a.tensor("tensor2"), a.scalar("value", Scalar(1)));
      }};
}

static void bind_special(std::map<std::string, Binding>& table) {
  UNARY(acosh);
  UNARY(asinh);
  UNARY(atanh);
  UNARY(exp2);
  UNARY(erfc);
  UNARY(erfinv);
  UNARY(lgamma);
  UNARY(digamma);
  UNARY(sinc);
  UNARY(frac);
  UNARY(deg2rad);
  UNARY(rad2deg);
  UNARY(bitwise_not);
  UNARY_ONLY(positive);
  UNARY_ONLY(signbit);
  table["round"] = {[](Args& a) -> Results { return {round(a.tensor("input"), a.integer("decimals", 0))}; },
                    [](Tensor& self, Args& a) { round_(self, a.integer("decimals", 0)); }};
  const auto eps = [](Args& a) {
    const Value* v = a.find("eps");
    return v ? std::optional(scalar_of(*v).to_double()) : std::nullopt;
  };
  table["logit"] = {[=](Args& a) -> Results { return {logit(a.tensor("input"), eps(a))}; },
                    [=](Tensor& self, Args& a) { logit_(self, eps(a)); }};
  table["polygamma"] = {[](Args& a) -> Results { return {polygamma(a.integer("n"), a.tensor("input"))}; }, {}};
  const auto numbers = [](Args& a) {
    NanToNumOptions o{.nan = a.number("nan", 0)};
    if (const auto v = a.optional_scalar("posinf")) o.posinf = v->to_double();
    if (const auto v = a.optional_scalar("neginf")) o.neginf = v->to_double();
    return o;
  };
  table["nan_to_num"] = {[=](Args& a) -> Results { return {nan_to_num(a.tensor("input"), numbers(a))}; },
                         [=](Tensor& self, Args& a) { nan_to_num_(self, numbers(a)); }};
}

static void bind_activations(std::map<std::string, Binding>& table) {
  UNARY(selu);
  UNARY(relu6);
  UNARY(mish);
  UNARY(hardswish);
  UNARY(hardsigmoid);
  UNARY_ONLY(logsigmoid);
  UNARY_ONLY(softsign);
  UNARY_ONLY(tanhshrink);
  table["elu"] = {[](Args& a) -> Results { return {elu(a.tensor("input"), a.number("alpha", 1))}; },
                  [](Tensor& self, Args& a) { elu_(self, a.number("alpha", 1)); }};
  table["celu"] = {[](Args& a) -> Results { return {celu(a.tensor("input"), a.number("alpha", 1))}; },
                   [](Tensor& self, Args& a) { celu_(self, a.number("alpha", 1)); }};
  table["hardtanh"] = {
      [](Args& a) -> Results { return {hardtanh(a.tensor("input"), a.number("min_val", -1), a.number("max_val", 1))}; },
      [](Tensor& self, Args& a) { hardtanh_(self, a.number("min_val", -1), a.number("max_val", 1)); }};
  table["threshold"] = {
      [](Args& a) -> Results { return {threshold(a.tensor("input"), a.number("threshold"), a.number("value"))}; },
      [](Tensor& self, Args& a) { threshold_(self, a.number("threshold"), a.number("value")); }};
  table["softplus"] = {
      [](Args& a) -> Results { return {softplus(a.tensor("input"), a.number("beta", 1), a.number("threshold", 20))}; },
      {}};
  table["hardshrink"] = {[](Args& a) -> Results { return {hardshrink(a.tensor("input"), a.number("lambd", 0.5))}; },
                         {}};
  table["softshrink"] = {[](Args& a) -> Results { return {softshrink(a.tensor("input"), a.number("lambd", 0.5))}; },
                         {}};
  table["prelu"] = {[](Args& a) -> Results { return {prelu(a.tensor("input"), a.tensor("weight"))}; }, {}};
  table["glu"] = {[](Args& a) -> Results { return {glu(a.tensor("input"), a.integer("dim", -1))}; }, {}};
}

void bind_pointwise() {
  auto& table = bindings();
  UNARY(abs);
  UNARY(neg);
  UNARY(exp);
  UNARY(expm1);
  UNARY(log);
  UNARY(log1p);
  UNARY(log2);
  UNARY(log10);
  UNARY(sqrt);
  UNARY(rsqrt);
  UNARY(reciprocal);
  UNARY(square);
  UNARY(sin);
  UNARY(cos);
  UNARY(tan);
  UNARY(asin);
  UNARY(acos);
  UNARY(atan);
  UNARY(sinh);
  UNARY(cosh);
  UNARY(tanh);
  UNARY(sigmoid);
  UNARY(erf);
  UNARY(floor);
  UNARY(ceil);
  UNARY(trunc);
  UNARY(sign);
  UNARY(relu);
  UNARY(silu);
  UNARY(logical_not);
  bind_special(table);
  bind_activations(table);
  UNARY_ONLY(isnan);
  UNARY_ONLY(isinf);
  UNARY_ONLY(isfinite);
  table["leaky_relu"] = {
      [](Args& a) -> Results { return {leaky_relu(a.tensor("input"), a.number("negative_slope", 0.01))}; },
      [](Tensor& self, Args& a) { leaky_relu_(self, a.number("negative_slope", 0.01)); }};
  table["gelu"] = {[](Args& a) -> Results { return {gelu(a.tensor("input"), a.text("approximate", "none"))}; }, {}};
  bind_two_operands(table);
  bind_ternary(table);
}

}  // namespace conformance
