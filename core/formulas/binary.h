#pragma once
// The formulas of two operands: see Note [Formulas].
#include "../arithmetic.h"
#include "../convert.h"
#include "../math_special.h"
#include "../params.h"
#include "formula.h"

namespace tapir::inline v0::formulas {

/// alpha, beta and gamma of BinaryParams in the type of the elements.
template <class T> struct BinaryNumbers {
  T alpha, beta, gamma;
  std::conditional_t<kReal<T>, T, double> rtol, atol;  // IsClose
};

template <class T> TAPIR_FORMULA BinaryNumbers<T> numbers(BinaryOp op, const BinaryParams& p) {
  using F = std::conditional_t<kReal<T>, T, double>;
  BinaryNumbers<T> n{cast<T>(p.alpha), cast<T>(p.beta), cast<T>(p.gamma), F(0), F(0)};
  if (op == BinaryOp::IsClose)
    n.rtol = F(p.alpha.to_double()), n.atol = F(p.beta.to_double()), n.gamma = T(p.gamma.to_bool());
  if (op == BinaryOp::EluGrad) n.alpha = cast<T>(p.alpha.to_double() * p.gamma.to_double());
  return n;
}

/// The operation whose formula computes this call.
inline BinaryOp form_of(const BinaryParams& p) {
  return p.op == BinaryOp::GeluGrad && p.alpha.to_bool() ? BinaryOp::GeluTanhGrad : p.op;
}

template <class T> TAPIR_FORMULA T logaddexp2(T a, T b) {
  const T high = a > b ? a : b, low = a > b ? b : a;
  const T y = high + math::log1p_unit(math::exp2(low - high)) / T(0.69314718055994530942);
  return a == b && a - a != T(0) ? a : y;
}
template <class T> TAPIR_FORMULA T xlogy(T a, T b) {
  const T y = a * math::log(b);
  return b != b ? b : a == T(0) ? T(0) : y;
}
template <class T> TAPIR_FORMULA bool is_close(T a, T b, const BinaryNumbers<T>& p) {
  using F = std::conditional_t<kReal<T>, T, double>;
  const F distance = math::abs(F(a) - F(b)), allowed = p.atol + math::abs(p.rtol * F(b));
  return (a == b) | ((distance < kInfinity<F>)&(distance <= allowed)) | ((p.gamma != T(0)) & (a != a) & (b != b));
}
// Gradients. Where one is cut it is 0, whatever g is: a select, not a product.
template <class T> TAPIR_FORMULA T hardswish_grad(T g, T x) {
  const T y = g * (x * T(1.0 / 3) + T(0.5));
  return x <= T(-3) ? T(0) : x < T(3) ? y : g;
}
template <class T> TAPIR_FORMULA T softsign_grad(T g, T x) {
  const T d = T(1) + math::abs(x);
  return g / (d * d);
}
/// None at the bounds themselves, as in PyTorch; an infinite bound is none.
template <class T> TAPIR_FORMULA T clamp_grad(T g, T x, T low, T high) {
  const bool inside = (x >= low) & (x <= high), apart = (x != low) & (x != high);
  return inside & (apart | (x - x != T(0))) ? g : T(0);
}
template <class T> TAPIR_FORMULA T elu_grad(T g, T x, const BinaryNumbers<T>& p) {
  const T y = g * (p.alpha * math::exp(p.gamma * x));
  return x <= T(0) ? y : g * p.beta;
}
template <class T> TAPIR_FORMULA T softplus_grad(T g, T x, T beta, T limit) {
  const T y = g * math::sigmoid(beta * x);
  return beta * x > limit ? g : y;
}
template <class T> TAPIR_FORMULA T tanhshrink_grad(T g, T x) {
  const T t = math::tanh(x);
  return g * (t * t);
}

#define TAPIR_BINARY(OP, FAMILY, COST, A, B, ...)                                                           \
  template <> struct Formula<BinaryOp::OP> {                                                                \
    static constexpr Family family = Family::FAMILY;                                                        \
    template <class T> static constexpr int64_t cost = COST;                                                \
    template <class T> TAPIR_FORMULA static auto at(T A, T B, [[maybe_unused]] const BinaryNumbers<T>& p) { \
      return __VA_ARGS__;                                                                                   \
    }                                                                                                       \
  };
// clang-format off
TAPIR_BINARY(Add, All, 1, a, b, wrap_add(a, wrap_mul(p.alpha, b)))
TAPIR_BINARY(Sub, All, 1, a, b, wrap_sub(a, wrap_mul(p.alpha, b)))
TAPIR_BINARY(Mul, All, 1, a, b, wrap_mul(a, b))
TAPIR_BINARY(Maximum, All, 1, a, b, a > b || a != a ? a : b)
TAPIR_BINARY(Minimum, All, 1, a, b, a < b || a != a ? a : b)
TAPIR_BINARY(Fmax, All, 1, a, b, a > b || b != b ? a : b)
TAPIR_BINARY(Fmin, All, 1, a, b, a < b || b != b ? a : b)
TAPIR_BINARY(Heaviside, All, 1, a, b, a == T(0) ? b : T(a > T(0)))

TAPIR_BINARY(TruncDiv, Division, kReal<T> ? 2 : 16, a, b, trunc_quotient(a, b))
TAPIR_BINARY(FloorDiv, Division, kReal<T> ? 32 : 16, a, b, floor_quotient(a, b))
TAPIR_BINARY(Fmod, Division, kReal<T> ? 32 : 16, a, b, trunc_rest(a, b))
TAPIR_BINARY(Remainder, Division, kReal<T> ? 32 : 16, a, b, floor_rest(a, b))
TAPIR_BINARY(Pow, Power, kReal<T> ? kFast<T> : 16, a, b, power(a, b))

TAPIR_BINARY(Div, Floats, 2, a, b, a / b)
TAPIR_BINARY(Copysign, Floats, 1, a, b, std::copysign(a, b))
TAPIR_BINARY(Atan2, Math, 32, a, b, std::atan2(a, b))
TAPIR_BINARY(Hypot, Math, kFast<T>, a, b, math::hypot(a, b))
TAPIR_BINARY(LogAddExp, Math, 2 * kFast<T>, a, b, math::logaddexp(a, b))
TAPIR_BINARY(LogAddExp2, Math, 2 * kFast<T>, a, b, logaddexp2(a, b))
TAPIR_BINARY(XLogY, Math, kFast<T>, a, b, xlogy(a, b))
TAPIR_BINARY(Glu, Math, kFast<T>, a, b, a * math::sigmoid(b))

TAPIR_BINARY(BitwiseAnd, Bitwise, 1, a, b, T(a & b))
TAPIR_BINARY(BitwiseOr, Bitwise, 1, a, b, T(a | b))
TAPIR_BINARY(BitwiseXor, Bitwise, 1, a, b, T(a ^ b))
TAPIR_BINARY(ShiftLeft, Shift, 1, a, b, shift_left(a, b))
TAPIR_BINARY(ShiftRight, Shift, 1, a, b, shift_right(a, b))

TAPIR_BINARY(Eq, Compare, 1, a, b, a == b)
TAPIR_BINARY(Ne, Compare, 1, a, b, a != b)
TAPIR_BINARY(Lt, Compare, 1, a, b, a < b)
TAPIR_BINARY(Le, Compare, 1, a, b, a <= b)
TAPIR_BINARY(Gt, Compare, 1, a, b, a > b)
TAPIR_BINARY(Ge, Compare, 1, a, b, a >= b)
TAPIR_BINARY(LogicalAnd, Compare, 1, a, b, (a != T(0)) & (b != T(0)))
TAPIR_BINARY(LogicalOr, Compare, 1, a, b, (a != T(0)) | (b != T(0)))
TAPIR_BINARY(LogicalXor, Compare, 1, a, b, (a != T(0)) != (b != T(0)))
TAPIR_BINARY(IsClose, Compare, 1, a, b, is_close(a, b, p))

TAPIR_BINARY(ReluGrad, Floats, 1, g, y, y > T(0) ? g : T(0))
TAPIR_BINARY(SigmoidGrad, Floats, 1, g, y, g * y * (T(1) - y))
TAPIR_BINARY(TanhGrad, Floats, 1, g, y, g * (T(1) - y * y))
TAPIR_BINARY(LeakyReluGrad, Floats, 1, g, x, x > T(0) ? g : p.alpha * g)
TAPIR_BINARY(ClampGrad, Floats, 1, g, x, clamp_grad(g, x, p.alpha, p.beta))
TAPIR_BINARY(HardtanhGrad, Floats, 1, g, x, ((x <= p.alpha) | (x >= p.beta)) ? T(0) : g)
TAPIR_BINARY(HardswishGrad, Floats, 1, g, x, hardswish_grad(g, x))
// A sixth in single precision for every dtype, as in PyTorch.
TAPIR_BINARY(HardsigmoidGrad, Floats, 1, g, x, ((x > T(-3)) & (x < T(3))) ? g * T(1.0f / 6) : T(0))
TAPIR_BINARY(SoftsignGrad, Floats, 1, g, x, softsign_grad(g, x))
TAPIR_BINARY(ShrinkGrad, Floats, 1, g, x, ((x >= -p.alpha) & (x <= p.alpha)) ? T(0) : g)
TAPIR_BINARY(ThresholdGrad, Floats, 1, g, x, x <= p.alpha ? T(0) : g)
TAPIR_BINARY(SiluGrad, Gradient, kFast<T>, g, x, g * math::silu_slope(x))
TAPIR_BINARY(GeluGrad, Gradient, 2 * kFast<T>, g, x, g * math::gelu_slope(x))
TAPIR_BINARY(GeluTanhGrad, Gradient, kFast<T>, g, x, g * math::gelu_tanh_slope(x))
TAPIR_BINARY(EluGrad, Gradient, kFast<T>, g, x, elu_grad(g, x, p))
TAPIR_BINARY(SoftplusGrad, Gradient, kFast<T>, g, x, softplus_grad(g, x, p.alpha, p.beta))
TAPIR_BINARY(MishGrad, Gradient, kFast<T>, g, x, g * math::mish_slope(x))
TAPIR_BINARY(LogSigmoidGrad, Gradient, kFast<T>, g, x, g * math::sigmoid(-x))
TAPIR_BINARY(TanhshrinkGrad, Gradient, kFast<T>, g, x, tanhshrink_grad(g, x))
TAPIR_BINARY(SincGrad, Special, kFast<T>, g, x, T(double(g) * math::sinc_slope(double(x))))
// clang-format on
#undef TAPIR_BINARY
static_assert(size_t(BinaryOp::GeluTanhGrad) < kMaxOps);

/// Any formula of these families for elements of type T.
template <class T, Family... kFamilies> using AnyBinary = AnyFormula<BinaryOp, T, BinaryNumbers<T>, kFamilies...>;
/// The formula of one operation.
template <BinaryOp kOp, class T> using OneBinary = OneFormula<kOp, T, BinaryNumbers<T>>;

}  // namespace tapir::inline v0::formulas
