#pragma once
#include <cstdint>

#include "../core/math.h"

namespace tapir::inline v0::cuda_kernels {

/// n / d and n % d for 0 <= n < 2^31 by a multiplication: Granlund and Montgomery 1994, "Division by invariant integers".
struct Divider {
  uint32_t d = 1, magic = 1, shift = 0;
  Divider() = default;
  explicit Divider(uint32_t divisor) : d(divisor) {
    while (shift < 32 && (uint32_t(1) << shift) < d) ++shift;
    const uint64_t one = 1;
    magic = uint32_t(((one << 32) * ((one << shift) - d)) / d + 1);
  }
  TAPIR_HD uint32_t quotient(uint32_t n) const {
    const uint32_t high = uint32_t((uint64_t(n) * magic) >> 32);
    return (high + n) >> shift;
  }
};

}  // namespace tapir::inline v0::cuda_kernels
