#pragma once
#include "../../core/params.h"
#include "../../core/strided_matrix.h"
#include "../runtime/device.h"

// Matrix products: what stands before cuBLASLt.
namespace tapir::inline v0::cuda_kernels::blas {

using Matrix = StridedMatrix;
enum class Gelu : uint8_t { None, Forward, Gradient };
/// Where a_scale is set, a (rows) and b (columns) are bytes of 8-bit floats, and the product is multiplied by both scales, which lie on the device.
struct Float8Operands {
  const float *a_scale = nullptr, *b_scale = nullptr;
  Float8 a = Float8::E4M3, b = Float8::E4M3;
};
/// out = alpha a b + beta c + bias, a: (m, k), b: (k, n), c and out: (m, n), bias: (n) or null. c is read where beta is not 0; it may be
/// out. Sums in float32 or wider, rounded once. Extra work, of batch = 1, beta = 0: sums, where not null, gets the sums of a's rows (m), or
/// where sums_b is set of b's columns (n), no bias then; Forward: out is GELU (by tanh) of that, and `before`, where it has data, gets what that is applied to;
/// Gradient: out is that times the derivative of GELU at `before`, no bias then. bias, sums and before are aligned (is_aligned).
/// widens: c, out, bias and sums are float32, a and b of 16 bits. float8: no extra work; k and n are multiples of 16, a, b and out are aligned.
struct Product {
  DType dtype = kFloat32;
  int64_t batch = 1, m = 0, n = 0, k = 0;
  Matrix a, b, c, out;
  const void* bias = nullptr;
  double alpha = 1, beta = 0;
  void* sums = nullptr;
  bool sums_b = false, widens = false;
  Gelu gelu = Gelu::None;
  Matrix before;
  Float8Operands float8;
  DType out_dtype() const { return widens ? kFloat32 : dtype; }
};
/// The library reads and writes the vectors of its epilogues 16 bytes at a time; which of its kernels do so is not told. Matrices need
/// no more than whole elements: each kernel says what it wants of them.
inline bool is_aligned(const void* p) { return uintptr_t(p) % 16 == 0; }
/// BLAS can take it: one stride is 1, the other one spans the vectors.
inline bool is_blas(const Matrix& x, int64_t rows, int64_t columns) {
  return (x.column == 1 && x.row >= columns) || (x.row == 1 && x.column >= rows);
}
/// Of floating dtypes, all extents above 0, a and b BLAS matrices, c and out row-major ones; no bias in float64. False, and nothing
/// done, where the library has no kernel for it.
bool product(Context& ctx, const Product& p);

}  // namespace tapir::inline v0::cuda_kernels::blas
