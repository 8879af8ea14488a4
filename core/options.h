#pragma once
#include <cstdint>
#include <optional>

#include "device.h"
#include "dtype.h"

namespace tapir::inline v0 {

enum class MemoryFormat : uint8_t { Preserve, Contiguous, ChannelsLast };
inline constexpr MemoryFormat kPreserve = MemoryFormat::Preserve, kContiguous = MemoryFormat::Contiguous,
                              kChannelsLast = MemoryFormat::ChannelsLast;

/// What a factory makes: zeros({2, 3}, {.dtype = kFloat64}). No dtype: float32, or what the values given imply.
struct TensorOptions {
  std::optional<DType> dtype = {};
  Device device = kCPU;
  bool requires_grad = false;
};

/// The same for the *_like factories: what is not given comes from the tensor.
struct LikeOptions {
  std::optional<DType> dtype = {};
  std::optional<Device> device = {};
  bool requires_grad = false;
  MemoryFormat memory_format = kPreserve;
};

/// sum(x, {0, 2}, {.keepdim = true})
struct ReduceOptions {
  bool keepdim = false;
  std::optional<DType> dtype = {};
};

/// var(x, {0}, {.correction = 0, .keepdim = true})
struct VarOptions {
  double correction = 1;
  bool keepdim = false;
};

}  // namespace tapir::inline v0
