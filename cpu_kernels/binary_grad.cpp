#include "../core/dispatch.h"
#include "../core/math_special.h"
#include "elementwise.h"

namespace tapir::inline v0::cpu {
namespace {

using P = BinaryParams;
template <class T, class Make> LoopKernel map(Make make) { return loop2<T, T, T, P>(make); }

// Where a gradient is cut it is 0, whatever g is: a select, not a product.
template <class T> LoopKernel cheap(BinaryOp op) {
  switch (op) {
    case BinaryOp::ReluGrad: return map<T>([](const P&) { return [](T g, T y) { return y > T(0) ? g : T(0); }; });
    case BinaryOp::SigmoidGrad: return map<T>([](const P&) { return [](T g, T y) { return g * y * (T(1) - y); }; });
    case BinaryOp::TanhGrad: return map<T>([](const P&) { return [](T g, T y) { return g * (T(1) - y * y); }; });
    case BinaryOp::LeakyReluGrad:
      return map<T>([](const P& p) { return [k = cast<T>(p.alpha)](T g, T x) { return x > T(0) ? g : k * g; }; });
    case BinaryOp::ClampGrad:
      return map<T>([](const P& p) {
        return [low = cast<T>(p.alpha), high = cast<T>(p.beta)](T g, T x) {
          return ((x >= low) & (x <= high)) ? g : T(0);
        };
      });
    case BinaryOp::HardtanhGrad:
      return map<T>([](const P& p) {
        return [low = cast<T>(p.alpha), high = cast<T>(p.beta)](T g, T x) {
          return ((x <= low) | (x >= high)) ? T(0) : g;
        };
      });
    case BinaryOp::HardswishGrad:
      return map<T>([](const P&) {
        return [](T g, T x) {
          const T y = g * (x * T(1.0 / 3) + T(0.5));
          return x <= T(-3) ? T(0) : x < T(3) ? y : g;
        };
      });
    case BinaryOp::HardsigmoidGrad:  // a sixth in single precision for every dtype, as in PyTorch
      return map<T>(
          [](const P&) { return [](T g, T x) { return ((x > T(-3)) & (x < T(3))) ? g * T(1.0f / 6) : T(0); }; });
    case BinaryOp::SoftsignGrad:
      return map<T>([](const P&) {
        return [](T g, T x) {
          const T d = T(1) + math::abs(x);
          return g / (d * d);
        };
      });
    case BinaryOp::ShrinkGrad:
      return map<T>(
          [](const P& p) { return [l = cast<T>(p.alpha)](T g, T x) { return ((x >= -l) & (x <= l)) ? T(0) : g; }; });
    case BinaryOp::ThresholdGrad:
      return map<T>([](const P& p) { return [l = cast<T>(p.alpha)](T g, T x) { return x <= l ? T(0) : g; }; });
    default: return nullptr;
  }
}
template <class T> LoopKernel costly(BinaryOp op, const P& p) {
  switch (op) {
    case BinaryOp::SiluGrad: return map<T>([](const P&) { return [](T g, T x) { return g * math::silu_slope(x); }; });
    case BinaryOp::GeluGrad:
      if (p.alpha.to_bool())
        return map<T>([](const P&) { return [](T g, T x) { return g * math::gelu_tanh_slope(x); }; });
      return map<T>([](const P&) { return [](T g, T x) { return g * math::gelu_slope(x); }; });
    case BinaryOp::EluGrad:
      return map<T>([](const P& p) {
        return [a = T(p.alpha.to_double() * p.gamma.to_double()), b = cast<T>(p.beta), c = cast<T>(p.gamma)](T g, T x) {
          const T y = g * (a * math::exp(c * x));
          return x > T(0) ? g * b : y;
        };
      });
    case BinaryOp::SoftplusGrad:
      return map<T>([](const P& p) {
        return [beta = cast<T>(p.alpha), limit = cast<T>(p.beta)](T g, T x) {
          const T y = g * math::sigmoid(beta * x);
          return beta * x > limit ? g : y;
        };
      });
    case BinaryOp::MishGrad: return map<T>([](const P&) { return [](T g, T x) { return g * math::mish_slope(x); }; });
    case BinaryOp::LogSigmoidGrad:
      return map<T>([](const P&) { return [](T g, T x) { return g * math::sigmoid(-x); }; });
    case BinaryOp::TanhshrinkGrad:
      return map<T>([](const P&) {
        return [](T g, T x) {
          const T t = math::tanh(x);
          return g * (t * t);
        };
      });
    case BinaryOp::SincGrad:
      return map<T>([](const P&) { return [](T g, T x) { return T(double(g) * math::sinc_slope(double(x))); }; });
    default: return nullptr;
  }
}

}  // namespace

Choice binary_grad(BinaryOp op, DType type, const BinaryParams& p) {
  if (!is_floating(type)) return {};
  return for_floats("binary", type, [&]<class T>() -> Choice {
    if (const LoopKernel k = cheap<T>(op)) return {k, 1};
    return {costly<T>(op, p), std::same_as<T, float> ? 4 : 32};
  });
}

}  // namespace tapir::inline v0::cpu
