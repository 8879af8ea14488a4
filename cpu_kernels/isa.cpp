// The one file of the kernels that is compiled for the baseline: it tells whether this CPU can run the others.
// TAPIR_ARCH_ISA is written by CMake: X("avx2") X("fma") ... for each extension that the compiler was allowed to use.
#include <string>

#include "../core/error.h"

namespace tapir::inline v0 {

/// RuntimeError where the CPU lacks what the kernels were compiled for.
void check_cpu() {
  std::string built_for, found, lacking;
#define X(extension) built_for += " " extension, (__builtin_cpu_supports(extension) ? found : lacking) += " " extension;
  TAPIR_ARCH_ISA
#undef X
  if (!lacking.empty())
    fail(ErrorKind::Runtime,
         "[cpu] this build of Tapir is for CPUs with{}; this CPU has{}, but lacks{}. Build it on this machine, or with "
         "-DTAPIR_ARCH=x86-64-v2",
         built_for, found.empty() ? " none of them" : found, lacking);
}

}  // namespace tapir::inline v0
