#pragma once
// The formulas of three operands: see Note [Formulas].
#include "../arithmetic.h"
#include "../convert.h"
#include "../params.h"
#include "formula.h"

namespace tapir::inline v0::formulas {

/// alpha of TernaryParams in the type of the elements.
template <class T> struct TernaryNumbers { T alpha; };
template <class T> TAPIR_FORMULA TernaryNumbers<T> numbers(TernaryOp, const TernaryParams& p) {
  return {cast<T>(p.alpha)};
}

/// From the nearer end, so that c = 1 gives b exactly.
template <class T> TAPIR_FORMULA T lerp(T a, T b, T c) {
  return (c < T(0) ? -c : c) < T(0.5) ? a + c * (b - a) : b - (b - a) * (T(1) - c);
}
/// min(max(x, low), high); a NaN wins.
template <class T> TAPIR_FORMULA T clamped_between(T x, T low, T high) {
  const T y = x > low || x != x ? x : low;
  return y < high || y != y ? y : high;
}
template <class T> TAPIR_FORMULA T glu_grad(T a, T b, T c) {
  const T s = math::sigmoid(c);
  return a * b * (s * (T(1) - s));
}

#define TAPIR_TERNARY(OP, FAMILY, COST, ...)                                                \
  template <> struct Formula<TernaryOp::OP> {                                               \
    static constexpr Family family = Family::FAMILY;                                        \
    template <class T> static constexpr int64_t cost = COST;                                \
    template <class A, class T>                                                             \
    TAPIR_FORMULA static T at(A a, T b, T c, [[maybe_unused]] const TernaryNumbers<T>& p) { \
      return __VA_ARGS__;                                                                   \
    }                                                                                       \
  };
// clang-format off
TAPIR_TERNARY(Where, Select, 1, a ? b : c)
TAPIR_TERNARY(AddCMul, All, 1, wrap_add(a, wrap_mul(p.alpha, wrap_mul(b, c))))
TAPIR_TERNARY(Clamp, All, 1, clamped_between(a, b, c))
TAPIR_TERNARY(AddCDiv, Floats, 2, a + p.alpha * (b / c))
TAPIR_TERNARY(Lerp, Floats, 2, lerp(a, b, c))
TAPIR_TERNARY(Prelu, Floats, 2, b > T(0) ? a : c * a)
TAPIR_TERNARY(GluGrad, Floats, 2, glu_grad(a, b, c))
// clang-format on
#undef TAPIR_TERNARY

/// Any formula of these families for elements of type T.
template <class T, Family... kFamilies> using AnyTernary = AnyFormula<TernaryOp, T, TernaryNumbers<T>, kFamilies...>;
/// The formula of one operation.
template <TernaryOp kOp, class T> using OneTernary = OneFormula<kOp, T, TernaryNumbers<T>>;

}  // namespace tapir::inline v0::formulas
