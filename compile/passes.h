#pragma once
// Passes over programs. Each leaves a program that computes the same outputs and the same outside memory, bit for bit.
#include "program.h"

namespace tapir::inline v0::ir {

/// Removes calls of which nothing is read afterwards.
void remove_dead_code(Program& program);
/// Where a pointwise call reads a tensor that was filled with one number, it reads the number.
void take_constants(Program& program);
/// Removes calls that compute what an earlier one left.
void remove_common_calls(Program& program);
/// A pointwise result takes over the block of an operand that is not used again.
void reuse_operands(Program& program);

/// Calls in an order that needs less memory: Note [Order of calls].
void order_calls(Program& program);

}  // namespace tapir::inline v0::ir
