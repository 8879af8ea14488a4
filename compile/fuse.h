#pragma once
#include <cstdint>

#include "program.h"

namespace tapir::inline v0::ir {

/// Which calls on rows join: none, those that are worth it on their device, all that can.
enum class FuseRows : uint8_t { None, Worthwhile, All };

/// What fuse() did: calls before and after, and the bytes that are no longer written or read.
struct FuseReport {
  int64_t calls_before = 0, calls_after = 0, groups = 0, bytes_before = 0, bytes_after = 0;
};

/// Joins pointwise calls into "fused" ones (Note [Fused calls] in core/fused.h) where they share a value, and moves them next to each
/// other where no hazard forbids it. Results that nothing else reads are not written. Blocks keep their numbers; births and deaths are
/// made anew, and a block that is not used any more has no bytes. Results stay bit by bit what they were; where calls that reduce along
/// rows join as well (Note [Calls on rows] in rows.h), what is computed with them is the same within rounding.
FuseReport fuse(Program& program, FuseRows rows = FuseRows::None);

/// Gradients of slices that make up a whole tensor are written to their places instead of being padded and added: Note [Padded
/// gradients] in pads.cpp.
void join_pads(Program& program);

/// A relu of a product that nothing else reads becomes the product's finish.
void join_epilogues(Program& program);

}  // namespace tapir::inline v0::ir
