#pragma once
#include <vector>

#include "../core/tensor.h"

namespace tapir::inline v0 {

// Diagonals and triangles. Diagonal k of a matrix is where column - row = k.

/// Diagonal `offset` of the matrices that dim1 and dim2 span, as a last dimension; a view.
Tensor diagonal(const Tensor& x, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1);
/// Zeros with x's last dimension on that diagonal of matrices that dim1 and dim2 of the result span.
Tensor diag_embed(const Tensor& x, int64_t offset = 0, int64_t dim1 = -2, int64_t dim2 = -1);
/// A vector as the diagonal of a matrix of zeros, or the diagonal of a matrix, copied.
Tensor diag(const Tensor& x, int64_t diagonal = 0);
/// x with `source` on that diagonal.
Tensor diagonal_scatter(const Tensor& x, const Tensor& source, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1);
/// The sum of the diagonal of a matrix; integers and bool give int64.
Tensor trace(const Tensor& x);
/// The matrices of the last two dimensions with zeros above (tril) or below (triu) that diagonal.
Tensor tril(const Tensor& x, int64_t diagonal = 0);
Tensor triu(const Tensor& x, int64_t diagonal = 0);
Tensor& tril_(Tensor& self, int64_t diagonal = 0);
Tensor& triu_(Tensor& self, int64_t diagonal = 0);
/// The places of that part of a row x col matrix, row by row: (2, count), int64 by default.
Tensor tril_indices(int64_t row, int64_t col, int64_t offset = 0, const TensorOptions& options = {});
Tensor triu_indices(int64_t row, int64_t col, int64_t offset = 0, const TensorOptions& options = {});
/// Matrices (vectors and numbers: of one row) along the diagonal of one of zeros.
Tensor block_diag(const std::vector<Tensor>& tensors);

}  // namespace tapir::inline v0
