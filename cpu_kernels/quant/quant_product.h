#pragma once
#include "../../core/error.h"
#include "../../core/formulas/quantize.h"
#include "../kernels.h"

namespace tapir::inline v0::cpu {

/// y (m, n) = x w^T + bias with quantized weights: what the kernels of quant_matmul.cpp, quant_few.cpp and quant_integer.cpp share.
struct QuantProduct {
  int64_t m, n, k, bits, group;
  const float* x;  // rows of k
  const void* w;
  const float* scale;  // (n, k / group)
  const float* bias;   // (n) or null
  V y;

  const uint8_t* row_of(int64_t j) const { return static_cast<const uint8_t*>(w) + j * (k * bits / 8); }
  const float* scale_of(int64_t j) const { return scale + j * (k / group); }
  float* place(int64_t i, int64_t j) const { return y.as<float>() + i * y.strides[0] + j * y.strides[1]; }
  void write(int64_t i, int64_t j, float sum) const { *place(i, j) = bias ? sum + bias[j] : sum; }
};

/// The scale and zero point of activations, as the caller gives them.
inline formulas::QuantScale given_scale(const char* op, V scale, V zero) {
  const int32_t point = *zero.as<int32_t>();
  check(point >= 0 && point <= 255, "[{}] expected an input_zero_point from 0 to 255, got {}", op, point);
  return {*scale.as<float>(), float(point)};
}

/// With activations of 32 bits, for at most so many rows.
inline constexpr int64_t kQuantFew = 8;
void few_rows(Context& ctx, const QuantProduct& p);
/// With activations of 8 bits: `given`, or by each row's range.
void integer_product(Context& ctx, const QuantProduct& p, const formulas::QuantScale* given);

}  // namespace tapir::inline v0::cpu
