#pragma once
// Passes over programs. Each leaves a program that computes the same outputs and the same outside memory, bit for bit unless it says otherwise.
#include <cstdint>

#include "../program/program.h"

namespace tapir::inline v0::ir {

/// Where a pointwise call reads a tensor that was filled with one number, it reads the number.
void take_constants(Program& program);
/// Removes calls that compute what an earlier one left.
void remove_common_calls(Program& program);
/// Removes calls of which nothing is read afterwards.
void remove_dead_code(Program& program);
/// A copy of a copy reads what the first one read, where all numbers stay: Note [Casts and layouts].
void merge_casts(Program& program);
/// On a GPU, products of 16 bits that are widened are written in float32: they are rounded once less, not bit for bit.
void widen_products(Program& program);
/// Products and attention write at once where their results are copied to: another order of elements, a part of a tensor.
void fold_layouts(Program& program);
/// A batch norm in evaluation becomes a part of the convolution before it: Note [Folded norms]. Within rounding, not bit for bit.
void fold_norms(Program& program);
/// A relu of a product becomes the product's finish, on a GPU that of a convolution, GELU and its gradient do too: Note [Finishes of products]. The
/// last two within rounding.
void join_epilogues(Program& program);
/// A relu before a max pooling goes behind it: Note [Relus behind poolings] in pools.cpp.
void sink_relus(Program& program);
/// Batch norms take in the additions and relus that follow them: Note [Norms with relu] in norms.cpp.
void join_norms(Program& program);
/// Gradients of layer and rms norms take in the sum behind them and the casts around them: Note [Gradients of norms on the residual
/// stream] in norm_sums.cpp. Within rounding.
void join_norm_sums(Program& program);
/// Norms of few rows are made by the products that read them: Note [Norms before products of few rows] in norm_products.cpp. Within
/// rounding.
void join_norm_products(Program& program);
/// On a GPU a row that is put into a table becomes a part of the attention that reads the table: Note [Attention with its cache's put].
void join_put_attention(Program& program);

/// Which calls on rows join: none, those that are worth it on their device, all that can.
enum class FuseRows : uint8_t { None, Worthwhile, All };
/// Joins pointwise calls into "fused" ones (Note [Fused calls] in core/fused.h) where they share a value, and moves them next to each
/// other where no hazard forbids it. Results that nothing else reads are not written. Blocks keep their numbers; births and deaths are
/// made anew, and a block that is not used any more has no bytes. Results stay bit by bit what they were; where calls that reduce along
/// rows join as well (Note [Calls on rows] in rows.cpp), what is computed with them is the same within rounding.
void fuse(Program& program, FuseRows rows = FuseRows::None);

/// Calls in an order that needs less memory: Note [Order of calls].
void order_calls(Program& program);
/// Lets values that are read again after the moment of most memory be computed a second time instead of kept, until no more than `budget`
/// bytes are alive at once beside inputs and outputs, or nothing helps any more. Pointwise calls, norms and fills first, which read
/// memory once; products, convolutions and attention only where those do not suffice. Results stay bit by bit what they were. How
/// many calls were added.
int64_t recompute(Program& program, int64_t budget);
/// A pointwise result takes over the block of an operand that is not used again.
void reuse_operands(Program& program);
/// On a GPU, copies of weights to another type become one call, where the first one stands: Note [Copies at once] in copies.cpp.
void join_copies(Program& program);
/// What is computed of weights alone goes first: Note [Prepared calls]. The last pass.
void prepare_calls(Program& program);

}  // namespace tapir::inline v0::ir
