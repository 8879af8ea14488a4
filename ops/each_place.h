#pragma once
#include <algorithm>

#include "../autograd/record.h"

namespace tapir::inline v0 {

/// self with what repeats in its first `dims` dimensions taken once: for writes that may be done twice, so that an expanded tensor is
/// written in place as in PyTorch. Where a gradient is wanted it is self, which is then refused.
inline Tensor each_place_once(const Tensor& self, int64_t dims) {
  if (wants_grad({self})) return self;
  Shape once = self.shape();
  for (int64_t d = 0; d < dims; ++d)
    if (self.strides()[d] == 0) once[d] = std::min<int64_t>(once[d], 1);
  return once == self.shape() ? self : alias(self, once, self.strides(), self.storage_offset());
}

}  // namespace tapir::inline v0
