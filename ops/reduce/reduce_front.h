#pragma once
// What reductions share. A mask has bit d set where dimension d is reduced.
#include "../../core/backend.h"

namespace tapir::inline v0 {

/// The kernel's result: reduced dimensions stay with extent 1.
Tensor run_reduce(const Tensor& x, const ReduceParams& params, DType dtype);
Shape reduced_shape(const Shape& shape, uint32_t mask, bool keepdim);
/// The same memory without the reduced dimensions; no history.
Tensor drop_reduced(const Tensor& y, uint32_t mask, bool keepdim);
/// g (of the reduced shape) back to `shape`, repeated along the reduced dimensions; differentiable.
Tensor expand_reduced(const Tensor& g, const Shape& shape, uint32_t mask, bool keepdim);

/// The dimensions in the mask, as a list.
Dims mask_dims(uint32_t mask);
/// ValueError where a reduction that has no value for nothing meets an extent of 0.
void check_not_empty(const char* op, const Tensor& x, uint32_t mask);
/// g shared equally by the elements of x that equal y, their largest or smallest one (or its magnitude).
Tensor share_among_ties(const Tensor& g, const Tensor& x, const Tensor& y, uint32_t mask, bool keepdim);

/// The gradient of y, the p-norm of x over the dimensions of the mask.
Tensor norm_gradient(const Tensor& g, const Tensor& x, const Tensor& y, double p, uint32_t mask, bool keepdim);

}  // namespace tapir::inline v0
