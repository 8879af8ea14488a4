#pragma once
#include <optional>

#include "../core/tensor.h"

namespace tapir::inline v0 {

/// The same elements in another shape, sharing memory; one size may be -1. ValueError where strides do not allow it.
Tensor view(const Tensor& x, const Shape& shape);
/// The same, with a copy where a view is not possible.
Tensor reshape(const Tensor& x, const Shape& shape);
/// Dimensions start_dim to end_dim become one.
Tensor flatten(const Tensor& x, int64_t start_dim = 0, int64_t end_dim = -1);
Tensor permute(const Tensor& x, const Dims& dims);
Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1);
/// The transpose of a matrix; x itself below rank 2.
Tensor t(const Tensor& x);
/// Extents of 1 removed: all of them, or those of `dims` that are 1.
Tensor squeeze(const Tensor& x);
Tensor squeeze(const Tensor& x, const Dims& dims);
Tensor unsqueeze(const Tensor& x, int64_t dim);
/// Extents of 1 repeated, as a view; -1 keeps a size.
Tensor expand(const Tensor& x, const Shape& shape);
/// Any geometry over x's storage; `offset` in elements from the storage's start (default: x's own).
Tensor as_strided(const Tensor& x, const Shape& shape, const Strides& strides, std::optional<int64_t> offset = {});

// In place: the handle itself takes the new geometry, the memory stays as it is.
Tensor& transpose_(Tensor& self, int64_t dim0, int64_t dim1);
Tensor& t_(Tensor& self);
Tensor& squeeze_(Tensor& self);
Tensor& squeeze_(Tensor& self, const Dims& dims);
Tensor& unsqueeze_(Tensor& self, int64_t dim);
Tensor& as_strided_(Tensor& self, const Shape& shape, const Strides& strides, std::optional<int64_t> offset = {});

}  // namespace tapir::inline v0
