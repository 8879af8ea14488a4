// Gradients through any geometry: what as_strided and writes to views are made of (autograd/arith.h).
#include <algorithm>

#include "../../autograd/arith.h"
#include "../arithmetic.h"
#include "../cast.h"
#include "../create.h"
#include "../front.h"
#include "../shape.h"
#include "../ternary.h"

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
  Tensor zeros_for(const Tensor& x) const { return zeros(size, {.dtype = x.dtype(), .device = x.device()}); }
};

Tensor dense_copy(const Tensor& x) {
  Tensor y = empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
  backend(x).copy(context(x), {y, x});
  return y;
}
/// x written to `place`, a view of a flat buffer of zeros; elements that share a place are summed.
void write_to(const Tensor& flat, const Tensor& place, const Tensor& x) {
  if (!may_overlap(place.shape(), place.strides())) return backend(x).copy(context(x), {place, x});
  if (x.numel() == 0) return;
  const Tensor numbers = arange(0, flat.numel(), 1, {.device = x.device()});
  const Tensor chosen = dense_copy(alias(numbers, place.shape(), place.strides(), place.storage_offset()));
  backend(x).index_put(context(x), {flat, x, {chosen}, {.accumulate = true}});
}
/// Where elements of the base share a place (it was expanded), each has its part of what lies there.
void share(Tensor flat, const Flat& at, const ViewGeometry& v) {
  if (!may_overlap(v.base_shape, v.base_strides)) return;
  const Tensor count = zeros_like(flat);
  write_to(count, at.base(count, v), expand(ones({}, {.dtype = flat.dtype(), .device = flat.device()}), v.base_shape));
  div_(flat, clamp_min(count, 1));
}
}  // namespace

Tensor strided_gather(const Tensor& x, const ViewGeometry& v) {
  const Flat at(v);
  Tensor y;
  if (x.strides() == v.base_strides && at.base_at == 0 && at.size == extent_of(v.base_shape, v.base_strides).second) {
    y = dense_copy(alias(x, v.shape, v.strides, x.storage_offset() + v.offset));
  } else {
    const Tensor flat = at.zeros_for(x);
    write_to(flat, at.base(flat, v), x), share(flat, at, v);
    y = dense_copy(at.view(flat, v));
  }
  return record("strided_gather", y, {x}, [v](const Tensor& g) { return Grads{strided_scatter(g, v)}; });
}

Tensor strided_scatter(const Tensor& x, const ViewGeometry& v) {
  const Flat at(v);
  const Tensor flat = at.zeros_for(x);
  write_to(flat, at.view(flat, v), x), share(flat, at, v);
  return record("strided_scatter", dense_copy(at.base(flat, v)), {x},
                [v](const Tensor& g) { return Grads{strided_gather(g, v)}; });
}

Tensor strided_zero(const Tensor& x, const ViewGeometry& v) {
  const Flat at(v);
  Tensor flat = empty(at.size, {.dtype = x.dtype(), .device = x.device()});
  backend(x).copy(context(x), {at.base(flat, v), x});
  backend(x).fill(context(x), {at.view(flat, v), 0});
  return record("strided_zero", dense_copy(at.base(flat, v)), {x},
                [v](const Tensor& g) { return Grads{strided_zero(g, v)}; });
}

}  // namespace tapir::inline v0
