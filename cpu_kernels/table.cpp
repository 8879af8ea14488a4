#include "kernels.h"

namespace tapir::inline v0 {

#define X(name, E) .name = cpu::name,
static constexpr BackendTable cpu_table = {
    .name = "cpu",
    .allocate = cpu::allocate,
    .release = cpu::release,
    .copy_bytes = cpu::copy_bytes,
    .synchronize = cpu::synchronize,
    .device = nullptr,
    TAPIR_ENTRIES(X)  //
};
#undef X

const BackendTable* cpu_backend() { return &cpu_table; }

}  // namespace tapir::inline v0
