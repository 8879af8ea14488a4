#pragma once
#include "../runtime/device.h"

// Decompositions: what stands before cuSOLVER and cuBLAS.
namespace tapir::inline v0::cuda_kernels::solver {

/// A batch of matrices of float32 or float64, each dense and column by column, one behind the other.
struct Matrices {
  void* data = nullptr;
  DType dtype = kFloat32;
  int64_t batch = 0, rows = 0, columns = 0;
  int64_t bytes() const { return rows * columns * size_of(dtype); }
  void* at(int64_t i) const { return static_cast<char*>(data) + i * bytes(); }
};

// No extent is 0. Pointers are to device memory; info has one number per matrix, 0 where all went well.
/// a becomes its factor in the triangle that `upper` names, the other one is not defined. info: the first bad minor.
void cholesky(Context&, const Matrices& a, bool upper, int* info);
/// a becomes L and U; pivots, (batch, n): row i was swapped with row pivots[i] - 1. info: the first pivot that is 0.
void lu(Context&, const Matrices& a, int* pivots, int* info);
/// b becomes the solution of op(a) x = b, a being the triangle that `upper` names.
void solve_triangle(Context&, const Matrices& a, const Matrices& b, bool upper, bool transpose, bool unit);
/// R comes to stand in a's upper triangle; q, where it has data: the first columns of Q.
void qr(Context&, const Matrices& a, const Matrices& q);
/// values, (batch, n), ascending; a becomes its vectors where they are wanted. info: not 0 where it does not converge.
void eigh(Context&, const Matrices& a, bool upper, bool vectors, void* values, int* info);
/// rows >= columns. s, (batch, columns), descending; u and vt may have no data, else u has `columns` or `rows` columns. a is lost.
void svd(Context&, const Matrices& a, void* s, const Matrices& u, const Matrices& vt, int* info);

}  // namespace tapir::inline v0::cuda_kernels::solver
