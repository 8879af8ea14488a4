#pragma once
#include "../core/tensor.h"

namespace tapir::inline v0 {

/// x in page-locked host memory, from which copies to a CUDA device run beside other work; x itself when it is there.
Tensor pin_memory(const Tensor& x);
bool is_pinned(const Tensor& x);
/// Such memory, row-major and not initialised.
Tensor empty_pinned(const Shape& shape, DType dtype);

}  // namespace tapir::inline v0
