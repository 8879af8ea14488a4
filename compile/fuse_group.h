#pragma once
// Pointwise calls as one fused call: the steps, and where their values are in memory.
#include <optional>
#include <span>
#include <vector>

#include "../core/fused.h"
#include "program.h"

namespace tapir::inline v0::ir {

/// Can the call be part of a fused one?
bool is_pointwise(const Call& call);

/// Calls that become one, before it is known which results other calls read.
struct FusedGroup {
  struct Place {
    View view;
    int value = -1;  // the step that made it, or -1 as long as nobody asked for it
    int input = -1;
    bool written = false;
    size_t writer = 0;  // the last call, an index of the list given
  };
  Shape shape;
  FusedParams params;
  std::vector<View> inputs;
  std::vector<Place> places;
};
/// The calls, in their order, pointwise ones and such on rows; nothing where they do not fit into one: too many steps, shapes that do not agree, or a result that
/// overlaps another operand without being in its very place. Stores are not among the steps yet.
std::optional<FusedGroup> fused_group(std::span<const Call* const> calls);

/// What a call reads and writes.
int64_t bytes_of(const Call& call);

/// Leaves of a fused call's results those in such blocks (one flag for each block).
void keep_stores(Call& fused, const std::vector<bool>& blocks);
/// Removes steps that no Store needs, and inputs that no step loads.
void remove_dead_steps(FusedParams& params, std::vector<View>& inputs);

}  // namespace tapir::inline v0::ir
