#include "../core/dispatch.h"
#include "elementwise.h"

namespace tapir::inline v0::cpu {
namespace {

using P = BinaryParams;
template <class T, class Make> LoopKernel map(Make make) { return loop2<T, T, T, P>(make); }

template <class T> LoopKernel any_type(BinaryOp op) {
  switch (op) {
    case BinaryOp::Add:
      return map<T>(
          [](const P& p) { return [k = cast<T>(p.alpha)](T a, T b) { return wrap_add(a, wrap_mul(k, b)); }; });
    case BinaryOp::Sub:
      return map<T>(
          [](const P& p) { return [k = cast<T>(p.alpha)](T a, T b) { return wrap_sub(a, wrap_mul(k, b)); }; });
    case BinaryOp::Mul: return map<T>([](const P&) { return [](T a, T b) { return wrap_mul(a, b); }; });
    // A NaN wins in Maximum and Minimum, and loses in Fmax and Fmin.
    case BinaryOp::Maximum: return map<T>([](const P&) { return [](T a, T b) { return a > b || a != a ? a : b; }; });
    case BinaryOp::Minimum: return map<T>([](const P&) { return [](T a, T b) { return a < b || a != a ? a : b; }; });
    case BinaryOp::Fmax: return map<T>([](const P&) { return [](T a, T b) { return a > b || b != b ? a : b; }; });
    case BinaryOp::Fmin: return map<T>([](const P&) { return [](T a, T b) { return a < b || b != b ? a : b; }; });
    case BinaryOp::Heaviside:
      return map<T>([](const P&) { return [](T a, T b) { return a == T(0) ? b : T(a > T(0)); }; });
    default: return nullptr;
  }
}

}  // namespace

Choice binary_arithmetic(BinaryOp op, DType type) {
  return for_compute("binary", type, [&]<class T>() -> Choice {
    if constexpr (std::floating_point<T>)
      if (op == BinaryOp::Div) return {map<T>([](const P&) { return [](T a, T b) { return a / b; }; }), 2};
    return {any_type<T>(op), 1};
  });
}

}  // namespace tapir::inline v0::cpu
