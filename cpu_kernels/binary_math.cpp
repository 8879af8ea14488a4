#include <cmath>
#include <limits>

#include "../core/dispatch.h"
#include "../core/math.h"
#include "elementwise.h"

namespace tapir::inline v0::cpu {
namespace {

using P = BinaryParams;
template <class T, class Make> LoopKernel map(Make make) { return loop2<T, T, T, P>(make); }

/// sqrt(a^2 + b^2) without overflow; an infinity wins over a NaN. The squares of floats are exact in double.
inline float hypotenuse(float a, float b) {
  const float y = float(std::sqrt(double(a) * double(a) + double(b) * double(b)));
  return math::abs(a) == math::kInf || math::abs(b) == math::kInf ? math::kInf : y;
}
inline double hypotenuse(double a, double b) { return std::hypot(a, b); }

template <class T> LoopKernel functions(BinaryOp op) {
  constexpr T ln2 = T(0.69314718055994530942);
  switch (op) {
    case BinaryOp::Hypot: return map<T>([](const P&) { return [](T a, T b) { return hypotenuse(a, b); }; });
    case BinaryOp::LogAddExp: return map<T>([](const P&) { return [](T a, T b) { return math::logaddexp(a, b); }; });
    case BinaryOp::LogAddExp2:
      return map<T>([](const P&) {
        return [](T a, T b) {
          const T high = a > b ? a : b, low = a > b ? b : a;
          const T y = high + math::log1p(math::exp2(low - high)) / ln2;
          return a == b && a - a != T(0) ? a : y;
        };
      });
    case BinaryOp::XLogY:
      return map<T>([](const P&) {
        return [](T a, T b) {
          const T y = a * math::log(b);
          return b != b ? b : a == T(0) ? T(0) : y;
        };
      });
    case BinaryOp::Copysign: return map<T>([](const P&) { return [](T a, T b) { return std::copysign(a, b); }; });
    case BinaryOp::Glu: return map<T>([](const P&) { return [](T a, T b) { return a * math::sigmoid(b); }; });
    default: return nullptr;
  }
}

}  // namespace

Choice binary_math(BinaryOp op, DType type) {
  if (!is_floating(type)) return {};
  return for_floats("binary", type, [&]<class T>() -> Choice {
    return {functions<T>(op), op == BinaryOp::Copysign ? 1 : std::same_as<T, float> ? 4 : 32};
  });
}

}  // namespace tapir::inline v0::cpu
