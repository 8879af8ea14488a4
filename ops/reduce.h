#pragma once
#include "../autograd/arith.h"
#include "../core/tensor.h"

namespace tapir::inline v0 {

/// Sums over `dims` (all when empty). Integers and bool give int64 unless a dtype is asked for.
Tensor sum(const Tensor& x, const Dims& dims = {}, const ReduceOptions& options = {});
/// Means over `dims` (all when empty) of a floating-point tensor; of nothing: NaN.
Tensor mean(const Tensor& x, const Dims& dims = {}, const ReduceOptions& options = {});

}  // namespace tapir::inline v0
