#include "../core/dispatch.h"
#include "../core/math_special.h"
#include "elementwise.h"

namespace tapir::inline v0::cpu {
namespace {

using P = UnaryParams;
template <class T, class Make> LoopKernel map(Make make) { return loop1<T, T, P>(make); }

/// What vectorises in float.
template <class T> LoopKernel fast(UnaryOp op) {
  switch (op) {
    case UnaryOp::Exp2: return map<T>([](const P&) { return [](T x) { return math::exp2(x); }; });
    case UnaryOp::Asinh: return map<T>([](const P&) { return [](T x) { return math::asinh(x); }; });
    case UnaryOp::Acosh: return map<T>([](const P&) { return [](T x) { return math::acosh(x); }; });
    case UnaryOp::Atanh: return map<T>([](const P&) { return [](T x) { return math::atanh(x); }; });
    case UnaryOp::Erfc: return map<T>([](const P&) { return [](T x) { return math::erfc(x); }; });
    case UnaryOp::Erfinv: return map<T>([](const P&) { return [](T x) { return math::erfinv(x); }; });
    case UnaryOp::Sinc: return map<T>([](const P&) { return [](T x) { return math::sinc(x); }; });
    case UnaryOp::Logit:
      return map<T>([](const P& p) {
        const bool clamps = p.a >= 0;
        const T low = clamps ? T(p.a) : T(-INFINITY), high = clamps ? T(1 - p.a) : T(INFINITY);
        return [low, high](T x) {
          const T y = x < low ? low : x > high ? high : x;
          return math::log(y / (T(1) - y));
        };
      });
    default: return nullptr;
  }
}
template <class T> LoopKernel slow(UnaryOp op) {
  switch (op) {
    case UnaryOp::Lgamma: return map<T>([](const P&) { return [](T x) { return math::lgamma(x); }; });
    case UnaryOp::Digamma: return map<T>([](const P&) { return [](T x) { return math::digamma(double(x)); }; });
    case UnaryOp::Polygamma:
      return map<T>([](const P& p) { return [n = int(p.a)](T x) { return math::polygamma(n, double(x)); }; });
    default: return nullptr;
  }
}

}  // namespace

Choice unary_special(UnaryOp op, DType type) {
  if (!is_floating(type)) return {};
  return for_floats("unary", type, [&]<class T>() -> Choice {
    if (const LoopKernel k = fast<T>(op)) return {k, std::same_as<T, float> ? 8 : 32};
    return {slow<T>(op), 64};
  });
}

}  // namespace tapir::inline v0::cpu
