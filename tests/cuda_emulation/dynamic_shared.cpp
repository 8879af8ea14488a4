// The one array behind dynamic_shared<T>() of cuda_kernels/kernel.h.
#include "runtime.h"

namespace tapir::inline v0::cuda_kernels {
extern __shared__ unsigned char dynamic_shared_bytes[];
alignas(1024) thread_local unsigned char dynamic_shared_bytes[cuda_emulation::kSharedLimit];
}  // namespace tapir::inline v0::cuda_kernels

namespace cuda_emulation {
unsigned char* dynamic_shared() { return tapir::cuda_kernels::dynamic_shared_bytes; }
}  // namespace cuda_emulation
