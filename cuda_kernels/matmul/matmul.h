#pragma once
#include "../vendor/blas.h"

namespace tapir::inline v0::cuda_kernels {

/// The product of any dtype with any strides, 0 included, and k = 0: integers, and what the library does not take.
void strided_product(Context& ctx, const blas::Product& p);
/// v in row-major scratch memory of its own dtype: a copy of it, or only the room.
TensorView dense_copy(Context& ctx, V v);
TensorView dense_room(Context& ctx, V v);

}  // namespace tapir::inline v0::cuda_kernels
