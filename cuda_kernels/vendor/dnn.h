#pragma once
#include "../runtime/device.h"

// What stands before cuDNN, and is answered by the CPU's table in the host emulation. Every function returns false, with nothing worth keeping
// written, where the library has no kernel for the call; the caller then has a way of its own.
namespace tapir::inline v0::cuda_kernels::dnn {

/// What the library takes for granted of a pointer.
constexpr uintptr_t kAlignment = 16;

enum class Pass : uint8_t { Forward, BackwardData, BackwardWeight };
/// Writes y, dx or dw (then y, x, w hold the others) of a convolution. The views are of one floating dtype, no extent is 0,
/// and each is aligned and fills its memory in one common order: (N, C, spatial), or (N, spatial, C) where `channels_last` is set.
/// bias, (O) without gaps, may be absent; the backward passes have none.
bool conv(Context& ctx, Pass pass, V x, V w, V y, V bias, const ConvParams& params, bool channels_last);

/// Attention without a mask, of float16 or bfloat16: out and, where defined, lse (float32, no gaps). All other views are (B, H, S, D),
/// aligned, with stride 1 in the last dimension and multiples of 8 in the others; depth and width are multiples of 8, no extent is 0.
bool attention(Context& ctx, V out, V lse, V q, V k, V v, const AttentionParams& params);
/// All three gradients, of operands as above.
bool attention_backward(Context& ctx, V dq, V dk, V dv, V dout, V out, V lse, V q, V k, V v,
                        const AttentionParams& params);

}  // namespace tapir::inline v0::cuda_kernels::dnn
