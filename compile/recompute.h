#pragma once
#include <cstdint>

#include "program.h"

namespace tapir::inline v0::ir {

/// Lets values that are read again after the moment of most memory be computed a second time instead of kept, until no more than `budget`
/// bytes are alive at once beside inputs and outputs, or nothing helps any more. Pointwise calls, norms and fills first, which read
/// memory once; products, convolutions and attention only where those do not suffice. Results stay bit by bit what they were. How
/// many calls were added.
int64_t recompute(Program& program, int64_t budget);

/// The smallest sum of capacities of nodes that separates `needed` from `given`, among edges as `sources` of each node tell; the nodes
/// of that cut, where each node of `needed` either is cut or can be made of cut nodes. Nodes of `given` can be cut too.
std::vector<bool> cheapest_cut(const std::vector<std::vector<int>>& sources, const std::vector<int64_t>& capacity,
                               const std::vector<bool>& given, const std::vector<bool>& needed);

}  // namespace tapir::inline v0::ir
