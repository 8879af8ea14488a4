#pragma once
#include "../core/tensor.h"

namespace tapir::inline v0 {

struct DropoutParams;

/// In training each element is zero with probability p, and the others are x / (1 - p); else x itself. Srivastava et al. 2014.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);
Tensor& dropout_(Tensor& self, double p = 0.5, bool training = true);

// Whole channels (N, C) are zero or stay. Tompson et al. 2015, arXiv 1411.4280.
/// x: (N, C, L) or (C, L).
Tensor dropout1d(const Tensor& x, double p = 0.5, bool training = true);
/// x: (N, C, H, W); three dimensions are (N, C, L), as in PyTorch.
Tensor dropout2d(const Tensor& x, double p = 0.5, bool training = true);
/// x: (N, C, D, H, W) or (C, D, H, W).
Tensor dropout3d(const Tensor& x, double p = 0.5, bool training = true);
/// Elements become selu's lower limit with probability p; then mean and variance are restored. Klambauer et al. 2017, arXiv 1706.02515.
Tensor alpha_dropout(const Tensor& x, double p = 0.5, bool training = false);
/// The same for whole channels of x (N, C, ...).
Tensor feature_alpha_dropout(const Tensor& x, double p = 0.5, bool training = false);

namespace detail {
/// Dropout with these random numbers.
Tensor dropout(const Tensor& x, const DropoutParams& params);
}  // namespace detail

}  // namespace tapir::inline v0
