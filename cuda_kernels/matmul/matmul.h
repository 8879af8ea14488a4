#pragma once
#include "../vendor/blas.h"

namespace tapir::inline v0::cuda_kernels {

/// The product of any dtype with any strides, 0 included, and k = 0: integers, and what the library does not take.
void strided_product(Context& ctx, const blas::Product& p);
/// C = A B as C^T = B^T A^T.
void transpose(blas::Product& p);
/// The product of up to 8 rows, or columns, in 16 or 32 bits, with GELU but without sums and bias. False, and nothing done, for others.
bool few_rows_product(Context& ctx, blas::Product p);
/// The same with a norm of those rows in the same kernel. False, and nothing done, where operands do not lie as it wants them.
bool few_rows_norm_product(Context& ctx, const entry::NormMatmul& c);
/// Does the product gain by copies of its operands (Note [Rows of 16 bits])? It has no extra work then.
bool goes_by_pieces(const blas::Product& p);
/// blas::product(), which it calls, for such a one.
bool product_by_pieces(Context& ctx, const blas::Product& p);
/// A matrix of p, or all of its batch.
TensorView view_of(const blas::Product& p, const blas::Matrix& x, int64_t rows, int64_t columns);
/// v in row-major scratch memory of its own dtype: a copy of it, or only the room.
TensorView dense_copy(Context& ctx, V v);
TensorView dense_room(Context& ctx, V v);

}  // namespace tapir::inline v0::cuda_kernels
