#include "conv.h"

#include "../../core/error.h"
#include "../kernels.h"
#include "../vendor/libraries.h"

// Convolutions: operands brought into one dense order, then cuDNN, which takes some only channels first; what it refuses
// altogether, and integers, by kernels of our own.
namespace tapir::inline v0::cuda_kernels {

using dnn::Pass;

namespace {

/// Calls f(dimension), the innermost first, in the order (N, C, spatial) or (N, spatial, C).
template <class F> void for_dimensions(int64_t rank, bool channels_last, F&& f) {
  if (channels_last) f(1);
  for (int64_t d = rank; d-- > 0;)
    if (!channels_last || d != 1) f(d);
}
/// Whether v fills its memory in that order. Both can be true.
bool fills(V v, bool channels_last) {
  int64_t step = 1;
  bool ok = true;
  for_dimensions(v.rank, channels_last, [&](int64_t d) {
    ok = ok && (v.sizes[d] == 1 || v.strides[d] == step);
    step *= v.sizes[d];
  });
  return ok;
}

/// An operand in the common order: itself, or a copy in scratch memory, which is copied back where it is the result.
TensorView in_order(Context& ctx, V v, bool channels_last, bool is_result) {
  if (fills(v, channels_last) && reinterpret_cast<uintptr_t>(v.data) % dnn::kAlignment == 0) return v;
  TensorView image = v;
  int64_t step = 1;
  for_dimensions(v.rank, channels_last, [&](int64_t d) { image.strides[d] = step, step *= v.sizes[d]; });
  image.data = ctx.scratch(v.numel() * size_of(v.dtype));
  if (!is_result) copy(ctx, {image, v});
  return image;
}

/// channels_last where x or y has it and the other does not forbid it.
bool prefers_channels_last(V x, V y) {
  return (fills(x, true) || fills(y, true)) && !(fills(x, false) && fills(y, false));
}

/// (O) as (1, O, 1, ...)
TensorView along_channels(V v, int64_t rank) {
  TensorView b = v;
  b.rank = rank;
  for (int64_t d = 0; d < rank; ++d) b.sizes[d] = 1, b.strides[d] = 0;
  b.sizes[1] = v.sizes[0], b.strides[1] = v.strides[0];
  return b;
}

/// By cuDNN, with all operands in that order; false where it does not take it.
bool run_in_order(Context& ctx, Pass pass, V x, V w, V y, V bias, const ConvParams& params, bool channels_last) {
  const TensorView xs = in_order(ctx, x, channels_last, pass == Pass::BackwardData),
                   ws = in_order(ctx, w, channels_last, pass == Pass::BackwardWeight),
                   ys = in_order(ctx, y, channels_last, pass == Pass::Forward);
  const TensorView bs = bias.defined() ? in_order(ctx, bias, false, false) : TensorView();
  ConvParams plain = params;
  plain.relu = false;
  const bool both = dnn::conv(ctx, pass, xs, ws, ys, bs, params, channels_last);
  if (!both && !(params.relu && dnn::conv(ctx, pass, xs, ws, ys, bs, plain, channels_last))) return false;
  const bool is_data = pass == Pass::BackwardData, is_weight = pass == Pass::BackwardWeight;
  const TensorView &user = is_data ? x : is_weight ? w : y, &made = is_data ? xs : is_weight ? ws : ys;
  if (made.data != user.data) copy(ctx, {user, made});
  if (!both) unary(ctx, {y, y, {UnaryOp::Relu}});  // cuDNN has no engine for convolution and relu together
  return true;
}
bool by_library(Context& ctx, Pass pass, V x, V w, V y, V bias, const ConvParams& params) {
  if (!is_floating(x.dtype)) return false;
  if (const std::string& why = why_not(Vendor::Cudnn); !why.empty())  // before copies are made for it
    return count_refusal(tally_of(Vendor::Cudnn, "conv"), why), false;
  const bool last = prefers_channels_last(x, y);
  return run_in_order(ctx, pass, x, w, y, bias, params, last) ||
         (last && run_in_order(ctx, pass, x, w, y, bias, params, false));
}

void run(Context& ctx, const char* op, Pass pass, V x, V w, V y, V bias, const ConvParams& params) {
  check(x.dtype != kBool, "[{}] expected a dtype of numbers, got {}", op, x.dtype);
  if (by_library(ctx, pass, x, w, y, bias, params)) return;
  if (!depthwise_conv(ctx, pass, x, w, y, bias, params) && !product_conv(ctx, pass, x, w, y, bias, params))
    direct_conv(ctx, pass, x, w, y, bias, params);
  if (params.relu && !is_floating(x.dtype)) unary(ctx, {y, y, {UnaryOp::Relu}});
}

}  // namespace

void conv(Context& ctx, const entry::Conv& c) {
  if (c.y.numel() == 0) return;
  if (c.x.numel() != 0 && c.w.numel() != 0) return run(ctx, "conv", Pass::Forward, c.x, c.w, c.y, c.bias, c.params);
  if (!c.bias.defined()) return fill(ctx, {c.y, 0.0});  // no products: what is left is the bias
  copy(ctx, {c.y, along_channels(c.bias, c.y.rank).expand(c.y.shape())});
  if (c.params.relu) unary(ctx, {c.y, c.y, {UnaryOp::Relu}});
}

void conv_backward_data(Context& ctx, const entry::ConvBackwardData& c) {
  if (c.dx.numel() == 0) return;
  if (c.dy.numel() == 0 || c.w.numel() == 0) return fill(ctx, {c.dx, 0.0});
  run(ctx, "conv_backward_data", Pass::BackwardData, c.dx, c.w, c.dy, {}, c.params);
}

void conv_backward_weight(Context& ctx, const entry::ConvBackwardWeight& c) {
  if (c.dw.numel() != 0) {
    if (c.dy.numel() == 0 || c.x.numel() == 0) fill(ctx, {c.dw, 0.0});
    else run(ctx, "conv_backward_weight", Pass::BackwardWeight, c.x, c.dw, c.dy, {}, c.params);
  }
  if (!c.dbias.defined() || c.dbias.numel() == 0) return;
  const uint32_t all_but_channels = ((1u << c.dy.rank) - 1) & ~2u;
  reduce(ctx, {along_channels(c.dbias, c.dy.rank), c.dy, {ReduceOp::Sum, all_but_channels}});
}

}  // namespace tapir::inline v0::cuda_kernels
