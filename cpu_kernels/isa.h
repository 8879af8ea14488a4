#pragma once
#include <string>
#include <vector>

#include "../core/backend.h"

// Note [Levels]
// CPU kernels are compiled for levels: sets of instructions, each of which contains the one below it. A build with TAPIR_ARCH=portable has
// several (sse4, avx2, avx512, avx512_bf16; on ARM64 neon, neon_dotprod) and takes the best one that the CPU runs, or the one that the
// environment variable TAPIR_ISA names; another build has one. What is no kernel, this choice among it, is compiled for any CPU of the family.
namespace tapir::inline v0 {

/// An extension of the CPU's instructions, and whether this CPU has it.
struct CpuExtension {
  const char* name;
  bool there;
};
struct CpuLevel {
  const char* name;
  const BackendTable* table;
  std::vector<CpuExtension> needs;
};
/// The levels that are built in, the best first; written by CMake (backends.cpp).
const std::vector<CpuLevel>& cpu_levels();
/// The one that this program uses. ValueError where TAPIR_ISA names none, or one that the CPU does not run; RuntimeError where it runs none.
const CpuLevel& cpu_level();

/// cpu_level() among `levels` with TAPIR_ISA=wanted (null or empty: not set).
const CpuLevel& choose_level(const std::vector<CpuLevel>& levels, const char* wanted);

}  // namespace tapir::inline v0
