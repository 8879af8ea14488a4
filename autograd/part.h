#pragma once
#include <cstdint>

namespace tapir::inline v0 {

/// Inside of the apply() of a node with one input: the gradient that it returns is zero but for a part, and the part is what it returns: the
/// positions of `dim` from `start` on in steps of `step`. False where the whole is asked for: the pass is recorded.
bool returns_part(int64_t dim, int64_t start, int64_t step);

}  // namespace tapir::inline v0
