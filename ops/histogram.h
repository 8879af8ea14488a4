#pragma once
#include "../core/tensor.h"

namespace tapir::inline v0 {

/// How often 0, 1, 2, ... occur in x, a vector of integers that are not negative: max(x) + 1 counts (int64), at least minlength. With
/// weights the sums of theirs: float32 for those of float32, else float64.
Tensor bincount(const Tensor& x, const Tensor& weights = {}, int64_t minlength = 0,
                SourceLocation where = SourceLocation::current());

struct HistcOptions {
  double min = 0, max = 0;  // equal: the least and the largest element
};
/// Counts in `bins` equal bins over [min, max], in x's floating point dtype; what lies outside is not counted.
Tensor histc(const Tensor& x, int64_t bins = 100, const HistcOptions& options = {},
             SourceLocation where = SourceLocation::current());

}  // namespace tapir::inline v0
