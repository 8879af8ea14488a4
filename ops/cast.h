#pragma once
#include "../autograd/arith.h"
#include "../core/tensor.h"

namespace tapir::inline v0 {

/// x converted to `dtype`; x itself when it has it. Floats to integers truncate and saturate, NaN gives 0.
Tensor to(const Tensor& x, DType dtype);
/// x on `device`; x itself when it is there. non_blocking: only queued; from a device to the CPU the values are there after a wait.
Tensor to(const Tensor& x, Device device, bool non_blocking = false);
/// Both at once. The conversion runs before a copy to the CPU and after any other, so that it needs no wait.
inline Tensor to(const Tensor& x, Device device, DType dtype, bool non_blocking = false) {
  return device.is_cpu() ? to(to(x, dtype), device, non_blocking) : to(to(x, device, non_blocking), dtype);
}
/// A copy with memory of its own; dense layouts keep their order of strides unless a format is given.
Tensor clone(const Tensor& x, MemoryFormat format);
/// x, or a copy in that layout where x is not laid out so.
Tensor contiguous(const Tensor& x, MemoryFormat format = kContiguous);
/// Writes `source`, broadcast and converted, into self.
Tensor& copy_(Tensor& self, const Tensor& source);

}  // namespace tapir::inline v0
