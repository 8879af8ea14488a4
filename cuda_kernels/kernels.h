#pragma once
#include <type_traits>

#include "../core/device_table.h"

// The kernels of CUDA devices: Note [Entries] in core/entries.h is their contract. They only queue work on ctx.stream but where it says
// here that they wait.
//   copy.cu, copies.cu               copy, fill, range; copies
//   unary.cu, binary.cu, ternary.cu  Note [Pointwise kernels]
//   random.cu                        random, dropout
//   fused.cpp                        waits for a compiler at the first call of its kind, where none was asked for before
//   reduce.cu                        reduce, arg_reduce
//   index.cu, scatter.cu             gather, index; scatter, index_put
//   nonzero.cu                       nonzero, and count_nonzero, which waits for the device
//   matmul.cpp, conv.cpp, attention.cpp  by libraries, or by the kernels in the .cu of that name
//   one_query.cu                     put_attention, and attention of one query
//   quant.cpp, quant_conv.cpp        Note [Quantized products on a GPU]
//   float8.cu, float8.cpp            to_float8; float8_matmul, by cuBLASLt where it has the product, else in bfloat16
//   linalg.cpp                       waits for the device
//   norm.cu, norm_channels.cu        norm, norm_relu, their gradients, norm_add_backward: norm.h
//   scan.cu, histogram.cu, sort.cu, search.cu, pool.cu, resample.cu, softmax.cu, rnn.cu, rnn_backward.cu, cross_entropy.cu, optimizer.cu, foreach.cu
namespace tapir::inline v0::cuda_kernels {

using V = const TensorView&;

#define X(name, E) entry::Kernel<entry::E> name;
TAPIR_ENTRIES(X)
#undef X

/// DeviceTable::prepare_fused.
bool prepare_fused(Device device, const entry::Fused& call, Prepare how);

/// Entries of which there is no kernel.
template <class E> inline constexpr bool is_lacking = false;

}  // namespace tapir::inline v0::cuda_kernels
