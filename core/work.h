#pragma once
// Note [Work]
// What a kernel call computes and moves, by its operands' shapes alone: the profiler's rates, the FLOPs of train::summary and the limits of
// ./run bench are sums of it.
// - flops: the multiplications and additions of matrix products, convolutions, attention and recurrent layers, 2 m n k for a product; 0 for
//   all other entries. A convolution has those of the direct algorithm, whatever the kernel does. Causal attention has those of the pairs
//   that see each other; of other masks nothing is known here. Attention's gradient has five products, the scores once more among them.
// - bytes: each operand's elements once, twice where it is updated. A dimension with stride 0 has one element, and an operand that is
//   indexed no more elements than are looked up or written.
#include "entries.h"

namespace tapir::inline v0::entry {

struct Work {
  double flops = 0, bytes = 0;
};
#define TAPIR_X(name, E) Work work_of(const E&);
TAPIR_ENTRIES(TAPIR_X)
#undef TAPIR_X

}  // namespace tapir::inline v0::entry
