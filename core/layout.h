#pragma once
#include <cstdint>

namespace tapir::inline v0 {

/// How often, since the program began, an image or a filter has been copied because its dimensions lay in another order than was wanted:
/// contiguous() and reshape() that copy, a first gradient laid out like its leaf, an operand that a CPU kernel puts in order for itself. A step of a
/// channels_last model adds 0.
int64_t layout_conversions();
void count_layout_conversion();

}  // namespace tapir::inline v0
