#pragma once
#include <optional>
#include <span>
#include <vector>

#include "../core/tensor.h"
#include "matmul.h"

namespace tapir::inline v0 {

/// beta input + alpha outer(a, b); a: (M), b: (N), input broadcasts to (M, N), and is not read where beta is 0.
Tensor addr(const Tensor& input, const Tensor& a, const Tensor& b, const AddmmOptions& options = {});
Tensor& addr_(Tensor& self, const Tensor& a, const Tensor& b, const AddmmOptions& options = {});
/// beta input + alpha (sum of the products of a batch): (B, M, K) x (B, K, N), input broadcasts to (M, N).
Tensor addbmm(const Tensor& input, const Tensor& a, const Tensor& b, const AddmmOptions& options = {});
Tensor& addbmm_(Tensor& self, const Tensor& a, const Tensor& b, const AddmmOptions& options = {});
/// The product of one or more matrices, in the order that takes the fewest operations.
Tensor chain_matmul(std::span<const Tensor> matrices);
inline Tensor chain_matmul(const std::vector<Tensor>& matrices) { return chain_matmul(std::span(matrices)); }
/// The vector product along a dimension of size 3 (the first such one by default); both have as many dimensions.
Tensor cross(const Tensor& a, const Tensor& b, std::optional<int64_t> dim = {});
/// The Kronecker product: blocks a_ij b, in every dimension; the shorter shape is filled up with 1s in front.
Tensor kron(const Tensor& a, const Tensor& b);
/// dot() and outer() under their BLAS names.
inline Tensor vdot(const Tensor& a, const Tensor& b) { return dot(a, b); }
inline Tensor ger(const Tensor& a, const Tensor& b) { return outer(a, b); }

namespace linalg {
/// Inner products along a dimension; the others broadcast.
Tensor vecdot(const Tensor& a, const Tensor& b, int64_t dim = -1);
/// The product of two or more matrices; the first may be a row, the last a column, given as vectors.
Tensor multi_dot(std::span<const Tensor> tensors);
inline Tensor multi_dot(const std::vector<Tensor>& tensors) { return multi_dot(std::span(tensors)); }
Tensor cross(const Tensor& a, const Tensor& b, int64_t dim = -1);
}  // namespace linalg

}  // namespace tapir::inline v0
