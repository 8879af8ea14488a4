#include "../core/dispatch.h"
#include "../core/math.h"
#include "elementwise.h"
#include "kernels.h"

namespace tapir::inline v0::cpu {
namespace {

using P = TernaryParams;
template <class T, class Make> LoopKernel map(Make make) { return loop3<T, T, T, T, P>(make); }

template <class T> LoopKernel of_floats(TernaryOp op) {
  switch (op) {
    case TernaryOp::AddCDiv:
      return map<T>([](const P& p) { return [k = cast<T>(p.alpha)](T a, T b, T c) { return a + k * (b / c); }; });
    case TernaryOp::Lerp:  // from the nearer end, so that c = 1 gives b exactly
      return map<T>([](const P&) {
        return [](T a, T b, T c) { return (c < T(0) ? -c : c) < T(0.5) ? a + c * (b - a) : b - (b - a) * (T(1) - c); };
      });
    case TernaryOp::Prelu: return map<T>([](const P&) { return [](T a, T b, T c) { return b > T(0) ? a : c * a; }; });
    case TernaryOp::GluGrad:
      return map<T>([](const P&) {
        return [](T a, T b, T c) {
          const T s = math::sigmoid(c);
          return a * b * (s * (T(1) - s));
        };
      });
    default: return nullptr;
  }
}

template <class T> LoopKernel any_type(TernaryOp op) {
  switch (op) {
    case TernaryOp::Where:
      return loop3<T, bool, T, T, P>([](const P&) { return [](bool a, T b, T c) { return a ? b : c; }; });
    case TernaryOp::AddCMul:
      return map<T>([](const P& p) {
        return [k = cast<T>(p.alpha)](T a, T b, T c) { return wrap_add(a, wrap_mul(k, wrap_mul(b, c))); };
      });
    case TernaryOp::Clamp:
      return map<T>([](const P&) {
        return [](T x, T low, T high) {
          const T y = x > low || x != x ? x : low;
          return y < high || y != y ? y : high;
        };
      });
    default: return nullptr;
  }
}

}  // namespace

void ternary(Context&, V out, V a, V b, V c, const TernaryParams& p) {
  const bool where = p.op == TernaryOp::Where;
  const DType common = b.dtype == c.dtype ? b.dtype : promote_types(b.dtype, c.dtype);
  const DType type = compute_type(where || a.dtype == common ? common : promote_types(a.dtype, common));
  const Choice choice = for_compute("ternary", type, [&]<class T>() -> Choice {
    if constexpr (std::floating_point<T>)
      if (const LoopKernel k = of_floats<T>(p.op)) return {k, 2};
    return {any_type<T>(p.op), 1};
  });
  if (!choice.kernel) fail_dtype("ternary", type);
  const DType types[] = {type, where ? kBool : type, type, type};
  const TensorView* const views[] = {&out, &a, &b, &c};
  pointwise(views, types, choice.kernel, &p, choice.cost);
}

}  // namespace tapir::inline v0::cpu
