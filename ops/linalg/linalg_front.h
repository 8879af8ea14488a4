#pragma once
// What the functions of matrices share.
#include "../../autograd/record.h"
#include "../../core/backend.h"
#include "../front.h"
#include "../shape.h"

namespace tapir::inline v0 {

inline int64_t rows(const Tensor& a) { return a.shape()[a.dim() - 2]; }
inline int64_t columns(const Tensor& a) { return a.shape().back(); }
inline Tensor transposed(const Tensor& a) { return transpose(a, -2, -1); }
inline Shape batch_of(const Tensor& a) { return std::span(a.shape().data(), size_t(a.dim() - 2)); }
inline Shape shape_of(Shape batch, std::initializer_list<int64_t> tail) {
  for (int64_t n : tail) batch.push_back(n);
  return batch;
}
inline Tensor empty_of(const Tensor& a, const Shape& shape) {
  return empty(shape, {.dtype = a.dtype(), .device = a.device()});
}

/// float32 or float64 matrices, or ValueError.
void check_matrices(const char* op, const Tensor& a);
void check_square(const char* op, const Tensor& a);
/// Two operands of one dtype and device.
void check_pair(const char* op, const Tensor& a, const Tensor& b);
/// The kernel; gives the first matrix that it cannot do, if there is one.
ErrorWord run_linalg(const Tensor& a, std::initializer_list<TensorView> outs, std::initializer_list<TensorView> ins,
                     const LinalgParams& params);

/// The identity for each of a's matrices, as a view.
Tensor identity_like(const Tensor& a);

}  // namespace tapir::inline v0
