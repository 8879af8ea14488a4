#include <cmath>

#include "../core/dispatch.h"
#include "../core/math.h"
#include "elementwise.h"

namespace tapir::inline v0::cpu {
namespace {

using P = UnaryParams;
template <class T, class Make> LoopKernel map(Make make) { return loop1<T, T, P>(make); }

/// sin or cos: the vectorised form where all arguments are moderate, else the library's.
template <class T, bool kSine> void sine_loop(int64_t n, void* const* data, const void*) {
  T* out = static_cast<T*>(data[0]);
  const T* x = static_cast<const T*>(data[1]);
  if constexpr (std::same_as<T, float>) {
    constexpr int64_t kBlock = 64;
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t end = begin + kBlock < n ? begin + kBlock : n;
      int large = 0;
#pragma omp simd reduction(| : large)
      for (int64_t i = begin; i < end; ++i) large |= !(math::abs(x[i]) <= math::kMaxAngle);
      if (large) {
        for (int64_t i = begin; i < end; ++i) out[i] = kSine ? std::sin(x[i]) : std::cos(x[i]);
      } else {
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) out[i] = kSine ? math::sin(x[i]) : math::cos(x[i]);
      }
    }
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = kSine ? std::sin(x[i]) : std::cos(x[i]);
  }
}

/// What vectorises in float.
template <class T> LoopKernel fast(UnaryOp op) {
  switch (op) {
    case UnaryOp::Exp: return map<T>([](const P&) { return [](T x) { return math::exp(x); }; });
    case UnaryOp::Expm1: return map<T>([](const P&) { return [](T x) { return math::expm1(x); }; });
    case UnaryOp::Log: return map<T>([](const P&) { return [](T x) { return math::log(x); }; });
    case UnaryOp::Log1p: return map<T>([](const P&) { return [](T x) { return math::log1p(x); }; });
    case UnaryOp::Erf: return map<T>([](const P&) { return [](T x) { return math::erf(x); }; });
    case UnaryOp::Sin: return sine_loop<T, true>;
    case UnaryOp::Cos: return sine_loop<T, false>;
    default: return nullptr;
  }
}

template <class T> LoopKernel of_library(UnaryOp op) {
  switch (op) {
    case UnaryOp::Log2: return map<T>([](const P&) { return [](T x) { return std::log2(x); }; });
    case UnaryOp::Log10: return map<T>([](const P&) { return [](T x) { return std::log10(x); }; });
    case UnaryOp::Tan: return map<T>([](const P&) { return [](T x) { return std::tan(x); }; });
    case UnaryOp::Asin: return map<T>([](const P&) { return [](T x) { return std::asin(x); }; });
    case UnaryOp::Acos: return map<T>([](const P&) { return [](T x) { return std::acos(x); }; });
    case UnaryOp::Atan: return map<T>([](const P&) { return [](T x) { return std::atan(x); }; });
    case UnaryOp::Sinh: return map<T>([](const P&) { return [](T x) { return std::sinh(x); }; });
    case UnaryOp::Cosh: return map<T>([](const P&) { return [](T x) { return std::cosh(x); }; });
    default: return nullptr;
  }
}

/// x^a; the usual exponents have short forms, as in PyTorch.
template <class T> Choice power(double a) {
  if (a == 2) return {map<T>([](const P&) { return [](T x) { return x * x; }; }), 1};
  if (a == 3) return {map<T>([](const P&) { return [](T x) { return x * x * x; }; }), 1};
  if (a == 0.5) return {map<T>([](const P&) { return [](T x) { return std::sqrt(x); }; }), 4};
  if (a == -0.5) return {map<T>([](const P&) { return [](T x) { return T(1) / std::sqrt(x); }; }), 4};
  if (a == -1) return {map<T>([](const P&) { return [](T x) { return T(1) / x; }; }), 2};
  if (a == -2) return {map<T>([](const P&) { return [](T x) { return T(1) / (x * x); }; }), 2};
  return {map<T>([](const P& p) { return [b = T(p.a)](T x) { return std::pow(x, b); }; }), 32};
}

}  // namespace

Choice unary_math(UnaryOp op, DType type, double a) {
  if (!is_floating(type)) return {};
  return for_floats("unary", type, [&]<class T>() -> Choice {
    if (op == UnaryOp::PowScalar) return power<T>(a);
    if (const LoopKernel k = fast<T>(op)) return {k, std::same_as<T, float> ? 4 : 32};
    return {of_library<T>(op), 32};
  });
}

}  // namespace tapir::inline v0::cpu
