#pragma once
#include <iosfwd>

#include "tensor.h"

namespace tapir::inline v0 {

/// std::cout << x prints as PyTorch does.
std::ostream& operator<<(std::ostream& out, const Tensor& x);
std::ostream& operator<<(std::ostream& out, const Dims& x);
std::ostream& operator<<(std::ostream& out, Device x);
std::ostream& operator<<(std::ostream& out, DType x);

}  // namespace tapir::inline v0
