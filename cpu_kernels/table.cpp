// The table of one level. TAPIR_LEVEL is written by CMake: avx2, say.
#include "kernels.h"

namespace tapir::inline v0 {

#define JOIN_NAME(level) cpu_table_##level
#define NAME(level) JOIN_NAME(level)
extern const BackendTable NAME(TAPIR_LEVEL);  // for backends.cpp

#define X(name, E) .name = cpu::name,
constinit const BackendTable NAME(TAPIR_LEVEL) = {
    .name = "cpu",
    .allocate = cpu::allocate,
    .release = cpu::release,
    .copy_bytes = cpu::copy_bytes,
    .synchronize = cpu::synchronize,
    .device = nullptr,
    TAPIR_ENTRIES(X)  //
};
#undef X

}  // namespace tapir::inline v0
