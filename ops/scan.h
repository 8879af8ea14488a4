#pragma once
#include <optional>
#include <utility>

#include "../core/tensor.h"

namespace tapir::inline v0 {

struct ScanOptions {
  std::optional<DType> dtype = {};  // none: the tensor's own, int64 for integers and bool
};
/// Running sums along dim: y[i] = x[0] + ... + x[i].
Tensor cumsum(const Tensor& x, int64_t dim, const ScanOptions& options = {});
Tensor& cumsum_(Tensor& self, int64_t dim);
/// Running products along dim.
Tensor cumprod(const Tensor& x, int64_t dim, const ScanOptions& options = {});
Tensor& cumprod_(Tensor& self, int64_t dim);
/// ln of running sums of e^x, without overflow. Floating point only.
Tensor logcumsumexp(const Tensor& x, int64_t dim);
/// auto [values, indices] = cummax(x, dim): the largest (smallest) so far and, as int64, where it is: the last of equal ones. A NaN stays.
std::pair<Tensor, Tensor> cummax(const Tensor& x, int64_t dim);
std::pair<Tensor, Tensor> cummin(const Tensor& x, int64_t dim);

struct DiffOptions {
  Tensor prepend = {}, append = {};  // joined to x along dim first
};
/// Differences of neighbours along dim, x[i + 1] - x[i], n times over; of bool: whether they differ.
Tensor diff(const Tensor& x, int64_t n = 1, int64_t dim = -1, const DiffOptions& options = {});

}  // namespace tapir::inline v0
