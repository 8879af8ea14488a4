#pragma once
#include "../core/tensor.h"

namespace tapir::inline v0 {

/// Factors of integers: matrix products cut a fraction off, as PyTorch's do; addr refuses it.
struct AddmmOptions {
  Scalar beta = 1, alpha = 1;
};

/// (..., M, K) x (..., K, N) -> (..., M, N), leading dimensions broadcast; an operand of rank 1 is a row (left) or a column
/// (right) that the result does not keep. ValueError for rank 0, sizes that do not fit and dtypes that differ.
Tensor matmul(const Tensor& a, const Tensor& b);
/// (M, K) x (K, N) -> (M, N)
Tensor mm(const Tensor& a, const Tensor& b);
/// (B, M, K) x (B, K, N) -> (B, M, N)
Tensor bmm(const Tensor& a, const Tensor& b);
/// (M, K) x (K) -> (M)
Tensor mv(const Tensor& a, const Tensor& x);
/// The inner product of two vectors of one length, a 0-dim tensor.
Tensor dot(const Tensor& a, const Tensor& b);
/// (M), (N) -> (M, N)
Tensor outer(const Tensor& a, const Tensor& b);
/// beta input + alpha a b; input broadcasts to (M, N), and is not read where beta is 0.
Tensor addmm(const Tensor& input, const Tensor& a, const Tensor& b, const AddmmOptions& options = {});
/// The same for batches: (B, M, K) x (B, K, N).
Tensor baddbmm(const Tensor& input, const Tensor& a, const Tensor& b, const AddmmOptions& options = {});
/// beta input + alpha a x; a: (M, K), x: (K), input broadcasts to (M).
Tensor addmv(const Tensor& input, const Tensor& a, const Tensor& x, const AddmmOptions& options = {});
/// The same into self, which has the shape of the product.
Tensor& addmm_(Tensor& self, const Tensor& a, const Tensor& b, const AddmmOptions& options = {});
Tensor& baddbmm_(Tensor& self, const Tensor& a, const Tensor& b, const AddmmOptions& options = {});
Tensor& addmv_(Tensor& self, const Tensor& a, const Tensor& x, const AddmmOptions& options = {});
/// x w^T + bias. x: (..., in), weight: (out, in) or (in), bias: (out) or absent -> (..., out).
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// gelu(linear(x, weight, bias), "tanh"), as one kernel where the device has it (CUDA: 16-bit floats). Floating point only.
Tensor linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace tapir::inline v0
