// Special functions, activations and bits, element by element. a, b are the operands' numbers.
#include <cmath>

#include "case.h"

namespace op_cases {

// References of special functions: long sums in long double.

/// The derivative of ln Gamma: recurrence up to 200, then the asymptotic series; and its own derivatives.
static double psi(int n, double x) {
  if (std::isnan(x) || (x == -INFINITY && n < 2)) return NAN;
  if (x <= 0 && x == std::floor(x)) return n > 0 ? (n % 2 ? INFINITY : -INFINITY) : x == 0 ? (std::signbit(x) ? INFINITY : -INFINITY) : NAN;
  if (x == INFINITY) return n ? (n % 2 ? 0.0 : -0.0) : INFINITY;
  long double y = 0, z = x;
  for (; z < 200; ++z) y += n == 0 ? -1 / z : n == 1 ? 1 / (z * z) : -2 / (z * z * z);
  const long double r = 1 / z, r2 = r * r;
  if (n == 0) return double(y + std::log(z) - r / 2 - r2 / 12 + r2 * r2 / 120);
  if (n == 1) return double(y + r + r2 / 2 + r2 * r / 6 - r2 * r2 * r / 30);
  return double(y - r2 - r2 * r - r2 * r2 / 2 + r2 * r2 * r2 / 6);
}
/// By bisection.
static double inverse_erf(double x) {
  if (x == 0) return x;
  if (!(std::abs(x) < 1)) return std::abs(x) == 1 ? x * INFINITY : NAN;
  long double low = -6.5L, high = 6.5L;
  for (int i = 0; i < 80; ++i) {
    const long double middle = (low + high) / 2;
    (std::erf(middle) < (long double)x ? low : high) = middle;
  }
  return double((low + high) / 2);
}
static double sin_ratio(double x) {
  const double pi = std::acos(-1.0), r = x - std::nearbyint(x);
  const double s = std::fmod(std::abs(std::nearbyint(x)), 2) == 1 ? -std::sin(pi * r) : std::sin(pi * r);
  return x == 0 ? 1 : s / (pi * x);
}
static double log_sum(double a, double b) {
  return a == b && std::isinf(a) ? a : std::fmax(a, b) + std::log1p(std::exp(-std::abs(a - b))) + (a != a || b != b ? NAN : 0);
}

static void special_functions(Table& table) {
  UNARY(exp2, std::exp2(a)).of(kAll).gives(Gives::Floats).TWIN(exp2_);
  UNARY(asinh, std::asinh(a)).of(kAll).gives(Gives::Floats).TWIN(asinh_);
  UNARY(acosh, std::acosh(a)).of(kAll).in({{.low = 1.1, .high = 5}}).gives(Gives::Floats).TWIN(acosh_);
  UNARY(atanh, std::atanh(a)).of(kAll).in({kUnit}).gives(Gives::Floats).TWIN(atanh_);
  UNARY(erfc, std::erfc(a)).of(kAll).gives(Gives::Floats).within(8).TWIN(erfc_);
  UNARY(erfinv, inverse_erf(a)).of(kAll).in({kUnit}).gives(Gives::Floats).within(8).TWIN(erfinv_);
  UNARY(lgamma, std::lgamma(a)).of(kAll).in({kPositive}).gives(Gives::Floats).within(8).TWIN(lgamma_);
  UNARY(digamma, psi(0, a)).of(kAll).in({kPositive}).gives(Gives::Floats).within(8).TWIN(digamma_);
  CASE(digamma, digamma(x[0])).EACH(1, psi(0, a)).in({{.low = -2.9, .high = -2.1}}).within(64);
  for (int n : {0, 1, 2}) {
    Case& line = CASE(polygamma, polygamma(n, x[0])).EACH(1, psi(n, a)).of(kAll).in({kPositive}).gives(Gives::Floats);
    line.within(32).TWIN(polygamma_, n).text = "polygamma(" + std::to_string(n) + ", x[0])";
    Case& left = CASE(polygamma, polygamma(n, x[0])).EACH(1, psi(n, a)).in({{.low = -2.9, .high = -2.1}}).within(256);
    left.finite_only().text = "polygamma(" + std::to_string(n) + ", x[0]) of negative numbers";
  }
  UNARY(sinc, sin_ratio(a)).of(kAll).gives(Gives::Floats).within(8).TWIN(sinc_);
  UNARY(logit, std::log(a / (1 - a))).of(kAll).in({kProbability}).gives(Gives::Floats).within(8).TWIN(logit_);
  CASE(logit, logit(x[0], 0.2))
      .EACH(1, a < 0.2   ? std::log(0.25)
               : a > 0.8 ? std::log(4.0)
                         : std::log(a / (1 - a)))
      .of(kAll)
      .in({kProbability})
      .gives(Gives::Floats)
      .within(16)
      .TWIN(logit_, 0.2);
  BINARY(xlogy, b != b ? b : a == 0 ? 0 : a * std::log(b)).of(kAll).in({kAny, kPositive}).gives(Gives::Floats).TWIN(xlogy_, x[1]);
  BINARY(logaddexp, log_sum(a, b)).of(kAll).gives(Gives::Floats);
  BINARY(logaddexp2, log_sum(a * std::log(2.0), b * std::log(2.0)) / std::log(2.0)).of(kAll).gives(Gives::Floats);
  UNARY(frac, a - std::trunc(a)).TWIN(frac_);
  CASE(round, round(x[0], 1)).EACH(1, std::nearbyint(a * 10) / 10).in({{.low = -3, .high = 3.14}}).TWIN(round_, 1);
  CASE(round, round(x[0], -1)).EACH(1, std::nearbyint(a / 10) * 10).in({{.low = -80, .high = 94}}).TWIN(round_, -1);
  UNARY(positive, a).of(kNumbers).views();
  UNARY(deg2rad, a * std::acos(-1.0) / 180).of(kAll).gives(Gives::Floats).TWIN(deg2rad_);
  UNARY(rad2deg, a * 180 / std::acos(-1.0)).of(kAll).gives(Gives::Floats).TWIN(rad2deg_);
  UNARY(signbit, std::signbit(a)).of(kAll).gives(Gives::Bool).finite_only();
  CASE(nan_to_num, nan_to_num(x[0], {.nan = 1, .posinf = 2, .neginf = -3}))
      .EACH(1, std::isnan(a)    ? 1
               : a == INFINITY  ? 2
               : a == -INFINITY ? -3
                                : a)
      .of(kAll)
      .TWIN(nan_to_num_, {.nan = 1, .posinf = 2, .neginf = -3});
  UNARY(bitwise_not, double(~int64_t(a))).of(kInts).TWIN(bitwise_not_);
}

static double sigmoid(double a) { return 1 / (1 + std::exp(-a)); }
static double soft(double a) { return std::fmax(a, 0) + std::log1p(std::exp(-std::abs(a))) + (std::isnan(a) ? NAN : 0); }
static double limited(double a, double low, double high) {
  return std::isnan(a) || std::isnan(low) || std::isnan(high) ? NAN : std::fmin(std::fmax(a, low), high);
}

static void activations(Table& table) {
  UNARY(elu, a > 0 ? a : std::expm1(a)).TWIN(elu_);
  CASE(elu, elu(x[0], 0.7)).EACH(1, a > 0 ? a : 0.7 * std::expm1(a)).TWIN(elu_, 0.7);
  UNARY(celu, a > 0 ? a : std::expm1(a)).TWIN(celu_);
  CASE(celu, celu(x[0], 0.7)).EACH(1, a > 0 ? a : 0.7 * std::expm1(a / 0.7)).TWIN(celu_, 0.7);
  UNARY(selu, 1.0507009873554804934 * (a > 0 ? a : 1.6732632423543772848 * std::expm1(a))).TWIN(selu_);
  UNARY(softplus, soft(a));
  CASE(softplus, softplus(x[0], 2, 1.5)).EACH(1, 2 * a > 1.5 ? a : soft(2 * a) / 2);
  UNARY(mish, a * std::tanh(soft(a))).within(8).TWIN(mish_);
  UNARY(logsigmoid, -soft(-a));
  UNARY(hardswish, a * limited(a + 3, 0, 6) / 6).in({{.low = -4, .high = 4.3}}).TWIN(hardswish_);
  UNARY(hardsigmoid, limited(a + 3, 0, 6) / 6).in({{.low = -4, .high = 4.3}}).TWIN(hardsigmoid_);
  UNARY(hardtanh, limited(a, -1, 1)).of(kNumbers).TWIN(hardtanh_);
  CASE(hardtanh, hardtanh(x[0], 0, 2)).EACH(1, limited(a, 0, 2)).of(kNumbers).TWIN(hardtanh_, 0, 2);
  UNARY(relu6, limited(a, 0, 6)).of(kNumbers).in({{.low = -3, .high = 8.3}}).TWIN(relu6_);
  CASE(threshold, threshold(x[0], 1, 2)).EACH(1, a <= 1 ? 2 : a).of(kNumbers);
  CASE(threshold, threshold(x[0], 1, 2)).EACH(1, a <= 1 ? 2 : a).of(kNumbers).no_expand().TWIN(threshold_, 1, 2);  // may be expanded
  UNARY(hardshrink, std::abs(a) <= 0.5 ? 0 : a);
  CASE(hardshrink, hardshrink(x[0], -0.5)).EACH(1, a);
  UNARY(softshrink, std::isnan(a) ? a : a > 0.5 ? a - 0.5 : a < -0.5 ? a + 0.5 : 0);
  UNARY(softsign, a / (1 + std::abs(a))).of(kAll).gives(Gives::Floats);
  UNARY(tanhshrink, a - std::tanh(a)).in({kPositive}).within(128).of(kAll).gives(Gives::Floats);
  CASE(prelu, prelu(x[0], x[1])).EACH(2, a > 0 ? a : a * b).on("(2,3) (3) | (4,3) (1) | () () | (0,3) (3)");
  CASE(prelu, prelu(x[0], x[1])).on("(2,3,4) (3) | (2,3,2,2) (3)").expect([](const Arrays& x) {
    return make(x[0].shape, [&](const Dims& i) { return x[0].at(i) > 0 ? x[0].at(i) : x[0].at(i) * x[1].at(i[1]); });
  });
  for (int64_t dim : {0, 1, -1}) {
    Case& line = CASE(glu, glu(x[0], dim)).on("(4,2,6) | (2,862) | (0,2)").expect([dim](const Arrays& x) {
      const int64_t d = dim < 0 ? x[0].shape.size() - 1 : dim;
      Shape half = x[0].shape;
      half[d] /= 2;
      return make(half, [&](Dims i) {
        const double a = x[0].at(i);
        return i[d] += half[d], a * sigmoid(x[0].at(i));
      });
    });
    line.text = "glu(x[0], " + std::to_string(dim) + ")";
  }
}

static void two_operands(Table& table) {
  BINARY(hypot, std::hypot(a, b)).of(kAll).in({kNonzero, kNonzero}).gives(Gives::Floats).TWIN(hypot_, x[1]);
  CASE(copysign, copysign(x[0], x[1])).EACH(2, std::copysign(a, b)).of(kAll).in({kNonzero, kNonzero}).gives(Gives::Floats).finite_only().TWIN(copysign_, x[1]);
  CASE(copysign, copysign(x[0], -2)).EACH(1, -std::abs(a)).of(kNumbers).gives(Gives::Floats).TWIN(copysign_, -2);
  CASE(heaviside, heaviside(x[0], x[1])).EACH(2, a == 0 ? b : a > 0 ? 1 : 0).of(kAll).TWIN(heaviside_, x[1]);
  BINARY(float_power, std::pow(a, b)).of(kNumbers).in({kPositive, kPositive}).gives(Gives::Other);
  CASE(float_power, float_power(x[0], 1.5)).EACH(1, std::pow(a, 1.5)).of(set_of({kFloat64})).in({kPositive}).TWIN(float_power_, 1.5);
  BINARY(bitwise_and, double(int64_t(a) & int64_t(b))).of(kInts).TWIN(bitwise_and_, x[1]);
  BINARY(bitwise_or, double(int64_t(a) | int64_t(b))).of(kInts).TWIN(bitwise_or_, x[1]);
  BINARY(bitwise_xor, double(int64_t(a) ^ int64_t(b))).of(kInts).TWIN(bitwise_xor_, x[1]);
  BINARY(bitwise_left_shift, a * std::exp2(b)).of(kInts).in({kAny, {.low = 0, .high = 4}}).TWIN(bitwise_left_shift_, x[1]);
  BINARY(bitwise_right_shift, std::floor(a / std::exp2(b))).of(kInts).in({kAny, {.low = 0, .high = 4}}).TWIN(bitwise_right_shift_, x[1]);
  CASE(isclose, isclose(x[0], x[1], {.rtol = 0.1, .atol = 0.5}))
      .EACH(2, a == b || (std::isfinite(a - b) && std::abs(a - b) <= 0.5 + std::abs(0.1 * b)))
      .of(kAll)
      .gives(Gives::Bool)
      .finite_only();
}

void function_cases(Table& table) {
  special_functions(table);
  activations(table);
  two_operands(table);
}

}  // namespace op_cases
