#pragma once
// The formulas of one operand: see Note [Formulas].
#include "../arithmetic.h"
#include "../convert.h"
#include "../math_special.h"
#include "../params.h"
#include "formula.h"

namespace tapir::inline v0::formulas {

/// a, b and c of UnaryParams in the type of the elements.
template <class T> struct UnaryNumbers {
  T a, b, c;
  double power;  // RoundTo: 10^|decimals|
};

template <class T> TAPIR_FORMULA UnaryNumbers<T> numbers(UnaryOp op, const UnaryParams& p) {
  if (op == UnaryOp::RoundTo) return {cast<T>(p.a), T(0), T(0), std::pow(10, std::abs(p.a))};
  if (op == UnaryOp::Logit)  // of any x: clamped to all there are
    return {p.a >= 0 ? cast<T>(p.a) : cast<T>(-INFINITY), p.a >= 0 ? cast<T>(1 - p.a) : cast<T>(INFINITY), T(0), 0};
  if (op == UnaryOp::Threshold && !kReal<T>) return {T(int64_t(p.a)), T(int64_t(p.b)), T(0), 0};  // wraps
  return {cast<T>(p.a), cast<T>(p.b), cast<T>(p.c), 0};
}

/// The operation whose formula computes this call on floats: the usual exponents have short forms, as in PyTorch.
inline UnaryOp form_of(const UnaryParams& p) {
  if (p.op == UnaryOp::Gelu && p.a != 0) return UnaryOp::GeluTanh;
  if (p.op != UnaryOp::PowScalar) return p.op;
  if (p.a == 2) return UnaryOp::Square;
  if (p.a == 3) return UnaryOp::Cube;
  if (p.a == 0.5) return UnaryOp::Sqrt;
  if (p.a == -0.5) return UnaryOp::Rsqrt;
  if (p.a == -1) return UnaryOp::Reciprocal;
  return p.a == -2 ? UnaryOp::InverseSquare : p.op;
}

// All types.
template <class T> TAPIR_FORMULA T negative(T x) {
  if constexpr (kReal<T>) return -x;
  else return wrap_sub(T(0), x);
}
template <class T> TAPIR_FORMULA T magnitude(T x) {
  if constexpr (kReal<T>) return std::abs(x);
  else return is_below_zero(x) ? wrap_sub(T(0), x) : x;
}
#define TAPIR_ROUNDING(name, function)               \
  template <class T> TAPIR_FORMULA T name(T x) {     \
    if constexpr (kReal<T>) return std::function(x); \
    else return x;                                   \
  }
TAPIR_ROUNDING(floor, floor)
TAPIR_ROUNDING(ceil, ceil)
TAPIR_ROUNDING(nearest, nearbyint)
TAPIR_ROUNDING(trunc, trunc)
#undef TAPIR_ROUNDING
template <class T> TAPIR_FORMULA bool has_sign(T x) {
  if constexpr (kReal<T>) return std::signbit(x);
  else return is_below_zero(x);
}
/// x in [low, high]; a NaN stays.
template <class T> TAPIR_FORMULA T clamped(T x, T low, T high) {
  const T y = x < low ? low : x;
  return y > high ? high : y;
}

// Floats. A NaN stays one: every comparison with it fails.
/// Divided by an exact power, not multiplied by a rounded one.
template <class T> TAPIR_FORMULA T round_to(T x, bool whole, double power) {
  const double y = std::nearbyint(whole ? double(x) / power : double(x) * power);
  return T(whole ? y * power : y / power);
}
template <class T> TAPIR_FORMULA T hardsigmoid(T x) {
  const T y = x * T(1.0 / 6) + T(0.5);
  return x < T(-3) ? T(0) : x > T(3) ? T(1) : y;
}
template <class T> TAPIR_FORMULA T hardswish(T x) {
  const T y = x + T(3);
  return x * (y < T(0) ? T(0) : y > T(6) ? T(6) : y) * T(1.0 / 6);
}
template <class T> TAPIR_FORMULA T elu(T x, T a, T b, T c) {
  const T y = a * math::expm1(c * x);
  return x > T(0) ? b * x : y;
}
template <class T> TAPIR_FORMULA T softplus(T x, T beta, T limit) {
  const T y = math::softplus(beta * x) / beta;
  return beta * x > limit ? x : y;
}
template <class T> TAPIR_FORMULA T logit(T x, T low, T high) {
  const T y = x < low ? low : x > high ? high : x;
  return math::log(y / (T(1) - y));
}
// The library's function where the angle is too large for ours.
template <class T> TAPIR_FORMULA T sine(T x) {
  if constexpr (sizeof(T) == 4) return math::abs(x) <= math::kMaxAngle ? math::sin(x) : std::sin(x);
  else return std::sin(x);
}
template <class T> TAPIR_FORMULA T cosine(T x) {
  if constexpr (sizeof(T) == 4) return math::abs(x) <= math::kMaxAngle ? math::cos(x) : std::cos(x);
  else return std::cos(x);
}

#define TAPIR_UNARY(OP, FAMILY, COST, ...)                                                            \
  template <> struct Formula<UnaryOp::OP> {                                                           \
    static constexpr Family family = Family::FAMILY;                                                  \
    template <class T> static constexpr int64_t cost = COST;                                          \
    template <class T> TAPIR_FORMULA static auto at(T x, [[maybe_unused]] const UnaryNumbers<T>& p) { \
      return __VA_ARGS__;                                                                             \
    }                                                                                                 \
  };
// clang-format off
TAPIR_UNARY(Neg, All, 1, negative(x))
TAPIR_UNARY(Abs, All, 1, magnitude(x))
TAPIR_UNARY(Sign, All, 1, T(int(x > T(0)) - int(is_below_zero(x))))
TAPIR_UNARY(Square, All, 1, wrap_mul(x, x))
TAPIR_UNARY(Floor, All, 1, floor(x))
TAPIR_UNARY(Ceil, All, 1, ceil(x))
TAPIR_UNARY(Round, All, 1, nearest(x))
TAPIR_UNARY(Trunc, All, 1, trunc(x))
TAPIR_UNARY(Relu, All, 1, is_below_zero(x) ? T(0) : x)
TAPIR_UNARY(Clamp, All, 1, clamped(x, p.a, p.b))
TAPIR_UNARY(Threshold, All, 1, x <= p.a ? p.b : x)

TAPIR_UNARY(BitwiseNot, Integers, 1, std::same_as<T, bool> ? T(!x) : T(~int64_t(x)))
TAPIR_UNARY(PowScalar, Power, kReal<T> ? kFast<T> : 1, power(x, p.a))

TAPIR_UNARY(Sqrt, Floats, 2, std::sqrt(x))
TAPIR_UNARY(Rsqrt, Floats, 2, T(1) / std::sqrt(x))
TAPIR_UNARY(Reciprocal, Floats, 1, T(1) / x)
TAPIR_UNARY(Cube, Floats, 1, x * x * x)
TAPIR_UNARY(InverseSquare, Floats, 2, T(1) / (x * x))
TAPIR_UNARY(Frac, Floats, 1, x - std::trunc(x))
TAPIR_UNARY(RoundTo, Floats, 1, round_to(x, p.a < T(0), p.power))
TAPIR_UNARY(NanToNum, Floats, 1, x != x ? p.a : x == kInfinity<T> ? p.b : x == -kInfinity<T> ? p.c : x)
TAPIR_UNARY(LeakyRelu, Floats, 1, x > T(0) ? x : p.a * x)
TAPIR_UNARY(Hardsigmoid, Floats, 1, hardsigmoid(x))
TAPIR_UNARY(Hardswish, Floats, 1, hardswish(x))
TAPIR_UNARY(Hardshrink, Floats, 1, ((x >= -p.a) & (x <= p.a)) ? T(0) : x)
TAPIR_UNARY(Softshrink, Floats, 1, x > p.a ? x - p.a : x < -p.a ? x + p.a : x * T(0))
TAPIR_UNARY(Softsign, Floats, 1, x / (T(1) + math::abs(x)))

TAPIR_UNARY(Exp, Math, kFast<T>, math::exp(x))
TAPIR_UNARY(Expm1, Math, kFast<T>, math::expm1(x))
TAPIR_UNARY(Exp2, Math, 2 * kFast<T>, math::exp2(x))
TAPIR_UNARY(Log, Math, kFast<T>, math::log(x))
TAPIR_UNARY(Log1p, Math, kFast<T>, math::log1p(x))
TAPIR_UNARY(Log2, Math, 32, std::log2(x))
TAPIR_UNARY(Log10, Math, 32, std::log10(x))
TAPIR_UNARY(Asin, Math, 32, std::asin(x))
TAPIR_UNARY(Acos, Math, 32, std::acos(x))
TAPIR_UNARY(Atan, Math, 32, std::atan(x))
TAPIR_UNARY(Sinh, Math, 32, std::sinh(x))
TAPIR_UNARY(Cosh, Math, 32, std::cosh(x))
TAPIR_UNARY(Asinh, Math, 2 * kFast<T>, math::asinh(x))
TAPIR_UNARY(Acosh, Math, 2 * kFast<T>, math::acosh(x))
TAPIR_UNARY(Atanh, Math, 2 * kFast<T>, math::atanh(x))
TAPIR_UNARY(Erf, Math, 2 * kFast<T>, math::erf(x))
TAPIR_UNARY(Erfc, Math, 2 * kFast<T>, math::erfc(x))
TAPIR_UNARY(Logit, Math, 2 * kFast<T>, logit(x, p.a, p.b))

TAPIR_UNARY(Sin, Angle, kFast<T>, sine(x))
TAPIR_UNARY(Cos, Angle, kFast<T>, cosine(x))
TAPIR_UNARY(Tan, Angle, 32, std::tan(x))

TAPIR_UNARY(Tanh, Activation, kFast<T>, math::tanh(x))
TAPIR_UNARY(Sigmoid, Activation, kFast<T>, math::sigmoid(x))
TAPIR_UNARY(Silu, Activation, kFast<T>, math::silu(x))
TAPIR_UNARY(Gelu, Activation, 2 * kFast<T>, math::gelu(x))
TAPIR_UNARY(GeluTanh, Activation, kFast<T>, math::gelu_tanh(x))
TAPIR_UNARY(Elu, Activation, kFast<T>, elu(x, p.a, p.b, p.c))
TAPIR_UNARY(Softplus, Activation, 2 * kFast<T>, softplus(x, p.a, p.b))
TAPIR_UNARY(Mish, Activation, kFast<T>, x * math::tanh_softplus(x))
TAPIR_UNARY(LogSigmoid, Activation, 2 * kFast<T>, -math::softplus(-x))
TAPIR_UNARY(Tanhshrink, Activation, kFast<T>, x - math::tanh(x))

TAPIR_UNARY(Erfinv, Special, 2 * kFast<T>, math::erfinv(x))
TAPIR_UNARY(Sinc, Special, 2 * kFast<T>, math::sinc(x))
TAPIR_UNARY(Lgamma, Special, 64, math::lgamma(x))
TAPIR_UNARY(Digamma, Special, 64, math::digamma(double(x)))
TAPIR_UNARY(Polygamma, Special, 64, math::polygamma(int(p.a), double(x)))

TAPIR_UNARY(LogicalNot, Test, 1, x == T(0))
TAPIR_UNARY(IsNan, Test, 1, x != x)
TAPIR_UNARY(IsInf, Test, 1, kReal<T> && (x == kInfinity<T> || x == T(-kInfinity<T>)))
TAPIR_UNARY(IsFinite, Test, 1, !kReal<T> || (x < kInfinity<T> && x > T(-kInfinity<T>)))
TAPIR_UNARY(SignBit, Test, 1, has_sign(x))
// clang-format on
#undef TAPIR_UNARY
static_assert(size_t(UnaryOp::GeluTanh) < kMaxOps);

/// Any formula of these families for elements of type T.
template <class T, Family... kFamilies> using AnyUnary = AnyFormula<UnaryOp, T, UnaryNumbers<T>, kFamilies...>;
/// The formula of one operation.
template <UnaryOp kOp, class T> using OneUnary = OneFormula<kOp, T, UnaryNumbers<T>>;

}  // namespace tapir::inline v0::formulas
