#pragma once
#include "../kernels.h"

namespace tapir::inline v0::cuda_kernels {

// attention.cu: attention of any floats, masks, strides and sizes by kernels of our own, under the entries' contract.
entry::Kernel<entry::Attention> tiled_attention;
entry::Kernel<entry::AttentionBackward> tiled_attention_backward;

template <class C> struct Problem;
// one_query.cu: forward, of one query. False, and nothing done, where there are more, dropout, or too many columns.
template <class C> bool one_query_attention(Context& ctx, const Problem<C>& p);

// warp_attention*.cu: the same of float32 and 16-bit floats, columns up to warp_columns(), where has_warp_matrix().
constexpr int warp_columns(DType dtype) { return dtype == kFloat32 ? 128 : 256; }
void warp_attention(Context& ctx, const Problem<float>& p);
void warp_attention_backward(Context& ctx, const Problem<float>& p);  // p.delta is there

}  // namespace tapir::inline v0::cuda_kernels
