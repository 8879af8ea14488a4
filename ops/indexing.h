#pragma once
#include <vector>

#include "../core/index.h"
#include "../core/tensor.h"
#include "gather.h"

namespace tapir::inline v0 {

/// Positions of `index` (1-d integers) along dim, in that order: (..., index.numel(), ...).
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index);
/// x[indices[0], indices[1], ...] with tensors of integers or bools; undefined: all positions of that dimension. A copy.
Tensor index(const Tensor& x, const std::vector<Tensor>& indices);
/// Writes (or adds) values, broadcast, at those places of self.
Tensor& index_put_(Tensor& self, const std::vector<Tensor>& indices, const Tensor& values, bool accumulate = false);
Tensor index_put(const Tensor& self, const std::vector<Tensor>& indices, const Tensor& values, bool accumulate = false);
/// The places of the elements that are not 0: (count, rank) int64, in row-major order.
Tensor nonzero(const Tensor& x);
Tensor argwhere(const Tensor& x);

// Slices at positions `index` (1-d integers) along dim; slice i of source belongs to index[i].

/// x with alpha * source added.
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha = 1);
Tensor& index_add_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha = 1);
/// x with the slices replaced, by those of source, or by a number (or 0-dim tensor).
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);
Tensor& index_copy_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source);
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, const Operand& value);
Tensor& index_fill_(Tensor& self, int64_t dim, const Tensor& index, const Operand& value);

/// The elements of x where mask (bool, broadcast with x) is true, as a vector.
Tensor masked_select(const Tensor& x, const Tensor& mask);
/// x with the elements of source, one after the other, where mask is true. ValueError when there are too few.
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source);
Tensor& masked_scatter_(Tensor& self, const Tensor& mask, const Tensor& source);

// Positions in the flattened tensor; negative ones count from the end.

/// The elements at those positions, in the shape of index.
Tensor take(const Tensor& x, const Tensor& index);
/// x with source (or, accumulate, plus source) at those positions.
Tensor put(const Tensor& x, const Tensor& index, const Tensor& source, bool accumulate = false);
Tensor& put_(Tensor& self, const Tensor& index, const Tensor& source, bool accumulate = false);
/// The coordinates of positions in a tensor of that shape, a tensor for each dimension. ValueError for those outside.
std::vector<Tensor> unravel_index(const Tensor& indices, const Shape& shape);

}  // namespace tapir::inline v0
