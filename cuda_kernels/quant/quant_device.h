#pragma once
#include <sm_61_intrinsics.h>

#include "../any.h"
#include "../rows.h"
#include "quant.h"

// Device code that the kernels of quantized products share.
namespace tapir::inline v0::cuda_kernels {

/// W neighbours at a multiple of 16 bytes, or one.
template <int W, class T> __device__ __forceinline__ void load_numbers(const T* from, float (&x)[W]) {
  constexpr int kAtOnce = W < 4 ? 1 : W < kPackSize<T> ? W : kPackSize<T>;
#pragma unroll
  for (int i = 0; i < W; i += kAtOnce) {
    float part[kAtOnce];
    load_pack<kAtOnce>(from + i, part);
#pragma unroll
    for (int l = 0; l < kAtOnce; ++l) x[i + l] = part[l];
  }
}

/// As write_rows() of the CPU: no product is rounded together with a sum.
struct FinishedRow {
  const QuantFinish& f;
  float scale;
  uint32_t zero;  // integers wrap
  __device__ FinishedRow(const QuantFinish& f, int64_t row)
      : f(f), scale(f.scale[row * f.scale_step]), zero(uint32_t(f.zero[row * f.scale_step]) - 128) {}
  __device__ void write(int64_t column, int32_t sum, int32_t of_weights, int64_t place) const {
    const auto centred = int32_t(uint32_t(sum) - zero * uint32_t(of_weights));
    float v = __fmul_rn(float(centred), __fmul_rn(scale, f.w_scale[column]));
    if (f.bias) v = __fadd_rn(v, f.bias[column]);
    store_any(f.y, place, f.dtype, v);
  }
};

}  // namespace tapir::inline v0::cuda_kernels
