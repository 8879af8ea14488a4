#include "scan.h"

#include "cast.h"
#include "front.h"

namespace tapir::inline v0 {

/// The same elements with dimension dim from its end to its start.
static TensorView reversed(const Tensor& x, int64_t dim) {
  TensorView v(x);
  if (v.rank == 0 || x.numel() == 0) return v;
  v.data = static_cast<char*>(v.data) + (v.sizes[dim] - 1) * v.strides[dim] * size_of(v.dtype);
  v.strides[dim] = -v.strides[dim];
  return v;
}

/// From the last element to the first one when `backwards`: each is the gradient of the other.
static Tensor running_sums(const char* name, const Tensor& x, int64_t dim, bool backwards, Tensor y) {
  if (backwards) backend(x).scan(context(x), reversed(y, dim), {}, reversed(x, dim), {ScanOp::CumSum, dim});
  else backend(x).scan(context(x), y, {}, x, {ScanOp::CumSum, dim});
  return record(name, y, {x}, [name, dim, backwards](const Tensor& g) {
    return Grads{running_sums(name, g, dim, !backwards, empty_like(g))};
  });
}

Tensor cumsum(const Tensor& x, int64_t dim, const ScanOptions& o) {
  dim = wrap_dim("cumsum", dim, x.dim());
  const DType dtype = o.dtype.value_or(is_floating(x.dtype()) ? x.dtype() : kInt64);
  const Tensor from = to(x, dtype);
  return running_sums("cumsum", from, dim, false, empty_pointwise(x.shape(), dtype, x.device(), {&from}));
}
Tensor& cumsum_(Tensor& self, int64_t dim) {
  dim = wrap_dim("cumsum_", dim, self.dim());
  check_inplace("cumsum_", self, wants_grad({self}));
  return running_sums("cumsum_", self, dim, false, self), self;
}

}  // namespace tapir::inline v0
