#pragma once
#include <cstdint>

#include "../autograd/arith.h"
#include "../core/tensor.h"

namespace tapir::inline v0 {

Tensor zeros(const Shape& shape, const TensorOptions& options = {});
Tensor ones(const Shape& shape, const TensorOptions& options = {});
/// Filled with `value`; no dtype: int64, float32 or bool, by the kind of the number. ValueError where the dtype cannot hold it.
Tensor full(const Shape& shape, Scalar value, const TensorOptions& options = {});
Tensor zeros_like(const Tensor& x, const LikeOptions& options);
Tensor ones_like(const Tensor& x, const LikeOptions& options = {});
Tensor full_like(const Tensor& x, Scalar value, const LikeOptions& options = {});
Tensor& fill_(Tensor& self, Scalar value);
Tensor& zero_(Tensor& self);
/// start, start + step, ... below end: ceil((end - start) / step) elements.
Tensor arange(Scalar start, Scalar end, Scalar step = 1, const TensorOptions& options = {});
inline Tensor arange(Scalar end, const TensorOptions& options = {}) { return arange(0, end, 1, options); }
/// `steps` values, evenly spaced, both ends included.
Tensor linspace(Scalar start, Scalar end, int64_t steps, const TensorOptions& options = {});
/// base to the power of `steps` values, evenly spaced from start to end.
Tensor logspace(Scalar start, Scalar end, int64_t steps, double base = 10, const TensorOptions& options = {});
/// The n x m identity (m = n by default).
Tensor eye(int64_t n, int64_t m = -1, const TensorOptions& options = {});
inline Tensor eye(int64_t n, const TensorOptions& options) { return eye(n, -1, options); }

}  // namespace tapir::inline v0
