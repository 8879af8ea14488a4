#pragma once
#include "../kernels.h"

namespace tapir::inline v0::cuda_kernels {

// attention.cu: attention of any floats, masks, strides and sizes by kernels of our own, under the entries' contract.
entry::Kernel<entry::Attention> tiled_attention;
entry::Kernel<entry::AttentionBackward> tiled_attention_backward;

}  // namespace tapir::inline v0::cuda_kernels
