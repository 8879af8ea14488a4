#pragma once

namespace tapir::inline v0::backends::cpu {

/// May the CPU compute float32 convolutions of 3 x 3 (stride 1, no dilation, one group) by Winograd's algorithm? 1.5 to 3 times as fast, with
/// rounding errors some 2 times as large, measured by the largest values around an output rather than by those that it is made of. On,
/// unless TAPIR_WINOGRAD=0. Shapes that gain nothing, and results that are not finite, are always computed directly.
void set_allow_winograd(bool on);
bool allow_winograd();

}  // namespace tapir::inline v0::backends::cpu
