#pragma once
#include <optional>

#include "../core/tensor.h"

namespace tapir::inline v0 {

/// softmax(x, 1, {.dtype = kFloat32}): x is converted first.
struct SoftmaxOptions {
  std::optional<DType> dtype = {};
};

/// e^x over its sum along dim.
Tensor softmax(const Tensor& x, int64_t dim, const SoftmaxOptions& options = {});
/// softmax of -x.
Tensor softmin(const Tensor& x, int64_t dim, const SoftmaxOptions& options = {});
/// The logarithm of softmax: x - log sum e^x.
Tensor log_softmax(const Tensor& x, int64_t dim, const SoftmaxOptions& options = {});

}  // namespace tapir::inline v0
