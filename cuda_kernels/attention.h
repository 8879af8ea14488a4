#pragma once
#include "kernels.h"

namespace tapir::inline v0::cuda_kernels {

// attention.cu: attention of any floats, masks, strides and sizes by kernels of our own, under the names' contract in core/backend.h.
void tiled_attention(Context&, V out, V lse, V q, V k, V v, V mask, const AttentionParams&);
void tiled_attention_backward(Context&, V dq, V dk, V dv, V dout, V out, V lse, V q, V k, V v, V mask,
                              const AttentionParams&);

}  // namespace tapir::inline v0::cuda_kernels
