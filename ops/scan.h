#pragma once
#include <optional>

#include "../core/tensor.h"

namespace tapir::inline v0 {

struct ScanOptions {
  std::optional<DType> dtype = {};  // none: the tensor's own, int64 for integers and bool
};
/// Running sums along dim: y[i] = x[0] + ... + x[i].
Tensor cumsum(const Tensor& x, int64_t dim, const ScanOptions& options = {});
Tensor& cumsum_(Tensor& self, int64_t dim);

}  // namespace tapir::inline v0
