#pragma once
#include "../core/tensor.h"

// What the engine itself needs of the operations; defined in ops/, below which it stands.
namespace tapir::inline v0 {

Tensor add(const Operand& a, const Operand& b, Scalar alpha = 1);
/// x summed to `shape`, which broadcasts to x's shape: the reverse of expand.
Tensor sum_to(const Tensor& x, const Shape& shape);
Tensor to(const Tensor& x, DType dtype);
Tensor zeros_like(const Tensor& x, const LikeOptions& options = {});

}  // namespace tapir::inline v0
