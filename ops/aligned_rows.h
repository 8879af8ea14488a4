#pragma once
#include "create.h"

namespace tapir::inline v0 {

/// Memory for a large matrix of 16 bits on a GPU, whose rows begin at multiples of 16 bytes, for the products that write or read them (logits of
/// 50257 words): Note [Rows of 16 bits]. Of like's dtype and device. Undefined where a matrix is not of that kind or lies so anyway.
inline Tensor aligned_rows(int64_t rows, int64_t columns, const Tensor& like) {
  constexpr int64_t kUnit = 8, kLarge = int64_t(1) << 20;
  if (like.device().type != DeviceType::CUDA || size_of(like.dtype()) != 2 || columns % kUnit == 0 ||
      rows * columns < kLarge)
    return {};
  const int64_t wide = (columns + kUnit - 1) / kUnit * kUnit;
  return empty_strided({rows, columns}, {wide, 1}, {.dtype = like.dtype(), .device = like.device()});
}

}  // namespace tapir::inline v0
