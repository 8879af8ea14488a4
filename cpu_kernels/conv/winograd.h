#pragma once
#include "../dnn.h"
#include "../kernels.h"

namespace tapir::inline v0::cpu {

/// May a pass go by Note [Winograd]? Kernels of 3 x 3 in float32 or bfloat16, without strides, dilation or groups, with 32 to some 700 channels.
bool allows_winograd(DType dtype, const dnn::ConvShape& s);
/// Does such a pass gain by it, as a rule? It needs enough pixels; more of them beside a direct pass in bfloat16, whose products take half the time.
bool suits_winograd(DType direct, const dnn::ConvShape& s);
/// That pass, computed in float32. x, y: dense, channels last; w: of any strides. bias: null where there is
/// none; a weight gradient has none either. False: a result is not finite, and another kernel must tell which ones are so by right.
bool winograd(Context& ctx, dnn::ConvPass pass, const dnn::ConvShape& s, V x, V w, V y, const float* bias);

}  // namespace tapir::inline v0::cpu
