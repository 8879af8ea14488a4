#pragma once
#include <utility>

#include "../core/tensor.h"

namespace tapir::inline v0 {

/// Variance over `dims` (all when empty) of a floating-point tensor: squared deviations over n - correction; NaN of
/// nothing.
Tensor var(const Tensor& x, const Dims& dims = {}, const VarOptions& options = {});
/// Its square root. Beside a `using namespace tapir` it is called as tapir::std(x) or x.std().
Tensor std(const Tensor& x, const Dims& dims = {}, const VarOptions& options = {});
/// The variance (the standard deviation) and the mean.
std::pair<Tensor, Tensor> var_mean(const Tensor& x, const Dims& dims = {}, const VarOptions& options = {});
std::pair<Tensor, Tensor> std_mean(const Tensor& x, const Dims& dims = {}, const VarOptions& options = {});

}  // namespace tapir::inline v0
