#pragma once
// Passes over programs. Each leaves a program that computes the same outputs and the same outside memory, bit for bit unless it says otherwise.
#include "program.h"

namespace tapir::inline v0::ir {

/// Removes calls of which nothing is read afterwards.
void remove_dead_code(Program& program);
/// Where a pointwise call reads a tensor that was filled with one number, it reads the number.
void take_constants(Program& program);
/// Removes calls that compute what an earlier one left.
void remove_common_calls(Program& program);
/// A copy of a copy reads what the first one read, where all numbers stay: Note [Casts and layouts].
void merge_casts(Program& program);
/// Products and attention write at once the order of elements that their results are copied into.
void fold_layouts(Program& program);
/// A pointwise result takes over the block of an operand that is not used again.
void reuse_operands(Program& program);
/// Batch norms take in the additions and relus that follow them: Note [Norms with relu] in norms.cpp.
void join_norms(Program& program);
/// A relu before a max pooling goes behind it: Note [Relus behind poolings] in pools.cpp.
void sink_relus(Program& program);

/// A batch norm in evaluation becomes a part of the convolution before it: Note [Folded norms]. Within rounding, not bit for bit.
void fold_norms(Program& program);
/// What is computed of weights alone goes first: Note [Prepared calls]. The last pass.
void prepare_calls(Program& program);

/// Calls in an order that needs less memory: Note [Order of calls].
void order_calls(Program& program);

}  // namespace tapir::inline v0::ir
