#pragma once
#include "../core/tensor.h"

namespace tapir::inline v0 {

struct FoldOptions {
  Dims dilation = 1, padding = 0, stride = 1;  // one number or (height, width)
};

/// The windows of an image as columns: (N, C, H, W) -> (N, C kh kw, L) for L windows in row-major order; without N for one image.
/// nn.functional.unfold.
Tensor unfold(const Tensor& x, const Dims& kernel_size, const FoldOptions& options = {});
/// Its transpose: (N, C kh kw, L) -> (N, C, H, W) with (H, W) = output_size, where overlapping windows add up.
Tensor fold(const Tensor& x, const Dims& output_size, const Dims& kernel_size, const FoldOptions& options = {});

}  // namespace tapir::inline v0
