// One, two and three operands, element by element. a, b, c are their numbers.
#include <cmath>

#include "case.h"

namespace op_cases {

static void one_operand(Table& table) {
  UNARY(abs, std::abs(a)).of(kNumbers).TWIN(abs_);
  UNARY(neg, -a).of(kNumbers).TWIN(neg_);
  UNARY(sign, (a > 0) - (a < 0)).of(kAll).TWIN(sign_);
  UNARY(square, a * a).of(kNumbers).TWIN(square_);
  UNARY(exp, std::exp(a)).of(kAll).gives(Gives::Floats).TWIN(exp_);
  UNARY(expm1, std::expm1(a)).of(kAll).gives(Gives::Floats).TWIN(expm1_);
  UNARY(log, std::log(a)).of(kAll).in({kPositive}).gives(Gives::Floats).TWIN(log_);
  UNARY(log1p, std::log1p(a)).of(kAll).in({{.low = -0.8}}).gives(Gives::Floats).TWIN(log1p_);
  UNARY(log2, std::log2(a)).of(kAll).in({kPositive}).gives(Gives::Floats).TWIN(log2_);
  UNARY(log10, std::log10(a)).of(kAll).in({kPositive}).gives(Gives::Floats).TWIN(log10_);
  UNARY(sqrt, std::sqrt(a)).of(kAll).in({kPositive}).gives(Gives::Floats).TWIN(sqrt_);
  UNARY(rsqrt, 1 / std::sqrt(a)).of(kAll).in({kPositive}).gives(Gives::Floats).TWIN(rsqrt_);
  UNARY(reciprocal, 1 / a).of(kAll).in({kNonzero}).gives(Gives::Floats).TWIN(reciprocal_);
  UNARY(sin, std::sin(a)).of(kAll).gives(Gives::Floats).TWIN(sin_);
  UNARY(cos, std::cos(a)).of(kAll).gives(Gives::Floats).TWIN(cos_);
  UNARY(tan, std::tan(a)).of(kAll).in({kUnit}).gives(Gives::Floats).TWIN(tan_);
  UNARY(asin, std::asin(a)).of(kAll).in({kUnit}).gives(Gives::Floats).TWIN(asin_);
  UNARY(acos, std::acos(a)).of(kAll).in({kUnit}).gives(Gives::Floats).TWIN(acos_);
  UNARY(atan, std::atan(a)).of(kAll).gives(Gives::Floats).TWIN(atan_);
  UNARY(sinh, std::sinh(a)).of(kAll).gives(Gives::Floats).TWIN(sinh_);
  UNARY(cosh, std::cosh(a)).of(kAll).gives(Gives::Floats).TWIN(cosh_);
  UNARY(tanh, std::tanh(a)).of(kAll).gives(Gives::Floats).TWIN(tanh_);
  UNARY(erf, std::erf(a)).of(kAll).gives(Gives::Floats).TWIN(erf_);
  UNARY(sigmoid, 1 / (1 + std::exp(-a))).of(kAll).gives(Gives::Floats).TWIN(sigmoid_);
  UNARY(floor, std::floor(a)).of(kNumbers).TWIN(floor_);
  UNARY(ceil, std::ceil(a)).of(kNumbers).TWIN(ceil_);
  UNARY(round, std::nearbyint(a)).of(kNumbers).TWIN(round_);
  UNARY(trunc, std::trunc(a)).of(kNumbers).TWIN(trunc_);
  UNARY(isnan, std::isnan(a)).of(kAll).gives(Gives::Bool);
  UNARY(isinf, std::isinf(a)).of(kAll).gives(Gives::Bool);
  UNARY(isfinite, std::isfinite(a)).of(kAll).gives(Gives::Bool);
  UNARY(logical_not, a == 0).of(kAll).gives(Gives::Bool).TWIN(logical_not_);
  UNARY(relu, a <= 0 ? 0 : a).of(kNumbers).TWIN(relu_);
  UNARY(leaky_relu, a > 0 ? a : 0.01 * a).TWIN(leaky_relu_);
  CASE(leaky_relu, leaky_relu(x[0], 0.2)).EACH(1, a > 0 ? a : 0.2 * a).TWIN(leaky_relu_, 0.2);
  CASE(leaky_relu, leaky_relu(x[0], -0.5)).EACH(1, a > 0 ? a : -0.5 * a).TWIN(leaky_relu_, -0.5);
  UNARY(gelu, a * 0.5 * (1 + std::erf(a * std::sqrt(0.5))));
  CASE(gelu, gelu(x[0], "tanh")).EACH(1, a * 0.5 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (a + 0.044715 * a * a * a))));
  UNARY(silu, a / (1 + std::exp(-a))).TWIN(silu_);
}

static double python_mod(double a, double b) {
  const double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static void two_operands(Table& table) {
  BINARY(add, a + b).of(kAll).TWIN(add_, x[1]);
  CASE(add, add(x[0], x[1], 2)).EACH(2, a + 2 * b).of(kNumbers).TWIN(add_, x[1], 2);
  CASE(add, add(x[0], x[1], -0.75)).EACH(2, a - 0.75 * b).TWIN(add_, x[1], -0.75);
  BINARY(sub, a - b).of(kNumbers).TWIN(sub_, x[1]);
  CASE(sub, sub(x[0], x[1], 3)).EACH(2, a - 3 * b).of(kNumbers).TWIN(sub_, x[1], 3);
  BINARY(mul, a * b).of(kAll).TWIN(mul_, x[1]);
  BINARY(div, a / b).of(kAll).in({kAny, kNonzero}).gives(Gives::Floats).TWIN(div_, x[1]);
  CASE(div, div(x[0], x[1], "trunc")).EACH(2, std::trunc(a / b)).of(kAll).in({kAny, kNonzero}).TWIN(div_, x[1], "trunc");
  CASE(div, div(x[0], x[1], "floor")).EACH(2, std::floor(a / b)).of(kNumbers).in({kAny, kNonzero}).finite_only().TWIN(div_, x[1], "floor");
  BINARY(eq, a == b).of(kAll).gives(Gives::Bool).TWIN(eq_, x[1]);
  BINARY(ne, a != b).of(kAll).gives(Gives::Bool).TWIN(ne_, x[1]);
  BINARY(lt, a < b).of(kAll).gives(Gives::Bool).TWIN(lt_, x[1]);
  BINARY(le, a <= b).of(kAll).gives(Gives::Bool).TWIN(le_, x[1]);
  BINARY(gt, a > b).of(kAll).gives(Gives::Bool).TWIN(gt_, x[1]);
  BINARY(ge, a >= b).of(kAll).gives(Gives::Bool).TWIN(ge_, x[1]);
  BINARY(logical_and, a != 0 && b != 0).of(kAll).gives(Gives::Bool).TWIN(logical_and_, x[1]);
  BINARY(logical_or, a != 0 || b != 0).of(kAll).gives(Gives::Bool).TWIN(logical_or_, x[1]);
  BINARY(logical_xor, (a != 0) != (b != 0)).of(kAll).gives(Gives::Bool).TWIN(logical_xor_, x[1]);
  BINARY(pow, std::pow(a, b)).of(kNumbers).in({kPositive, kPositive}).TWIN(pow_, x[1]);
  CASE(pow, pow(x[0], 3)).EACH(1, a * a * a).of(kNumbers).TWIN(pow_, 3);
  CASE(pow, pow(x[0], -1.5)).EACH(1, std::pow(a, -1.5)).of(kAll).gives(Gives::Floats).in({kPositive}).TWIN(pow_, -1.5);
  BINARY(maximum, a > b || std::isnan(a) ? a : b).of(kAll);
  BINARY(minimum, a < b || std::isnan(a) ? a : b).of(kAll);
  CASE(max, max(x[0], x[1])).EACH(2, a > b || std::isnan(a) ? a : b).of(kAll);
  CASE(min, min(x[0], x[1])).EACH(2, a < b || std::isnan(a) ? a : b).of(kAll);
  BINARY(fmax, std::fmax(a, b)).of(kAll);
  BINARY(fmin, std::fmin(a, b)).of(kAll);
  BINARY(remainder, python_mod(a, b)).of(kAll).in({kAny, kNonzero}).TWIN(remainder_, x[1]);
  BINARY(fmod, std::fmod(a, b)).of(kAll).in({kAny, kNonzero}).TWIN(fmod_, x[1]);
  BINARY(floor_divide, std::floor(a / b)).of(kAll).in({kAny, kNonzero}).finite_only().TWIN(floor_divide_, x[1]);
  BINARY(atan2, std::atan2(a, b)).of(kAll).gives(Gives::Floats).TWIN(atan2_, x[1]);
}

/// From the nearer end, as PyTorch does.
static double mixed(double a, double b, double w) { return std::abs(w) < 0.5 ? a + w * (b - a) : b - (b - a) * (1 - w); }
static double limited(double a, double low, double high) {
  return std::isnan(a) || std::isnan(low) || std::isnan(high) ? NAN : std::fmin(std::fmax(a, low), high);
}

static void three_operands(Table& table) {
  CASE(where, where(x[0], x[1], x[2])).EACH(3, a != 0 ? b : c).in({kMask, kAny}).of(kAll);
  CASE(where, where(x[0], x[1], 2)).EACH(2, a != 0 ? b : 2).in({kMask, kAny}).of(kNumbers);
  CASE(where, where(x[0], 2, x[1])).EACH(2, a != 0 ? 2 : b).in({kMask, kAny}).of(kNumbers);
  CASE(masked_fill, masked_fill(x[0], x[1], 2)).EACH(2, b != 0 ? 2 : a).in({kAny, kMask}).of(kNumbers).TWIN(masked_fill_, x[1], 2);
  CASE(masked_fill, masked_fill(x[0], x[1], x[2]))
      .EACH(3, b != 0 ? c : a)
      .in({kAny, kMask, kAny})
      .of(kAll)
      .on("(2,3,4) (2,3,4) () | (2,3,4) (3,1) () | () () () | (0,3) (3) ()")
      .TWIN(masked_fill_, x[1], x[2]);
  CASE(clamp, clamp(x[0], -1, 2)).EACH(1, limited(a, -1, 2)).of(kNumbers).TWIN(clamp_, -1, 2);
  CASE(clamp, clamp(x[0], 1)).EACH(1, limited(a, 1, INFINITY)).of(kNumbers).TWIN(clamp_, 1);
  CASE(clamp, clamp(x[0], {}, 1)).EACH(1, limited(a, -INFINITY, 1)).of(kNumbers).TWIN(clamp_, {}, 1);
  CASE(clamp, clamp(x[0], x[1], x[2])).EACH(3, limited(a, b, c)).of(kNumbers).TWIN(clamp_, x[1], x[2]);
  CASE(clamp, clamp(x[0], x[1])).EACH(2, limited(a, b, INFINITY)).of(kNumbers).TWIN(clamp_, x[1]);
  CASE(clamp, clamp(x[0], Tensor(), x[1])).EACH(2, limited(a, -INFINITY, b)).of(kNumbers).TWIN(clamp_, Tensor(), x[1]);
  CASE(clamp_min, clamp_min(x[0], x[1])).EACH(2, limited(a, b, INFINITY)).of(kNumbers).TWIN(clamp_min_, x[1]);
  CASE(clamp_min, clamp_min(x[0], 1)).EACH(1, limited(a, 1, INFINITY)).of(kNumbers).TWIN(clamp_min_, 1);
  CASE(clamp_max, clamp_max(x[0], x[1])).EACH(2, limited(a, -INFINITY, b)).of(kNumbers).TWIN(clamp_max_, x[1]);
  CASE(clamp_max, clamp_max(x[0], 1)).EACH(1, limited(a, -INFINITY, 1)).of(kNumbers).TWIN(clamp_max_, 1);
  CASE(lerp, lerp(x[0], x[1], x[2])).EACH(3, mixed(a, b, c)).in({kAny, kAny, kProbability}).TWIN(lerp_, x[1], x[2]);
  CASE(lerp, lerp(x[0], x[1], 0.75)).EACH(2, mixed(a, b, 0.75)).TWIN(lerp_, x[1], 0.75);
  CASE(addcmul, addcmul(x[0], x[1], x[2])).EACH(3, a + b * c).of(kNumbers).TWIN(addcmul_, x[1], x[2]);
  CASE(addcmul, addcmul(x[0], x[1], x[2], 0.5)).EACH(3, a + 0.5 * b * c).TWIN(addcmul_, x[1], x[2], 0.5);
  CASE(addcdiv, addcdiv(x[0], x[1], x[2], 0.5)).EACH(3, a + 0.5 * b / c).in({kAny, kAny, kNonzero}).TWIN(addcdiv_, x[1], x[2], 0.5);
}

/// Every dtype into every other one. Numbers are not negative: a negative float saturates in uint8, an integer wraps around.
static void conversions(Table& table) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType t = DType(i);
    Case& line = CASE(to, to(x[0], t)).EACH(1, is_floating(t) || t == kBool ? a : std::trunc(a)).of(kAll).in({kPositive});
    line.gives(Gives::Other).finite_only().views(Shares::Maybe);
    line.text = "to(x[0], " + std::string(name_of(t)) + ")";
    if (t != kFloat64) line.no_gradient();
  }
  CASE(to, to(x[0], x[0].device())).EACH(1, a).of(kAll).views(Shares::Maybe);
  CASE(clone, clone(x[0])).EACH(1, a).of(kAll);
  CASE(contiguous, contiguous(x[0])).EACH(1, a).of(kAll).views(Shares::Maybe);
  CASE(copy_, clone(x[0]).copy_(x[1])).EACH(2, b).of(kAll).on("(2,3,4) (2,3,4) | (2,3,4) (3,1) | (0,3) (3)").TWIN(copy_, x[1]);
}

/// Where numbers of another dtype come of bools.
static void bools(Table& table) {
  const auto line = [](Case& c) { c.of(kBools).gives(Gives::Sums); };
  line(CASE(square, square(x[0])).EACH(1, a * a));
  line(CASE(add, add(x[0], 2)).EACH(1, a + 2));
  line(CASE(sub, sub(x[0], 2)).EACH(1, a - 2));
  line(CASE(mul, mul(x[0], 2)).EACH(1, a * 2));
  line(CASE(pow, pow(x[0], 2)).EACH(1, a * a));
  line(CASE(remainder, remainder(x[0], 2)).EACH(1, python_mod(a, 2)));
  line(CASE(maximum, maximum(x[0], 2)).EACH(1, std::fmax(a, 2)));
  line(CASE(where, where(x[0], x[1], 2)).EACH(2, a != 0 ? b : 2).in({kMask, kAny}));
  line(CASE(clamp, clamp(x[0], 0, 1)).EACH(1, limited(a, 0, 1)));
  line(CASE(clamp_min, clamp_min(x[0], 1)).EACH(1, limited(a, 1, INFINITY)));
  line(CASE(clamp_max, clamp_max(x[0], 1)).EACH(1, limited(a, -INFINITY, 1)));
}

void pointwise_cases(Table& table) {
  one_operand(table);
  two_operands(table);
  three_operands(table);
  conversions(table);
  bools(table);
}

}  // namespace op_cases
