// For tests of kernels: what an operation gives on the device beside what it gives on the CPU.
#pragma once
#include "cuda.h"

/// Largest difference between the two, relative to the largest element; NaNs and infinities must stand at the same places.
inline double difference(const tapir::Tensor& device, const tapir::Tensor& host) {
  using namespace tapir;
  const Tensor a = device.cpu().to(kFloat64), b = host.to(kFloat64);
  if (a.shape() != b.shape() || device.dtype() != host.dtype()) return INFINITY;
  if (a.numel() == 0) return 0;
  const Tensor same = logical_or(eq(a, b), logical_and(isnan(a), isnan(b)));
  const Tensor d = where(same, 0.0, abs(sub(a, b))), size = where(isfinite(b), abs(b), 0.0);
  return max(d).item() / std::max(1.0, max(size).item());
}
/// What rounding may differ by in that dtype.
inline double rounding(tapir::DType t) {
  using namespace tapir;
  return t == kFloat64 ? 1e-12 : t == kFloat32 ? 2e-5 : t == kFloat16 ? 2e-3 : 1.6e-2;
}
inline constexpr tapir::DType kFloats[] = {tapir::kFloat32, tapir::kFloat16, tapir::kBFloat16, tapir::kFloat64};
/// Normal numbers, the same ones on both devices.
inline tapir::Tensor numbers(const tapir::Shape& shape, tapir::DType dtype, uint64_t seed = 1) {
  tapir::manual_seed(seed);
  return tapir::randn(shape).to(dtype);
}
