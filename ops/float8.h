#pragma once
#include "../core/tensor.h"

namespace tapir::inline v0 {

/// linear(x, weight, bias) whose operands are rounded to 8-bit floats, each with one scale that its own largest number gives: x and weight to
/// E4M3, the gradient of the result to E5M2 (Note [8-bit floats] in core/formulas/float8.h); sums are float32. x
/// (..., K), weight (N, K), bias (N), floats of 32 or 16 bits -> (..., N) in x's dtype, in an autocast region in the region's. What waits for
/// the gradient are bytes, not x. ValueError for second derivatives: there are none. Micikevicius et al. 2022, arXiv 2209.05433.
Tensor float8_linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace tapir::inline v0
