#pragma once
// Note [Memory plan]
// Blocks that live within one run of a program share one arena. A block lives from the first call that names it to the last one;
// large ones are placed first, each at the lowest gap that fits among those alive at the same time (greedy by size: Pisarchyk and Lee
// 2020, arXiv 2001.03288).
#include <vector>

#include "../program/program.h"

namespace tapir::inline v0::ir {

struct Plan {
  std::vector<int64_t> offset;  // of each block in the arena, in bytes; -1: it lies elsewhere
  int64_t arena = 0;            // bytes
  int64_t apart = 0;            // bytes of the blocks in it, if none shared memory
  int64_t bound = 0;            // the most bytes of them that are alive at once: no arena is smaller
};
/// Bytes that a block takes: they begin as allocators would begin them, so that kernels choose as they would there.
int64_t placed_bytes(const Block& block);
/// A place for every Temporary block but those in `elsewhere` (one flag for each block); those in `stays` are kept until the end.
Plan plan_memory(const Program& program, const std::vector<bool>& elsewhere, const std::vector<bool>& stays);
/// Bytes of such blocks that are alive during each call, and the most of them.
std::vector<int64_t> live_bytes(const Program& program, const std::vector<bool>& elsewhere);
int64_t most_live_bytes(const Program& program, const std::vector<bool>& elsewhere);
/// The most bytes of Temporary and Constant blocks that were alive at once while the program was recorded.
int64_t recorded_peak(const Program& program);

}  // namespace tapir::inline v0::ir
