#include "../core/math.h"
#include "dispatch.h"
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
    default: return nullptr;
  }
}
template <class T> LoopKernel costly(BinaryOp op, const P& p) {
  if (op == BinaryOp::SiluGrad)
    return map<T>([](const P&) { return [](T g, T x) { return g * math::silu_slope(x); }; });
  if (op != BinaryOp::GeluGrad) return nullptr;
  if (p.alpha.to_bool()) return map<T>([](const P&) { return [](T g, T x) { return g * math::gelu_tanh_slope(x); }; });
  return map<T>([](const P&) { return [](T g, T x) { return g * math::gelu_slope(x); }; });
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
