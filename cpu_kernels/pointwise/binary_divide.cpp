#include "../../core/dispatch.h"
#include "elementwise.h"

namespace tapir::inline v0::cpu {

/// x ^ y: the vectorised form where all x are positive.
static void power_loop(int64_t n, void* const* data, const void*) {
  float* out = static_cast<float*>(data[0]);
  const float *x = static_cast<const float*>(data[1]), *y = static_cast<const float*>(data[2]);
  constexpr int64_t kBlock = 64;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = begin + kBlock < n ? begin + kBlock : n;
    int special = 0;
#pragma omp simd reduction(| : special)
    for (int64_t i = begin; i < end; ++i)
      special |= !(x[i] > 0) | !(x[i] < math::kInf) | !(math::abs(y[i]) < math::kInf);
    if (special) {
      for (int64_t i = begin; i < end; ++i) out[i] = math::pow(x[i], y[i]);
    } else {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) out[i] = math::pow_positive(x[i], y[i]);
    }
  }
}

Choice binary_division(BinaryOp op, DType type) {
  if (op == BinaryOp::Pow && type == kFloat32) return {power_loop, 4 * formulas::kFast<float>};
  return for_compute("binary", type, [&]<class T>() { return choose<T, Family::Division, Family::Power>(op); });
}

}  // namespace tapir::inline v0::cpu
