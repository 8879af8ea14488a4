#include "stage.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

TensorView contiguous_at(V v, void* data) {
  TensorView flat = v;
  flat.data = data;
  int64_t step = 1;
  for (int64_t d = v.rank; d-- > 0;) flat.strides[d] = step, step *= v.sizes[d];
  return flat;
}

}  // namespace

TensorView in_row_major(Context& ctx, V v, bool read) {
  if (v.is_contiguous()) return v;
  const TensorView flat = contiguous_at(v, ctx.scratch(v.numel() * size_of(v.dtype)));
  if (read) copy(ctx, {flat, v});
  return flat;
}
Flat staged(Context& ctx, V v, bool read) {
  return v.defined() ? Flat{in_row_major(ctx, v, read).data, v.dtype} : Flat{};
}

void unstage(Context& ctx, V v, const Flat& from) {
  if (v.defined() && from.data != v.data) copy(ctx, {v, contiguous_at(v, from.data)});
}

TensorView ordered_as(Context& ctx, V v, V like) {
  if (!is_dense(like.shape(), like.stride_list())) return v;
  TensorView copied = like;
  copied.data = ctx.scratch(v.numel() * size_of(v.dtype)), copied.dtype = v.dtype;
  copy(ctx, {copied, v});
  return copied;
}

}  // namespace tapir::inline v0::cuda_kernels
