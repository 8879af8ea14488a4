#pragma once
#include <optional>
#include <string_view>
#include <utility>

#include "../core/tensor.h"
#include "reduce.h"

namespace tapir::inline v0 {

// A NaN is larger than every number. Indices are int64; of equal elements the first comes first, whatever is asked for.

struct SortOptions {
  bool descending = false;
  bool stable = false;  // sorting always is
};
/// auto [values, indices] = sort(x): the elements along dim in ascending order, and where they were.
std::pair<Tensor, Tensor> sort(const Tensor& x, int64_t dim = -1, const SortOptions& options = {});
Tensor argsort(const Tensor& x, int64_t dim = -1, const SortOptions& options = {});
/// The values of sort along dimension 0.
Tensor msort(const Tensor& x);

struct TopkOptions {
  bool largest = true;
  bool sorted = true;  // they always are
};
/// The k largest (smallest) elements along dim and their positions. ValueError for k outside [0, extent].
std::pair<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim = -1, const TopkOptions& options = {});
/// The k-th smallest element along dim (k counts from 1) and its position.
std::pair<Tensor, Tensor> kthvalue(const Tensor& x, int64_t k, int64_t dim = -1, const KeepdimOptions& options = {});
/// The median, the lower one of two; NaN where there is a NaN, and of nothing. Equal elements share the gradient.
Tensor median(const Tensor& x);
/// The same of those that are not NaN.
Tensor nanmedian(const Tensor& x);
/// Along dim, with its position, which alone gets the gradient. ValueError for an extent of 0.
std::pair<Tensor, Tensor> median(const Tensor& x, int64_t dim, const KeepdimOptions& options = {});
std::pair<Tensor, Tensor> nanmedian(const Tensor& x, int64_t dim, const KeepdimOptions& options = {});

/// The most frequent element along dim, the smallest of several, and the last of its positions.
std::pair<Tensor, Tensor> mode(const Tensor& x, int64_t dim = -1, const KeepdimOptions& options = {});

struct QuantileOptions {
  bool keepdim = false;
  std::string_view interpolation = "linear";  // between two elements; or "lower", "higher", "midpoint", "nearest"
};
/// The q-quantiles (q in [0, 1]: a number, or a vector, whose dimension comes first) along dim, or of all; NaN where there is one.
Tensor quantile(const Tensor& x, const Operand& q, std::optional<int64_t> dim = {},
                const QuantileOptions& options = {});
/// The same of those that are not NaN.
Tensor nanquantile(const Tensor& x, const Operand& q, std::optional<int64_t> dim = {},
                   const QuantileOptions& options = {});

struct UniqueOptions {
  bool return_inverse = false, return_counts = false;
  std::optional<int64_t> dim = {};  // none: the elements of the flattened tensor; else its slices along dim
};
/// What was not asked for is undefined.
struct Unique {
  Tensor values;
  Tensor inverse;  // int64: which of the values stands at each place
  Tensor counts;   // int64: how often each value occurs
};
/// auto [values, inverse, counts] = unique(x, {.return_inverse = true}): the different elements, sorted. No two NaNs are equal.
Unique unique(const Tensor& x, const UniqueOptions& options = {});
/// The same for runs of equal neighbours, in the order in which they stand.
Unique unique_consecutive(const Tensor& x, const UniqueOptions& options = {});

}  // namespace tapir::inline v0
