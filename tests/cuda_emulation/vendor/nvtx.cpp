#include "../../../cuda_kernels/vendor/nvtx.h"

#include "../count.h"

// Ranges name what is counted within them.
namespace tapir::inline v0::cuda_kernels {

void range_push(const char* name) { cuda_emulation::push_range(name); }
void range_pop() { cuda_emulation::pop_range(); }

}  // namespace tapir::inline v0::cuda_kernels
