#include "reduce.h"

#include "arithmetic.h"
#include "cast.h"
#include "front.h"
#include "reduce_front.h"
#include "shape.h"

namespace tapir::inline v0 {

Tensor run_reduce(const Tensor& x, const ReduceParams& params, DType dtype) {
  Shape kept = x.shape();
  for (int64_t d = 0; d < kept.size(); ++d)
    if (params.dims >> d & 1) kept[d] = 1;
  Tensor y = empty(kept, {.dtype = dtype, .device = x.device()});
  backend(x).reduce(context(x), y, x, params);
  return y;
}

Shape reduced_shape(const Shape& shape, uint32_t mask, bool keepdim) {
  Shape out;
  for (int64_t d = 0; d < shape.size(); ++d) {
    if (!(mask >> d & 1)) out.push_back(shape[d]);
    else if (keepdim) out.push_back(1);
  }
  return out;
}

Tensor drop_reduced(const Tensor& y, uint32_t mask, bool keepdim) {
  if (keepdim || mask == 0) return y;
  Shape shape;
  Strides strides;
  for (int64_t d = 0; d < y.dim(); ++d)
    if (!(mask >> d & 1)) shape.push_back(y.shape()[d]), strides.push_back(y.strides()[d]);
  return alias(y, shape, strides, y.storage_offset());
}

Tensor expand_reduced(const Tensor& g, const Shape& shape, uint32_t mask, bool keepdim) {
  if (keepdim || mask == 0) return expand(g, shape);
  Shape kept = shape;
  for (int64_t d = 0; d < kept.size(); ++d)
    if (mask >> d & 1) kept[d] = 1;
  return expand(view(g, kept), shape);
}

static Tensor sum_or_mean(const char* name, ReduceOp op, const Tensor& x, uint32_t mask, bool keepdim, DType dtype) {
  Tensor y = drop_reduced(run_reduce(x, {op, mask}, dtype), mask, keepdim);
  double factor = 1;
  if (op == ReduceOp::Mean && x.numel()) factor = double(y.numel()) / double(x.numel());
  const Shape shape = x.shape();
  return record(name, y, {x}, [=](const Tensor& g) {
    const Tensor wide = expand_reduced(g, shape, mask, keepdim);
    return Grads{factor == 1 ? wide : mul(wide, factor)};
  });
}

Tensor sum(const Tensor& x, const Dims& dims, const ReduceOptions& o) {
  const uint32_t mask = reduce_mask("sum", dims, x.dim());
  const DType dtype = o.dtype.value_or(is_floating(x.dtype()) ? x.dtype() : kInt64);
  const Tensor from = is_floating(dtype) && is_floating(x.dtype()) ? to(x, dtype) : is_floating(dtype) || o.dtype ? to(x, dtype) : x;
  return sum_or_mean("sum", ReduceOp::Sum, from, mask, o.keepdim, dtype);
}

Tensor mean(const Tensor& x, const Dims& dims, const ReduceOptions& o) {
  const DType dtype = o.dtype.value_or(x.dtype());
  check(is_floating(dtype), "[mean] input dtype must be a floating point dtype, got {}; ask for one with .dtype", dtype);
  return sum_or_mean("mean", ReduceOp::Mean, to(x, dtype), reduce_mask("mean", dims, x.dim()), o.keepdim, dtype);
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  const int64_t lead = x.dim() - shape.size();
  uint32_t mask = 0;
  for (int64_t d = 0; d < x.dim(); ++d)
    if (d < lead || (shape[d - lead] == 1 && x.shape()[d] != 1)) mask |= 1u << d;
  if (!broadcasts_to(shape, x.shape())) fail(ErrorKind::Internal, "[sum_to] expected a gradient whose shape {} broadcasts from {}", x.shape(), shape);
  Tensor y = mask ? sum_or_mean("sum_to", ReduceOp::Sum, x, mask, true, x.dtype()) : x;
  return y.shape() == shape ? y : view(y, shape);
}

}  // namespace tapir::inline v0
