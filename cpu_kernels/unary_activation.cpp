#include "../core/dispatch.h"
#include "../core/math.h"
#include "elementwise.h"

namespace tapir::inline v0::cpu {
namespace {

using P = UnaryParams;
template <class T, class Make> LoopKernel map(Make make) { return loop1<T, T, P>(make); }

/// A NaN stays one: every comparison with it fails.
template <class T> LoopKernel pieces(UnaryOp op) {
  switch (op) {
    case UnaryOp::LeakyRelu:
      return map<T>([](const P& p) { return [a = T(p.a)](T x) { return x > T(0) ? x : a * x; }; });
    case UnaryOp::Hardsigmoid:
      return map<T>([](const P&) {
        return [](T x) {
          const T y = x * T(1.0 / 6) + T(0.5);
          return x < T(-3) ? T(0) : x > T(3) ? T(1) : y;
        };
      });
    case UnaryOp::Hardswish:
      return map<T>([](const P&) {
        return [](T x) {
          const T y = x + T(3);
          return x * (y < T(0) ? T(0) : y > T(6) ? T(6) : y) * T(1.0 / 6);
        };
      });
    case UnaryOp::Hardshrink:
      return map<T>([](const P& p) { return [l = T(p.a)](T x) { return ((x >= -l) & (x <= l)) ? T(0) : x; }; });
    case UnaryOp::Softshrink:
      return map<T>([](const P& p) { return [l = T(p.a)](T x) { return x > l ? x - l : x < -l ? x + l : x * T(0); }; });
    case UnaryOp::Softsign: return map<T>([](const P&) { return [](T x) { return x / (T(1) + math::abs(x)); }; });
    default: return nullptr;
  }
}
template <class T> LoopKernel smooth(UnaryOp op, double a) {
  switch (op) {
    case UnaryOp::Tanh: return map<T>([](const P&) { return [](T x) { return math::tanh(x); }; });
    case UnaryOp::Sigmoid: return map<T>([](const P&) { return [](T x) { return math::sigmoid(x); }; });
    case UnaryOp::Silu: return map<T>([](const P&) { return [](T x) { return math::silu(x); }; });
    case UnaryOp::Gelu:
      if (a != 0) return map<T>([](const P&) { return [](T x) { return math::gelu_tanh(x); }; });
      return map<T>([](const P&) { return [](T x) { return math::gelu(x); }; });
    case UnaryOp::Elu:
      return map<T>([](const P& p) {
        return [a = T(p.a), b = T(p.b), c = T(p.c)](T x) {
          const T y = a * math::expm1(c * x);
          return x > T(0) ? b * x : y;
        };
      });
    case UnaryOp::Softplus:
      return map<T>([](const P& p) {
        return [beta = T(p.a), limit = T(p.b)](T x) {
          const T y = math::softplus(beta * x) / beta;
          return beta * x > limit ? x : y;
        };
      });
    case UnaryOp::Mish: return map<T>([](const P&) { return [](T x) { return x * math::tanh_softplus(x); }; });
    case UnaryOp::LogSigmoid: return map<T>([](const P&) { return [](T x) { return -math::softplus(-x); }; });
    case UnaryOp::Tanhshrink: return map<T>([](const P&) { return [](T x) { return x - math::tanh(x); }; });
    default: return nullptr;
  }
}

}  // namespace

Choice unary_activation(UnaryOp op, DType type, double a) {
  if (!is_floating(type)) return {};
  return for_floats("unary", type, [&]<class T>() -> Choice {
    if (const LoopKernel k = pieces<T>(op)) return {k, 1};
    return {smooth<T>(op, a), std::same_as<T, float> ? 4 : 32};
  });
}

}  // namespace tapir::inline v0::cpu
