#pragma once
#include "../kernels.h"

namespace tapir::inline v0::cuda_kernels {

/// What 8-bit floats x, contiguous, stand for, in bfloat16: in scratch.
TensorView widened_float8(Context& ctx, V x, Float8 format);
/// out = a_scale b_scale sums + bias: sums (M, N) float32, contiguous.
void finish_float8_product(Context& ctx, V out, V sums, const entry::Float8Matmul& c);

}  // namespace tapir::inline v0::cuda_kernels
