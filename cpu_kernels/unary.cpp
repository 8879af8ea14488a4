#include <cmath>
#include <limits>

#include "../core/dispatch.h"
#include "elementwise.h"
#include "kernels.h"

namespace tapir::inline v0::cpu {
namespace {

using P = UnaryParams;
template <class T, class Make> LoopKernel map(Make make) { return loop1<T, T, P>(make); }

template <class T> LoopKernel any_type(UnaryOp op) {
  switch (op) {
    case UnaryOp::Neg:
      return map<T>([](const P&) { return [](T x) { return std::integral<T> ? wrap_sub(T(0), x) : T(-x); }; });
    case UnaryOp::Abs:
      return map<T>([](const P&) {
        return [](T x) {
          if constexpr (std::floating_point<T>) return std::abs(x);
          else return x < T(0) ? wrap_sub(T(0), x) : x;
        };
      });
    case UnaryOp::Sign: return map<T>([](const P&) { return [](T x) { return T(int(x > T(0)) - int(x < T(0))); }; });
    case UnaryOp::Square: return map<T>([](const P&) { return [](T x) { return wrap_mul(x, x); }; });
    case UnaryOp::Relu: return map<T>([](const P&) { return [](T x) { return x < T(0) ? T(0) : x; }; });
    case UnaryOp::Clamp:
      return map<T>([](const P& p) {
        return [low = cast<T>(p.a), high = cast<T>(p.b)](T x) {
          const T y = x < low ? low : x;
          return y > high ? high : y;
        };
      });
    case UnaryOp::Threshold:
      return map<T>([](const P& p) {
        using Number = std::conditional_t<std::integral<T>, int64_t, T>;  // into a smaller integer it wraps
        return [limit = T(Number(p.a)), value = T(Number(p.b))](T x) { return x <= limit ? value : x; };
      });
    default: return nullptr;
  }
}

template <class T> LoopKernel of_integers(UnaryOp op) {
  switch (op) {
    case UnaryOp::Floor:
    case UnaryOp::Ceil:
    case UnaryOp::Round:
    case UnaryOp::Trunc: return map<T>([](const P&) { return [](T x) { return x; }; });
    case UnaryOp::BitwiseNot:
      return map<T>([](const P&) { return [](T x) { return std::same_as<T, bool> ? T(!x) : T(~int64_t(x)); }; });
    case UnaryOp::PowScalar:
      return map<T>([](const P& p) { return [b = cast<T>(p.a)](T x) { return integer_pow(x, b); }; });
    default: return nullptr;
  }
}

template <class T> LoopKernel of_floats(UnaryOp op) {
  switch (op) {
    case UnaryOp::Sqrt: return map<T>([](const P&) { return [](T x) { return std::sqrt(x); }; });
    case UnaryOp::Rsqrt: return map<T>([](const P&) { return [](T x) { return T(1) / std::sqrt(x); }; });
    case UnaryOp::Reciprocal: return map<T>([](const P&) { return [](T x) { return T(1) / x; }; });
    case UnaryOp::Floor: return map<T>([](const P&) { return [](T x) { return std::floor(x); }; });
    case UnaryOp::Ceil: return map<T>([](const P&) { return [](T x) { return std::ceil(x); }; });
    case UnaryOp::Round: return map<T>([](const P&) { return [](T x) { return std::nearbyint(x); }; });
    case UnaryOp::Trunc: return map<T>([](const P&) { return [](T x) { return std::trunc(x); }; });
    case UnaryOp::Frac: return map<T>([](const P&) { return [](T x) { return x - std::trunc(x); }; });
    case UnaryOp::RoundTo:
      return map<T>([](const P& p) {
        const bool whole = p.a < 0;  // divided by an exact power, not multiplied by a rounded one
        return [power = std::pow(10, std::abs(p.a)), whole](T x) {
          const double y = std::nearbyint(whole ? double(x) / power : double(x) * power);
          return T(whole ? y * power : y / power);
        };
      });
    case UnaryOp::NanToNum:
      return map<T>([](const P& p) {
        return [nan = cast<T>(p.a), high = cast<T>(p.b), low = cast<T>(p.c)](T x) {
          constexpr T inf = std::numeric_limits<T>::infinity();
          return x != x ? nan : x == inf ? high : x == -inf ? low : x;
        };
      });
    default: return nullptr;
  }
}

template <class T> LoopKernel tests(UnaryOp op) {
  constexpr T inf = std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity() : T(0);
  constexpr bool real = std::floating_point<T>;
  switch (op) {
    case UnaryOp::LogicalNot: return loop1<bool, T, P>([](const P&) { return [](T x) { return x == T(0); }; });
    case UnaryOp::IsNan: return loop1<bool, T, P>([](const P&) { return [](T x) { return x != x; }; });
    case UnaryOp::IsInf:
      return loop1<bool, T, P>([](const P&) { return [](T x) { return real && (x == inf || x == -inf); }; });
    case UnaryOp::IsFinite:
      return loop1<bool, T, P>([](const P&) { return [](T x) { return !real || (x < inf && x > -inf); }; });
    case UnaryOp::SignBit:
      return loop1<bool, T, P>([](const P&) {
        return [](T x) {
          if constexpr (real) return std::signbit(x);
          else return x < T(0);
        };
      });
    default: return nullptr;
  }
}

}  // namespace

Choice unary_arithmetic(UnaryOp op, DType type) {
  return for_compute("unary", type, [&]<class T>() -> Choice {
    if (const LoopKernel k = any_type<T>(op)) return {k, 1};
    if constexpr (std::floating_point<T>)
      return {of_floats<T>(op), op == UnaryOp::Sqrt || op == UnaryOp::Rsqrt ? 4 : 1};
    else return {of_integers<T>(op), 1};
  });
}
Choice unary_test(UnaryOp op, DType type) {
  return for_compute("unary", type, [&]<class T>() -> Choice { return {tests<T>(op), 1}; });
}

void unary(Context&, V out, V x, const UnaryParams& p) {
  const DType type = compute_type(x.dtype);
  DType types[] = {type, type};
  Choice choice = unary_arithmetic(p.op, type);
  if (!choice.kernel) choice = unary_math(p.op, type, p.a);
  if (!choice.kernel) choice = unary_activation(p.op, type, p.a);
  if (!choice.kernel) choice = unary_special(p.op, type);
  if (!choice.kernel) choice = unary_test(p.op, type), types[0] = kBool;
  if (!choice.kernel) fail_dtype("unary", x.dtype);
  const TensorView* const views[] = {&out, &x};
  pointwise(views, types, choice.kernel, &p, choice.cost);
}

}  // namespace tapir::inline v0::cpu
