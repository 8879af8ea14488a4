// Gradients through any geometry: what as_strided and writes to views are made of (autograd/arith.h).
#include <algorithm>

#include "../autograd/arith.h"
#include "cast.h"
#include "create.h"
#include "front.h"

namespace tapir::inline v0 {

namespace {
/// One flat buffer in which both base and view lie.
struct Flat {
  int64_t base_at, view_at, size;
  explicit Flat(const ViewGeometry& v) {
    const int64_t low = std::min<int64_t>(0, v.offset);
    base_at = -low, view_at = v.offset - low;
    size = std::max(base_at + extent_of(v.base_shape, v.base_strides).second,
                    view_at + extent_of(v.shape, v.strides).second);
  }
  Tensor base(const Tensor& flat, const ViewGeometry& v) const {
    return alias(flat, v.base_shape, v.base_strides, base_at);
  }
  Tensor view(const Tensor& flat, const ViewGeometry& v) const { return alias(flat, v.shape, v.strides, view_at); }
};

Tensor dense_copy(const Tensor& x) {
  Tensor y = empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
  backend(x).copy(context(x), y, x);
  return y;
}
}  // namespace

Tensor strided_gather(const Tensor& x, const ViewGeometry& v) {
  const Flat at(v);
  Tensor y;
  if (x.strides() == v.base_strides && at.base_at == 0 && at.size == extent_of(v.base_shape, v.base_strides).second) {
    y = dense_copy(alias(x, v.shape, v.strides, x.storage_offset() + v.offset));
  } else {
    Tensor flat = zeros(at.size, {.dtype = x.dtype(), .device = x.device()});
    backend(x).copy(context(x), at.base(flat, v), x);
    y = dense_copy(at.view(flat, v));
  }
  return record("strided_gather", y, {x}, [v](const Tensor& g) { return Grads{strided_scatter(g, v)}; });
}

Tensor strided_scatter(const Tensor& x, const ViewGeometry& v) {
  const Flat at(v);
  Tensor flat = zeros(at.size, {.dtype = x.dtype(), .device = x.device()});
  if (!may_overlap(v.shape, v.strides)) {
    backend(x).copy(context(x), at.view(flat, v), x);
  } else if (x.numel()) {  // each element of the view names its place in the buffer
    Tensor places = arange(0, at.size, 1, {.device = x.device()});
    const Tensor chosen = dense_copy(at.view(places, v));
    const TensorView index(chosen);
    backend(x).index_put(context(x), flat, x, {&index, 1}, {.accumulate = true});
  }
  return record("strided_scatter", dense_copy(at.base(flat, v)), {x},
                [v](const Tensor& g) { return Grads{strided_gather(g, v)}; });
}

Tensor strided_zero(const Tensor& x, const ViewGeometry& v) {
  const Flat at(v);
  Tensor flat = empty(at.size, {.dtype = x.dtype(), .device = x.device()});
  backend(x).copy(context(x), at.base(flat, v), x);
  backend(x).fill(context(x), at.view(flat, v), 0);
  return record("strided_zero", dense_copy(at.base(flat, v)), {x},
                [v](const Tensor& g) { return Grads{strided_zero(g, v)}; });
}

}  // namespace tapir::inline v0
