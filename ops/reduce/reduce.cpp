#include "../reduce.h"

#include <algorithm>

#include "../arithmetic.h"
#include "../autocast.h"
#include "../cast.h"
#include "../compare.h"
#include "../create.h"
#include "../front.h"
#include "../shape.h"
#include "../ternary.h"
#include "../unary.h"
#include "reduce_front.h"

namespace tapir::inline v0 {

Tensor run_reduce(const Tensor& x, const ReduceParams& params, DType dtype) {
  Shape kept = x.shape();
  for (int64_t d = 0; d < kept.size(); ++d)
    if (params.dims >> d & 1) kept[d] = 1;
  Tensor y = empty(kept, {.dtype = dtype, .device = x.device()});
  backend(x).reduce(context(x), {y, x, params});
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

Dims mask_dims(uint32_t mask) {
  Dims dims;
  for (int64_t d = 0; mask >> d; ++d)
    if (mask >> d & 1) dims.push_back(d);
  return dims;
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
  if (!o.dtype) TAPIR_AUTOCAST(sum, x, dims, o);
  const uint32_t mask = reduce_mask("sum", dims, x);
  const DType dtype = o.dtype.value_or(is_floating(x.dtype()) ? x.dtype() : kInt64);
  const Tensor from = is_floating(dtype) || o.dtype ? to(x, dtype) : x;  // the kernel sums integers in int64
  return sum_or_mean("sum", ReduceOp::Sum, from, mask, o.keepdim, dtype);
}

Tensor mean(const Tensor& x, const Dims& dims, const ReduceOptions& o) {
  check_defined("mean", "x", x);
  const DType dtype = o.dtype.value_or(x.dtype());
  check(is_floating(dtype), "[mean] input dtype must be a floating point dtype, got {}; ask for one with .dtype",
        dtype);
  return sum_or_mean("mean", ReduceOp::Mean, to(x, dtype), reduce_mask("mean", dims, x), o.keepdim, dtype);
}

static Tensor not_nan(const Tensor& x) { return logical_not(isnan(x)); }
Tensor nansum(const Tensor& x, const Dims& dims, const ReduceOptions& o) try {
  if (!is_floating(x.dtype())) return sum(x, dims, o);
  const uint32_t mask = reduce_mask("nansum", dims, x);
  const Tensor from = to(x, o.dtype.value_or(x.dtype()));
  if (!is_floating(from.dtype())) return sum(from, dims, o);
  const bool keepdim = o.keepdim;
  const Tensor y = drop_reduced(run_reduce(from, {ReduceOp::NanSum, mask}, from.dtype()), mask, keepdim);
  return record("nansum", y, {from}, save(from), [=](const Tensor& g, const Tensor& x) {
    return Grads{where(not_nan(x), expand_reduced(g, x.shape(), mask, keepdim), 0)};
  });
} catch (...) {
  fail_as("nansum");
}
Tensor nanmean(const Tensor& x, const Dims& dims, const ReduceOptions& o) try {
  check_defined("nanmean", "x", x);
  check(is_floating(x.dtype()), "[nanmean] expected a tensor of floating point dtype, got {}", x);
  const DType dtype = o.dtype.value_or(x.dtype()),
              wide = compute_type(dtype);  // 16 bits may not hold the sum or the count
  const Tensor total = nansum(x, dims, {.keepdim = o.keepdim, .dtype = wide});
  return to(div(total, sum(not_nan(x), dims, {.keepdim = o.keepdim})), dtype);
} catch (...) {
  fail_as("nanmean");
}

Tensor count_nonzero(const Tensor& x, const Dims& dims) {  // the 0-norm
  const uint32_t mask = reduce_mask("count_nonzero", dims, x);
  return drop_reduced(run_reduce(x, {.op = ReduceOp::NormP, .dims = mask, .p = 0}, kInt64), mask, false);
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  const int64_t lead = x.dim() - shape.size();
  uint32_t mask = 0;
  for (int64_t d = 0; d < x.dim(); ++d)
    if (d < lead || (shape[d - lead] == 1 && x.shape()[d] != 1)) mask |= 1u << d;
  if (!broadcasts_to(shape, x.shape()))
    fail(ErrorKind::Internal, "[sum_to] expected a gradient whose shape {} broadcasts from {}", x.shape(), shape);
  Tensor y = mask ? sum_or_mean("sum_to", ReduceOp::Sum, x, mask, true, x.dtype()) : x;
  return y.shape() == shape ? y : view(y, shape);
}

// The gradient of a product is g times the product of the others. Once: the product p of what is not 0, over x; where
// there is a zero, only it has a gradient, p, and where there are two, none has. To be differentiated itself, that is
// written as products of copies of x in which the element in question is 1, n copies of n elements.
static Tensor prod_of_others(const Tensor& x, uint32_t mask) {
  Dims order;
  for (int64_t d = 0; d < x.dim(); ++d)
    if (!(mask >> d & 1)) order.push_back(d);
  Shape shape;
  int64_t n = 1;
  for (int64_t d : order) shape.push_back(x.shape()[d]);
  for (int64_t d : mask_dims(mask)) order.push_back(d), n *= x.shape()[d];
  Dims back = order;
  for (int64_t i = 0; i < order.size(); ++i) back[order[i]] = i;
  const Tensor moved = permute(x, order);
  shape.push_back(1), shape.push_back(n);
  Shape copies = shape;
  copies[shape.size() - 2] = n;
  const Tensor others =
      masked_fill(expand(reshape(moved, shape), copies), eye(n, n, {.dtype = kBool, .device = x.device()}), 1);
  return permute(reshape(prod(others, -1), moved.shape()), back);
}
static Tensor prod_gradient(const Tensor& g, const Tensor& x, uint32_t mask, bool keepdim) {
  const Tensor wide = expand_reduced(g, x.shape(), mask, keepdim);
  if (modes.grad) return mul(wide, prod_of_others(x, mask));
  const Dims dims = mask_dims(mask);
  const Tensor zeros = eq(x, 0), rest = masked_fill(x, zeros, 1);
  const Tensor alone = eq(sum(zeros, dims, {.keepdim = true}), zeros);  // no zero but itself
  return mul(wide, where(alone, div(prod(rest, dims, {.keepdim = true}), rest), 0));
}
Tensor prod(const Tensor& x, const Dims& dims, const ReduceOptions& o) {
  if (!o.dtype) TAPIR_AUTOCAST(prod, x, dims, o);
  const uint32_t mask = reduce_mask("prod", dims, x);
  const DType dtype = o.dtype.value_or(is_floating(x.dtype()) ? x.dtype() : kInt64);
  const Tensor from = to(x, dtype);
  const Tensor y = drop_reduced(run_reduce(from, {ReduceOp::Prod, mask}, dtype), mask, o.keepdim);
  return record("prod", y, {from}, save(from), [mask, keepdim = o.keepdim](const Tensor& g, const Tensor& x) {
    return Grads{prod_gradient(g, x, mask, keepdim)};
  });
}

static Tensor truth(const char* name, ReduceOp op, const Tensor& x, const Dims& dims, bool keepdim) {
  const uint32_t mask = reduce_mask(name, dims, x);
  return drop_reduced(run_reduce(x, {op, mask}, x.dtype() == kUInt8 ? kUInt8 : kBool), mask, keepdim);
}
Tensor any(const Tensor& x, const Dims& dims, const KeepdimOptions& o) {
  return truth("any", ReduceOp::Any, x, dims, o.keepdim);
}
Tensor all(const Tensor& x, const Dims& dims, const KeepdimOptions& o) {
  return truth("all", ReduceOp::All, x, dims, o.keepdim);
}

Tensor logsumexp(const Tensor& x, const Dims& dims, const KeepdimOptions& o) {
  TAPIR_AUTOCAST(logsumexp, x, dims, o);
  const uint32_t mask = reduce_mask("logsumexp", dims, x);
  const Tensor from = to(x, float_type(x.dtype()));
  const Tensor y = drop_reduced(run_reduce(from, {ReduceOp::LogSumExp, mask}, from.dtype()), mask, o.keepdim);
  return record("logsumexp", y, {from}, save(from, y),
                [mask, keepdim = o.keepdim](const Tensor& g, const Tensor& x, const Tensor& y) {
                  const Shape shape = x.shape();
                  return Grads{mul(expand_reduced(g, shape, mask, keepdim),
                                   exp(sub(x, expand_reduced(y, shape, mask, keepdim))))};
                });
}

}  // namespace tapir::inline v0
