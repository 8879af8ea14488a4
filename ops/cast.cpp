#include "cast.h"

#include "front.h"

namespace tapir::inline v0 {

/// Gradients of copies are copies back: into the dtype and device that x had.
static Tensor copied(const char* name, const Tensor& x, Tensor y) {
  const DType dtype = x.dtype();
  const Device device = x.device();
  return record(name, std::move(y), {x}, [dtype, device](const Tensor& g) { return Grads{to(to(g, device), dtype)}; });
}

Tensor to(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor y = empty_like(x, {.dtype = dtype});
  backend(x).copy(context(x), y, x);
  return copied("to", x, y);
}

Tensor to(const Tensor& x, Device device, bool) {
  if (x.device() == device) return x;
  Tensor dense = x;
  if (!is_dense(x.shape(), x.strides())) {
    NoGrad guard;
    dense = contiguous(x);
  }
  Tensor y = empty_strided(dense.shape(), dense.strides(), {.dtype = x.dtype(), .device = device});
  const Device over = device.is_cpu() ? x.device() : device;  // the device's own table copies, in both directions
  backend(over).copy_bytes(y.data_ptr(), device, dense.data_ptr(), x.device(), y.numel() * size_of(y.dtype()));
  return copied("to", x, y);
}

Tensor clone(const Tensor& x, MemoryFormat format) {
  Tensor y = empty_like(x, {.memory_format = format});
  backend(x).copy(context(x), y, x);
  return copied("clone", x, y);
}

Tensor contiguous(const Tensor& x, MemoryFormat format) {
  if (format == kPreserve) return x;
  if (!x.is_contiguous(format)) return clone(x, format);
  if (format == kContiguous || suggest_memory_format(x) == kChannelsLast) return x;
  // Extents of 1 make x both: the same elements under the strides that say channels_last.
  return record_view("contiguous", alias(x, x.shape(), channels_last_strides(x.shape()), x.storage_offset()), x,
                     [](const Tensor& g) { return Grads{g}; });
}

Tensor& copy_(Tensor& self, const Tensor& source) {
  const Tensor here = to(source, self.device());
  check(broadcasts_to(here.shape(), self.shape()), "[copy_] expected a source that broadcasts to {}, got {}", self,
        here);
  if (self.is_same(here)) return self;
  check_inplace("copy_", self, wants_grad({self, here}));
  const Tensor from = apart_from(self, here, true);
  backend(self).copy(context(self), self, view_as(from, self.shape(), from.dtype()));
  const DType dtype = here.dtype();
  record("copy_", self, {self, here}, [dtype](Needs needs, const Tensor& g) {
    return Grads{needs[0] ? zeros_like(g) : Tensor(), needs[1] ? to(g, dtype) : Tensor()};
  });
  return self;
}

}  // namespace tapir::inline v0
