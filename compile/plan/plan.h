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
/// A block of another program, in whose arena this one works: it is there until the last call that names it.
struct Lodger {
  int block = -1;
  int64_t offset = 0, bytes = 0;
};
/// Where blocks lie, one flag for each: those that move lie elsewhere in each run; those that stay are read when a run is over.
struct Placement {
  std::vector<bool> moves, stays;
  std::vector<Lodger> lodgers = {};
};
/// Bytes that a block takes: they begin as allocators would begin them, so that kernels choose as they would there.
int64_t placed_bytes(const Block& block);
/// A place for every Temporary block that neither moves nor is kept from run to run.
Plan plan_memory(const Program& program, const Placement& placement);
/// Bytes of such blocks that are alive during each call, and the most of them.
std::vector<int64_t> live_bytes(const Program& program, const std::vector<bool>& elsewhere);
int64_t most_live_bytes(const Program& program, const std::vector<bool>& elsewhere);
/// The most bytes of Temporary and Constant blocks that were alive at once while the program was recorded.
int64_t recorded_peak(const Program& program);

}  // namespace tapir::inline v0::ir
