#pragma once
#include "../core/tensor.h"

namespace tapir::inline v0 {

/// (sum of |x|^p)^(1/p) over `dims` (all when empty) of a floating-point tensor. p = inf, -inf: the largest, smallest
/// |x|; p = 0: how many are not 0. Of nothing: 0, or ValueError for p below 0 and inf. dtype: converts x first.
Tensor norm(const Tensor& x, Scalar p = 2, const Dims& dims = {}, const ReduceOptions& options = {});

namespace linalg {
/// The same under the name that it has beside matrix norms.
Tensor vector_norm(const Tensor& x, Scalar ord = 2, const Dims& dims = {}, const ReduceOptions& options = {});
}  // namespace linalg

}  // namespace tapir::inline v0
