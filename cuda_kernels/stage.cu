#include "stage.h"

#include "../core/dispatch.h"
#include "kernel.h"
#include "launch.h"
#include "layout.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

template <class T> __global__ void move_elements(T* to, const T* from, const Layout<2> layout) {
  for (const int64_t i : grid_stride(layout.numel)) {
    int64_t at[2];
    layout.offsets(i, at);
    to[at[0]] = from[at[1]];
  }
}

void move(Context& ctx, V to, V from) {
  const Layout<2> layout = layout_of<2>({&to, &from});
  for_size(to.dtype, [&]<class T>() {
    launch(ctx, "stage", grid_of(layout.numel), move_elements<T>, to.as<T>(), from.as<T>(), layout);
  });
}

TensorView contiguous_at(V v, void* data) {
  TensorView flat = v;
  flat.data = data;
  int64_t step = 1;
  for (int64_t d = v.rank; d-- > 0;) flat.strides[d] = step, step *= v.sizes[d];
  return flat;
}

}  // namespace

Flat staged(Context& ctx, V v, bool read) {
  if (!v.defined()) return {};
  if (v.is_contiguous()) return {v.data, v.dtype};
  const TensorView flat = contiguous_at(v, ctx.scratch(v.numel() * size_of(v.dtype)));
  if (read) move(ctx, flat, v);
  return {flat.data, flat.dtype};
}

void unstage(Context& ctx, V v, const Flat& from) {
  if (v.defined() && from.data != v.data) move(ctx, v, contiguous_at(v, from.data));
}

TensorView ordered_as(Context& ctx, V v, V like) {
  if (!is_dense(like.shape(), like.stride_list())) return v;
  TensorView copied = like;
  copied.data = ctx.scratch(v.numel() * size_of(v.dtype)), copied.dtype = v.dtype;
  copy(ctx, {copied, v});
  return copied;
}

}  // namespace tapir::inline v0::cuda_kernels
