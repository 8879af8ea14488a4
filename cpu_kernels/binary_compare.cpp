#include <limits>

#include "../core/dispatch.h"
#include "../core/math.h"
#include "elementwise.h"

namespace tapir::inline v0::cpu {
namespace {

using P = BinaryParams;

template <class T> LoopKernel compare(BinaryOp op) {
  const auto map = [](auto make) { return loop2<bool, T, T, P>(make); };
  switch (op) {
    case BinaryOp::Eq: return map([](const P&) { return [](T a, T b) { return a == b; }; });
    case BinaryOp::Ne: return map([](const P&) { return [](T a, T b) { return a != b; }; });
    case BinaryOp::Lt: return map([](const P&) { return [](T a, T b) { return a < b; }; });
    case BinaryOp::Le: return map([](const P&) { return [](T a, T b) { return a <= b; }; });
    case BinaryOp::Gt: return map([](const P&) { return [](T a, T b) { return a > b; }; });
    case BinaryOp::Ge: return map([](const P&) { return [](T a, T b) { return a >= b; }; });
    case BinaryOp::LogicalAnd: return map([](const P&) { return [](T a, T b) { return (a != T(0)) & (b != T(0)); }; });
    case BinaryOp::LogicalOr: return map([](const P&) { return [](T a, T b) { return (a != T(0)) | (b != T(0)); }; });
    case BinaryOp::LogicalXor: return map([](const P&) { return [](T a, T b) { return (a != T(0)) != (b != T(0)); }; });
    case BinaryOp::IsClose:
      return map([](const P& p) {
        using F = std::conditional_t<std::floating_point<T>, T, double>;
        return [r = F(p.alpha.to_double()), t = F(p.beta.to_double()), nans = p.gamma.to_bool()](T a, T b) {
          const F distance = math::abs(F(a) - F(b)), allowed = t + math::abs(r * F(b));
          return (a == b) | ((distance < std::numeric_limits<F>::infinity()) & (distance <= allowed)) |
                 (nans & (a != a) & (b != b));
        };
      });
    default: return nullptr;
  }
}

/// a moved by b bits, with zeros or, to the right, the sign following; b outside [0, bits) moves all of them.
template <class T, bool kLeft> constexpr T shifted(T a, T b) {
  constexpr int bits = 8 * int(sizeof(T));
  const bool fits = b >= T(0) && int64_t(b) < bits;
  const int n = fits ? int(b) : kLeft ? 0 : bits - 1;
  if constexpr (kLeft) return fits ? T(Wide<T>(a) << n) : T(0);
  else return fits || std::is_signed_v<T> ? T(a >> n) : T(0);
}

template <class T> LoopKernel bitwise(BinaryOp op) {
  const auto map = [](auto make) { return loop2<T, T, T, P>(make); };
  switch (op) {
    case BinaryOp::BitwiseAnd: return map([](const P&) { return [](T a, T b) { return T(a & b); }; });
    case BinaryOp::BitwiseOr: return map([](const P&) { return [](T a, T b) { return T(a | b); }; });
    case BinaryOp::BitwiseXor: return map([](const P&) { return [](T a, T b) { return T(a ^ b); }; });
    default: break;
  }
  if constexpr (!std::same_as<T, bool>) {
    if (op == BinaryOp::ShiftLeft) return map([](const P&) { return [](T a, T b) { return shifted<T, true>(a, b); }; });
    if (op == BinaryOp::ShiftRight)
      return map([](const P&) { return [](T a, T b) { return shifted<T, false>(a, b); }; });
  }
  return nullptr;
}

}  // namespace

Choice binary_compare(BinaryOp op, DType type) {
  return for_compute("binary", type, [&]<class T>() -> Choice { return {compare<T>(op), 1}; });
}
Choice binary_bitwise(BinaryOp op, DType type) {
  if (is_floating(type)) return {};
  return for_integers("binary", type, [&]<class T>() -> Choice { return {bitwise<T>(op), 1}; });
}

}  // namespace tapir::inline v0::cpu
