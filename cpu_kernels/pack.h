#pragma once
#include "dnn.h"
#include "kernels.h"

namespace tapir::inline v0::cpu {

/// A new view of that shape in scratch memory, row-major.
inline TensorView scratch_like(Context& ctx, V x, DType dtype) {
  TensorView y = x;
  y.dtype = dtype;
  int64_t step = 1;
  for (int64_t d = x.rank; d-- > 0;) {
    y.strides[d] = x.sizes[d] > 1 && x.strides[d] == 0 ? 0 : step;  // what repeats stays one
    step *= y.strides[d] == 0 ? 1 : x.sizes[d];
  }
  y.data = ctx.scratch(step * size_of(dtype));
  return y;
}
/// x with every axis that repeats (stride 0) cut to extent 1.
inline TensorView without_repeats(V x) {
  TensorView y = x;
  for (int64_t d = 0; d < x.rank; ++d)
    if (x.strides[d] == 0) y.sizes[d] = 1;
  return y;
}
/// A copy of x in scratch memory, row-major; axes that repeat still do.
inline TensorView packed(Context& ctx, V x, DType dtype) {
  const TensorView y = scratch_like(ctx, x, dtype);
  copy(ctx, {without_repeats(y), without_repeats(x)});
  return y;
}
/// The same without repeats: truly dense.
inline TensorView dense(Context& ctx, V x, DType dtype) {
  TensorView y = x;
  for (int64_t d = x.rank, step = 1; d-- > 0; step *= x.sizes[d]) y.strides[d] = step;
  y.dtype = dtype;
  y.data = ctx.scratch(x.numel() * size_of(dtype));
  copy(ctx, {y, x});
  return y;
}
/// True when the elements of the last `axes` dimensions lie side by side, row-major.
inline bool is_dense_inside(V x, int64_t axes) {
  bool is_dense = true;
  for (int64_t d = x.rank, step = 1; d-- > x.rank - axes; step *= x.sizes[d])
    is_dense = is_dense && (x.strides[d] == step || x.sizes[d] == 1);
  return is_dense;
}
/// x, (batch, rows, columns), as dense rows; one matrix for the whole batch stays one.
inline dnn::Matrix dense(Context& ctx, const dnn::Matrix& x, DType dtype, int64_t batch, int64_t rows,
                         int64_t columns) {
  TensorView v;
  v.data = x.data, v.dtype = dtype, v.rank = 3;
  v.sizes[0] = x.batch == 0 ? 1 : batch, v.sizes[1] = rows, v.sizes[2] = columns;
  v.strides[0] = x.batch, v.strides[1] = x.row, v.strides[2] = x.column;
  return {dense(ctx, v, dtype).data, x.batch == 0 ? 0 : rows * columns, columns, 1};
}

}  // namespace tapir::inline v0::cpu
