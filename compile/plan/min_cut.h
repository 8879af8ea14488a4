#pragma once
#include <cstdint>
#include <vector>

namespace tapir::inline v0::ir {

/// The smallest sum of capacities of nodes that separates `needed` from `given`, among edges as `sources` of each node tell; the nodes
/// of that cut, where each node of `needed` either is cut or can be made of cut nodes. Nodes of `given` can be cut too.
std::vector<bool> cheapest_cut(const std::vector<std::vector<int>>& sources, const std::vector<int64_t>& capacity,
                               const std::vector<bool>& given, const std::vector<bool>& needed);

}  // namespace tapir::inline v0::ir
