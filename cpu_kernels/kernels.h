#pragma once
#include <span>

#include "../core/backend.h"

// The kernels of the CPU, one declaration for each entry of BackendTable and under its name: core/backend.h is their
// contract. Operands fit (shape, promoted dtype), views have any strides, outputs never overlap inputs but by being the same view.
namespace tapir::inline v0 {
/// The table of the CPU, for backends.cpp.
const BackendTable* cpu_backend();
}  // namespace tapir::inline v0

namespace tapir::inline v0::cpu {
using V = BackendTable::V;

// memory.cpp
void* allocate(int64_t bytes, Device device, void* stream);
void release(void* data, int64_t bytes, Device device);
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes, void* stream);
void synchronize(Device device, void* stream);

// copy.cpp, fill.cpp, random.cpp
void copy(Context&, V out, V x);
void fill(Context&, V out, Scalar value);
void range(Context&, V out, const RangeParams&);
void random(Context&, V out, V p, V base, const RandomParams&);

// unary*.cpp, binary*.cpp, ternary.cpp, fused.cpp
void unary(Context&, V out, V x, const UnaryParams&);
void binary(Context&, V out, V a, V b, const BinaryParams&);
void ternary(Context&, V out, V a, V b, V c, const TernaryParams&);
void fused(Context&, std::span<const TensorView> outs, std::span<const TensorView> ins, const FusedParams&);

// reduce*.cpp, arg_reduce.cpp, scan.cpp, histogram.cpp, sort.cpp, search.cpp
void reduce(Context&, V out, V x, const ReduceParams&);
void arg_reduce(Context&, V out, V x, const ArgReduceParams&);
void scan(Context&, V out, V indices, V x, const ScanParams&);
void histogram(Context&, V out, V x, V weights, const HistogramParams&);
void sort(Context&, V values, V indices, V x, const SortParams&);
void search(Context&, V out, V sorted, V values, const SearchParams&);

// Indexing.
void gather(Context&, V out, V x, V index, const GatherParams&);
void scatter(Context&, V out, V index, V source, const ScatterParams&);
void index(Context&, V out, V x, std::span<const TensorView> indices, const IndexParams&);
void index_put(Context&, V out, V source, std::span<const TensorView> indices, const IndexParams&);
int64_t count_nonzero(Context&, V x);
void nonzero(Context&, V out, V x);

// Linear algebra and networks.
void matmul(Context&, V out, V a, V b, V bias, V aux, const MatmulParams&);
void quant_matmul(Context&, V y, V x, V x_scale, V x_zero, V w, V w_scale, V bias, const QuantMatmulParams&);
void quant_conv(Context&, V y, V x, V x_scale, V x_zero, V w, V w_scale, V bias, const ConvParams&);
void linalg(Context&, std::span<const TensorView> outs, std::span<const TensorView> ins, const LinalgParams&);
void conv(Context&, V y, V x, V w, V bias, const ConvParams&);
void conv_backward_data(Context&, V dx, V dy, V w, const ConvParams&);
void conv_backward_weight(Context&, V dw, V dbias, V dy, V x, const ConvParams&);
void pool(Context&, V y, V indices, V x, const PoolParams&);
void pool_backward(Context&, V dx, V dy, V indices, const PoolParams&);
void resample(Context&, V y, V x, const ResampleParams&);
void resample_backward(Context&, V dx, V dy, const ResampleParams&);
void softmax(Context&, V y, V x, const SoftmaxParams&);
void softmax_backward(Context&, V dx, V dy, V y, const SoftmaxParams&);
void attention(Context&, V out, V lse, V q, V k, V v, V mask, const AttentionParams&);
void attention_backward(Context&, V dq, V dk, V dv, V dout, V out, V lse, V q, V k, V v, V mask,
                        const AttentionParams&);
void rnn(Context&, std::span<const TensorView> outs, std::span<const TensorView> ins, const RnnParams&);
void rnn_backward(Context&, std::span<const TensorView> outs, std::span<const TensorView> ins, const RnnParams&);
void norm(Context&, V y, V mean, V rstd, V x, V weight, V bias, V running_mean, V running_var, const NormParams&);
void norm_backward(Context&, V dx, V dweight, V dbias, V dy, V x, V weight, V mean, V rstd, const NormParams&);
void norm_relu(Context&, V y, V mean, V rstd, V shift, V x, V weight, V bias, V running_mean, V running_var, V add,
               const NormParams&);
void norm_relu_backward(Context&, V dx, V dweight, V dbias, V dadd, V dy, V x, V y, V shift, V weight, V mean, V rstd,
                        const NormParams&);
void cross_entropy(Context&, V losses, V lse, V logits, V target, V weight, const NllParams&);
void cross_entropy_backward(Context&, V dlogits, V dlosses, V lse, V logits, V target, V weight, const NllParams&);
void dropout(Context&, V y, V mask, V x, V base, const DropoutParams&);

// Many tensors in one pass.
void optimizer_step(Context&, const OptimizerLists&, const OptimizerScalars&, const OptimizerParams&);
void foreach (Context&, V out, std::span<const TensorView> xs, V factor, const ForeachParams&);

}  // namespace tapir::inline v0::cpu
