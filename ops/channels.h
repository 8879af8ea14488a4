#pragma once
#include "../core/tensor.h"

namespace tapir::inline v0 {

struct LocalResponseNormOptions {
  double alpha = 1e-4, beta = 0.75, k = 1;
};

/// Channels of x (N, C, ...) dealt from `groups` groups in turn: (g, C / g) -> (C / g, g). Zhang et al. 2017, arXiv 1707.01083.
Tensor channel_shuffle(const Tensor& x, int64_t groups);
/// (..., C r r, H, W) -> (..., C, H r, W r): r r channels become a square of elements. Shi et al. 2016, arXiv 1609.05158.
Tensor pixel_shuffle(const Tensor& x, int64_t upscale_factor);
/// Its inverse: (..., C, H r, W r) -> (..., C r r, H, W).
Tensor pixel_unshuffle(const Tensor& x, int64_t downscale_factor);
/// x / (k + alpha m)^beta with m the mean of x^2 over `size` channels around each, zeros beyond. x: (N, C, ...). Krizhevsky et al. 2012.
Tensor local_response_norm(const Tensor& x, int64_t size, const LocalResponseNormOptions& options = {});

}  // namespace tapir::inline v0
