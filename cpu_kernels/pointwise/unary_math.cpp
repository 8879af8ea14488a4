#include <cmath>

#include "../../core/dispatch.h"
#include "elementwise.h"

namespace tapir::inline v0::cpu {

namespace {

/// sin or cos: the vectorised form where all arguments are moderate, else one by one, with the same bits.
template <class T, bool kSine> void sine_loop(int64_t n, void* const* data, const void*) {
  T* out = static_cast<T*>(data[0]);
  const T* x = static_cast<const T*>(data[1]);
  const auto each = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = kSine ? formulas::sine(x[i]) : formulas::cosine(x[i]);
  };
  if constexpr (std::same_as<T, float>) {
    constexpr int64_t kBlock = 64;
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t end = begin + kBlock < n ? begin + kBlock : n;
      int large = 0;
#pragma omp simd reduction(| : large)
      for (int64_t i = begin; i < end; ++i) large |= !(math::abs(x[i]) <= math::kMaxAngle);
      if (large) {
        each(begin, end);
      } else {
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) out[i] = kSine ? math::sin(x[i]) : math::cos(x[i]);
      }
    }
  } else {
    each(0, n);
  }
}

/// x ^ a: the vectorised form where all x are positive.
void power_loop(int64_t n, void* const* data, const void* params) {
  const float exponent = formulas::numbers<float>(UnaryOp::PowScalar, *static_cast<const UnaryParams*>(params)).a;
  float* out = static_cast<float*>(data[0]);
  const float* x = static_cast<const float*>(data[1]);
  constexpr int64_t kBlock = 64;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = begin + kBlock < n ? begin + kBlock : n;
    int special = !std::isfinite(exponent);
#pragma omp simd reduction(| : special)
    for (int64_t i = begin; i < end; ++i) special |= !(x[i] > 0) | !(x[i] < math::kInf);
    if (special) {
      for (int64_t i = begin; i < end; ++i) out[i] = math::pow(x[i], exponent);
    } else {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) out[i] = math::pow_positive(x[i], exponent);
    }
  }
}

}  // namespace

Choice unary_math(UnaryOp op, DType type) {
  if (!is_floating(type)) return {};
  return for_floats("unary", type, [&]<class T>() -> Choice {
    if (op == UnaryOp::Sin) return {sine_loop<T, true>, formulas::kFast<T>};
    if (op == UnaryOp::Cos) return {sine_loop<T, false>, formulas::kFast<T>};
    if (op == UnaryOp::PowScalar && std::same_as<T, float>) return {power_loop, 4 * formulas::kFast<T>};
    if (op == UnaryOp::Tan) return choice_of<UnaryOp::Tan, T>();
    return choose<T, Family::Math, Family::Power>(op);
  });
}

}  // namespace tapir::inline v0::cpu
