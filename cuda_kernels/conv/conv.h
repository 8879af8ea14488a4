#pragma once
#include "../vendor/dnn.h"

namespace tapir::inline v0::cuda_kernels {

// Convolutions of our own. bias, (O), may be absent; the backward passes have none. False, and nothing done: it is for others.
/// conv.cu: any dtype and strides by plain loops: integers, float64, and what nobody else takes.
void direct_conv(Context& ctx, dnn::Pass pass, V x, V w, V y, V bias, const ConvParams& params);
/// conv_products.cpp: Note [Convolutions as products].
bool product_conv(Context& ctx, dnn::Pass pass, V x, V w, V y, V bias, const ConvParams& params);
/// depthwise.cu: one channel to a group.
bool depthwise_conv(Context& ctx, dnn::Pass pass, V x, V w, V y, V bias, const ConvParams& params);

/// dw = sums of (split, output, kernel position, channel), which have room for `channels`, over the splits.
void add_splits(Context& ctx, V dw, const float* sums, int64_t splits, int64_t channels);

}  // namespace tapir::inline v0::cuda_kernels
