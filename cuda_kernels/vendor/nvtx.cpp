#include "nvtx.h"

#include <nvtx3/nvToolsExt.h>

namespace tapir::inline v0::cuda_kernels {

void range_push(const char* name) { nvtxRangePushA(name); }
void range_pop() { nvtxRangePop(); }

}  // namespace tapir::inline v0::cuda_kernels
