#include <cmath>

#include "../core/dispatch.h"
#include "elementwise.h"

namespace tapir::inline v0::cpu {
namespace {

using P = BinaryParams;
template <class T, class Make> LoopKernel map(Make make) { return loop2<T, T, T, P>(make); }

// Integers. A divisor of 0 is reported by binary() and gives 0 here; the least value divided by -1 wraps.
template <class T> constexpr T quotient(T a, T b) {
  if (b == T(0)) return 0;
  if constexpr (std::is_signed_v<T>)
    if (b == T(-1)) return wrap_sub(T(0), a);
  return T(a / b);
}
template <class T> constexpr T rest(T a, T b) { return wrap_sub(a, wrap_mul(quotient(a, b), b)); }

/// Rounded towards minus infinity.
template <class T> constexpr T floor_quotient(T a, T b) {
  const T r = b == T(0) ? T(0) : rest(a, b);
  return T(quotient(a, b) - (r != T(0) && (r < T(0)) != (b < T(0))));
}
/// Has the divisor's sign.
template <class T> constexpr T floor_rest(T a, T b) {
  if (b == T(0)) return 0;
  const T r = rest(a, b);
  return r != T(0) && (r < T(0)) != (b < T(0)) ? wrap_add(r, b) : r;
}

// Floats: Python's rules.
template <class T> T float_rest(T a, T b) {
  const T r = std::fmod(a, b);
  return r != T(0) && (r < T(0)) != (b < T(0)) ? r + b : r;
}
template <class T> T float_floor_quotient(T a, T b) {
  if (b == T(0)) return a / b;
  const T r = std::fmod(a, b);
  T q = (a - r) / b;
  if (r != T(0) && (r < T(0)) != (b < T(0))) q -= 1;
  if (q == T(0)) return std::copysign(T(0), a / b);
  const T whole = std::floor(q);  // q is a whole number but for its rounding
  return q - whole > T(0.5) ? whole + 1 : whole;
}

template <class T> LoopKernel of_integers(BinaryOp op) {
  switch (op) {
    case BinaryOp::TruncDiv: return map<T>([](const P&) { return [](T a, T b) { return quotient(a, b); }; });
    case BinaryOp::FloorDiv: return map<T>([](const P&) { return [](T a, T b) { return floor_quotient(a, b); }; });
    case BinaryOp::Remainder: return map<T>([](const P&) { return [](T a, T b) { return floor_rest(a, b); }; });
    case BinaryOp::Fmod: return map<T>([](const P&) { return [](T a, T b) { return b == T(0) ? T(0) : rest(a, b); }; });
    case BinaryOp::Pow: return map<T>([](const P&) { return [](T a, T b) { return integer_pow(a, b); }; });
    default: return nullptr;
  }
}
template <class T> LoopKernel of_floats(BinaryOp op) {
  switch (op) {
    case BinaryOp::TruncDiv: return map<T>([](const P&) { return [](T a, T b) { return std::trunc(a / b); }; });
    case BinaryOp::FloorDiv:
      return map<T>([](const P&) { return [](T a, T b) { return float_floor_quotient(a, b); }; });
    case BinaryOp::Remainder: return map<T>([](const P&) { return [](T a, T b) { return float_rest(a, b); }; });
    case BinaryOp::Fmod: return map<T>([](const P&) { return [](T a, T b) { return std::fmod(a, b); }; });
    case BinaryOp::Pow: return map<T>([](const P&) { return [](T a, T b) { return std::pow(a, b); }; });
    case BinaryOp::Atan2: return map<T>([](const P&) { return [](T a, T b) { return std::atan2(a, b); }; });
    default: return nullptr;
  }
}

}  // namespace

Choice binary_division(BinaryOp op, DType type) {
  return for_compute("binary", type, [&]<class T>() -> Choice {
    if constexpr (std::floating_point<T>) return {of_floats<T>(op), op == BinaryOp::TruncDiv ? 2 : 32};
    else return {of_integers<T>(op), 16};
  });
}

}  // namespace tapir::inline v0::cpu
