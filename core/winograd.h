#pragma once

namespace tapir::inline v0::backends::cpu {

/// May the CPU compute convolutions of 3 x 3 (stride 1, no dilation, one group) by Winograd's algorithm? 1.5 to 3 times as fast (bfloat16:
/// up to 1.4), with rounding errors some 2 times as large (weight gradients: up to 5), measured by the largest values within 6 x 6 pixels
/// rather than by those that an output is made of: not for filler values, masked convolutions and zeros that must be exact. On, unless
/// TAPIR_WINOGRAD=0.
/// Shapes that gain nothing, and results that are not finite, are always computed directly.
void set_allow_winograd(bool on);
bool allow_winograd();

}  // namespace tapir::inline v0::backends::cpu
