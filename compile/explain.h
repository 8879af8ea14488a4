#pragma once
// Programs as text for people.
#include <string>

#include "replay/replay.h"

namespace tapir::inline v0::ir {

/// Calls before and after each pass, memory, and the calls.
std::string explain(const Replay& replay);
/// A graph for Graphviz: calls, and the blocks between them.
std::string to_dot(const Program& program);

}  // namespace tapir::inline v0::ir
