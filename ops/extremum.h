#pragma once
#include <optional>
#include <utility>

#include "../core/tensor.h"
#include "reduce.h"

namespace tapir::inline v0 {

// A NaN is the largest and the smallest. ValueError where nothing is left to choose from.

/// The largest (smallest) elements over `dims` (all when empty); equal ones share the gradient.
Tensor amax(const Tensor& x, const Dims& dims = {}, const KeepdimOptions& options = {});
Tensor amin(const Tensor& x, const Dims& dims = {}, const KeepdimOptions& options = {});
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);
/// auto [least, largest] = aminmax(x, dim), or of all elements.
std::pair<Tensor, Tensor> aminmax(const Tensor& x, std::optional<int64_t> dim = {}, const KeepdimOptions& options = {});
/// auto [values, indices] = max(x, dim): indices (int64) of the first largest; it alone gets the gradient.
std::pair<Tensor, Tensor> max(const Tensor& x, int64_t dim, const KeepdimOptions& options = {});
std::pair<Tensor, Tensor> min(const Tensor& x, int64_t dim, const KeepdimOptions& options = {});
/// maximum and minimum under their other names.
Tensor max(const Tensor& a, const Tensor& b);
Tensor min(const Tensor& a, const Tensor& b);
/// Position of the first largest (smallest) element along dim, or in the flattened tensor; int64.
Tensor argmax(const Tensor& x, std::optional<int64_t> dim = {}, const KeepdimOptions& options = {});
Tensor argmin(const Tensor& x, std::optional<int64_t> dim = {}, const KeepdimOptions& options = {});

}  // namespace tapir::inline v0
