// A stand-in for cuda_kernels/vendor/ptx/early_launch.h, whose functions are PTX. Kernels run one after the other here; an early one that writes
// before it has waited, or reads what need not be complete then, is a fault all the same (checks.cpp).
#pragma once
#include <cuda_runtime.h>

namespace cuda_emulation {
#pragma GCC visibility push(hidden)
void note_early_wait();
void note_next_begins();
#pragma GCC visibility pop
}  // namespace cuda_emulation

namespace tapir::inline v0::cuda_kernels {

inline void let_next_begin() { cuda_emulation::note_next_begins(); }
inline void wait_for_previous() { cuda_emulation::note_early_wait(); }
inline void fetch_ahead(const void*) {}

}  // namespace tapir::inline v0::cuda_kernels
