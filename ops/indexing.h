#pragma once
#include <vector>

#include "../core/index.h"
#include "../core/tensor.h"

namespace tapir::inline v0 {

/// Positions of `index` (1-d integers) along dim, in that order: (..., index.numel(), ...).
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index);
/// out[i][j][k] = x[i][index[i][j][k]][k] for dim = 1; out has index's shape.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
/// x with source added at the places that gather(x, dim, index) would read.
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);
Tensor& scatter_add_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source);
/// x[indices[0], indices[1], ...] with tensors of integers or bools; undefined: all positions of that dimension. A copy.
Tensor index(const Tensor& x, const std::vector<Tensor>& indices);
/// Writes (or adds) values, broadcast, at those places of self.
Tensor& index_put_(Tensor& self, const std::vector<Tensor>& indices, const Tensor& values, bool accumulate = false);
Tensor index_put(const Tensor& self, const std::vector<Tensor>& indices, const Tensor& values, bool accumulate = false);
/// The places of the elements that are not 0: (count, rank) int64, in row-major order.
Tensor nonzero(const Tensor& x);

}  // namespace tapir::inline v0
