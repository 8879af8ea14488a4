#pragma once
#include "../dnn.h"

// What oneDNN may be handed, in one place. Note [Strides for oneDNN]
// A stride of an extent of 1 says nothing, and the library reads it all the same: 3.7.2 (brg_matmul:avx512_core) is wrong for one row
// whose elements lie apart, and for one column of results that lie apart, which can both pass for a transposed matrix. So a matrix is
// handed over as dense along one dimension, with a true leading dimension (at least the extent) along the other; a vector, of one row
// or one column, is dense and row-major. What is not so is copied, or left to our own kernels.
namespace tapir::inline v0::cpu::dnn {

/// Whether the library may have x. A vector that it may have gets the strides of a row-major matrix.
bool canonical(Matrix& x, int64_t rows, int64_t columns);

/// g with matrices that the library may have: a and b copied where they must be. False: it may not write to out.
bool suit(Context& ctx, Gemm& g);

}  // namespace tapir::inline v0::cpu::dnn
