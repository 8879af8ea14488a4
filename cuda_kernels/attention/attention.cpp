#include "attention.h"

#include "../kernels.h"
#include "../vendor/dnn.h"

// Attention: float16 and bfloat16 without a mask or dropout are cuDNN's, whose kernels use tensor cores; the rest, and one query, is by kernels of our own.
namespace tapir::inline v0::cuda_kernels {
namespace {

constexpr int64_t kPack = 8, kWidest = 256;

/// What cuDNN may be asked for. A mask is not: it gives NaN for a query that sees no key, which the waist calls 0; nor is dropout, whose
/// random numbers are its own.
bool is_for_library(V q, V k, V v, V mask, const AttentionParams& p) {
  const int64_t depth = q.sizes[3], width = v.sizes[3];
  return (q.dtype == kFloat16 || q.dtype == kBFloat16) && !mask.defined() && p.dropout_p == 0 && depth % kPack == 0 &&
         width % kPack == 0 && depth <= kWidest && width <= kWidest && q.numel() != 0 && k.numel() != 0 &&
         v.numel() != 0;
}

/// Rows of whole packs.
bool is_packed(V x) {
  bool ok = x.strides[3] == 1 && reinterpret_cast<uintptr_t>(x.data) % dnn::kAlignment == 0;
  for (int64_t d = 0; d < 3; ++d) ok = ok && (x.sizes[d] == 1 || (x.strides[d] > 0 && x.strides[d] % kPack == 0));
  return ok;
}
/// x, or a copy in scratch memory without gaps; of a result only the room for it.
TensorView packed(Context& ctx, V x, bool is_result) {
  if (is_packed(x)) return x;
  TensorView image = x;
  int64_t step = 1;
  for (int64_t d = 4; d-- > 0;) image.strides[d] = step, step *= x.sizes[d];
  image.data = ctx.scratch(x.numel() * size_of(x.dtype));
  if (!is_result) copy(ctx, {image, x});
  return image;
}
/// A gradient that nobody wants has a place too.
TensorView packed_gradient(Context& ctx, V dx, V x) {
  if (dx.defined()) return packed(ctx, dx, true);
  TensorView image = x;
  image.strides[3] = 0;  // not packed
  return packed(ctx, image, true);
}
/// lse, which has no copy.
bool is_plain(V lse) { return lse.is_contiguous() && reinterpret_cast<uintptr_t>(lse.data) % dnn::kAlignment == 0; }
void finish(Context& ctx, V user, V made) {
  if (user.defined() && made.data != user.data) copy(ctx, {user, made});
}

}  // namespace

void attention(Context& ctx, const entry::Attention& c) {
  const bool one = c.q.sizes[2] == 1;  // the library would make a plan for each number of keys
  if (!one && is_for_library(c.q, c.k, c.v, c.mask, c.params) && (!c.lse.defined() || is_plain(c.lse))) {
    const TensorView made = packed(ctx, c.out, true);
    if (dnn::attention(ctx, made, c.lse, packed(ctx, c.q, false), packed(ctx, c.k, false), packed(ctx, c.v, false),
                       c.params))
      return finish(ctx, c.out, made);
  }
  tiled_attention(ctx, c);
}

void attention_backward(Context& ctx, const entry::AttentionBackward& c) {
  if (is_for_library(c.q, c.k, c.v, c.mask, c.params) && is_plain(c.lse)) {
    const TensorView dq = packed_gradient(ctx, c.dq, c.q), dk = packed_gradient(ctx, c.dk, c.k),
                     dv = packed_gradient(ctx, c.dv, c.v);
    if (dnn::attention_backward(ctx, dq, dk, dv, packed(ctx, c.dout, false), packed(ctx, c.out, false), c.lse,
                                packed(ctx, c.q, false), packed(ctx, c.k, false), packed(ctx, c.v, false), c.params)) {
      finish(ctx, c.dq, dq), finish(ctx, c.dk, dk), finish(ctx, c.dv, dv);
      return;
    }
  }
  tiled_attention_backward(ctx, c);
}

}  // namespace tapir::inline v0::cuda_kernels
