// Kernels by their names in a portable build, whose levels show their tables alone: each calls the one of the level that was chosen. With it,
// tests compile what they test of the inside of cpu_kernels/ for themselves (tests/CMakeLists.txt).
#include "../../../cpu_kernels/kernels.h"

namespace tapir::inline v0::cpu {

#define X(name, E)                                                                   \
  entry::detail::ResultOf<entry::E>::Type name(Context& ctx, const entry::E& call) { \
    return built_in_backend(DeviceType::CPU)->name(ctx, call);                       \
  }
TAPIR_ENTRIES(X)
#undef X

}  // namespace tapir::inline v0::cpu
