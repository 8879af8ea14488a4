#pragma once
#include "../core/tensor.h"

namespace tapir::inline v0 {

/// In training each element is zero with probability p, and the others are x / (1 - p); else x itself. Srivastava et al. 2014.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);

}  // namespace tapir::inline v0
