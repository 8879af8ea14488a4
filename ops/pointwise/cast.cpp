#include "../cast.h"

#include "../../core/allocator.h"
#include "../../core/device_table.h"
#include "../../core/layout.h"
#include "../front.h"
#include "../pinned.h"

namespace tapir::inline v0 {

/// Gradients of copies are copies back: into the dtype and device that x had.
static Tensor copied(const char* name, const Tensor& x, Tensor y) {
  const DType dtype = x.dtype();
  const Device device = x.device();
  return record(name, std::move(y), {x}, [dtype, device](const Tensor& g) { return Grads{to(to(g, device), dtype)}; });
}

Tensor to(const Tensor& x, DType dtype) {
  check_defined("to", "x", x);
  if (x.dtype() == dtype) return x;
  Tensor y = empty_like(x, {.dtype = dtype});
  backend(x).copy(context(x), {y, x});
  return copied("to", x, y);
}

/// Page-locked memory, which a device reads and writes by itself.
static Tensor empty_pinned(const Shape& shape, const Strides& strides, DType dtype) {
  const int64_t bytes = numel_of(shape) * size_of(dtype);
  void* data = bytes ? cuda_backend()->device->allocate_pinned(bytes) : nullptr;
  if (bytes && !data) fail_out_of_memory(bytes, kCPU);
  return from_blob(
      "pin_memory", data, shape, &strides, {.dtype = dtype},
      [](Storage& s) { cuda_backend()->device->release_pinned(s.data); }, nullptr);
}

Tensor to(const Tensor& x, Device device, bool non_blocking) {
  check_defined("to", "x", x);
  const Device from = x.device();
  if (from == device) return x;
  Tensor dense = x;
  if (!is_dense(x.shape(), x.strides())) {
    NoGrad guard;
    dense = contiguous(x);
  }
  const bool late = non_blocking && device.is_cpu();  // the host may not look before it has waited
  Tensor y = late ? empty_pinned(dense.shape(), dense.strides(), x.dtype())
                  : empty_strided(dense.shape(), dense.strides(), {.dtype = x.dtype(), .device = device});
  const Device over = from.is_cpu() ? device : from;  // the device's own table copies, in both directions
  const bool peers = from.is_cuda() && device.is_cuda();
  if (peers) cuda::wait_for_device(from, device);
  void* const stream = current_stream(over);
  backend(over).copy_bytes(y.data_ptr(), device, dense.data_ptr(), from, y.numel() * size_of(y.dtype()), stream);
  if (peers) cuda::wait_for_device(device, from);
  else if (!late && (device.is_cpu() || (!non_blocking && is_pinned(dense)))) backend(over).synchronize(over, stream);
  return copied("to", x, y);
}

bool is_pinned(const Tensor& x) {
  return x.device().is_cpu() && cuda::is_available() && x.numel() && cuda_backend()->device->is_pinned(x.data_ptr());
}

static void check_can_pin() {
  if (!cuda::is_available()) fail(ErrorKind::Runtime, "[pin_memory] expected a CUDA device: {}", cuda::why_not());
}
Tensor empty_pinned(const Shape& shape, DType dtype) {
  check_can_pin();
  return empty_pinned(shape, contiguous_strides(shape), dtype);
}

Tensor pin_memory(const Tensor& x) {
  check(x.device().is_cpu(), "[pin_memory] expected a tensor on the CPU, got one on {}", x.device());
  check_can_pin();
  if (is_pinned(x)) return x;
  Tensor y = empty_pinned(x.shape(), is_dense(x.shape(), x.strides()) ? x.strides() : contiguous_strides(x.shape()),
                          x.dtype());
  backend(kCPU).copy(context(kCPU), {y, x});
  return copied("pin_memory", x, y);
}

Tensor clone(const Tensor& x, MemoryFormat format) {
  check_defined("clone", "x", x);
  Tensor y = empty_like(x, {.memory_format = format});
  backend(x).copy(context(x), {y, x});
  return copied("clone", x, y);
}

Tensor contiguous(const Tensor& x, MemoryFormat format) {
  check_defined("contiguous", "x", x);
  if (format == kPreserve) return x;
  if (!x.is_contiguous(format)) {
    if (x.dim() > 3) count_layout_conversion();
    return clone(x, format);
  }
  if (format == kContiguous || suggest_memory_format(x) == kChannelsLast) return x;
  // Extents of 1 make x both: the same elements under the strides that say channels_last.
  return record_view("contiguous", alias(x, x.shape(), channels_last_strides(x.shape()), x.storage_offset()), x,
                     [](const Tensor& g) { return Grads{g}; });
}

Tensor& copy_(Tensor& self, const Tensor& source) {
  check_defined("copy_", "self", self, "source", source);
  const Tensor here = to(source, self.device());
  check(broadcasts_to(here.shape(), self.shape()), "[copy_] expected a source that broadcasts to {}, got {}", self,
        here);
  if (self.is_same(here)) return self;
  check_inplace("copy_", self, wants_grad({self, here}));
  const Tensor from = apart_from(self, here, true);
  backend(self).copy(context(self), {self, view_as(from, self.shape(), from.dtype())});
  const DType dtype = here.dtype();
  record("copy_", self, {self, here}, [dtype](Needs needs, const Tensor& g) {
    return Grads{needs[0] ? zeros_like(g) : Tensor(), needs[1] ? to(g, dtype) : Tensor()};
  });
  return self;
}

}  // namespace tapir::inline v0
