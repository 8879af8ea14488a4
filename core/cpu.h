#pragma once
#include <string>

namespace tapir::inline v0::backends::cpu {

/// The level of instructions that the CPU's kernels use: "sse4", "avx2", "avx512", "avx512_bf16" (or "avx"; "baseline" where the build names
/// no extension), on ARM64 "neon", "neon_dotprod", on other processors "baseline". Of several in one build (TAPIR_ARCH=portable) the best that
/// this CPU runs, or what the environment variable TAPIR_ISA says. Libraries choose for themselves: ONEDNN_MAX_CPU_ISA is oneDNN's variable.
/// ValueError where TAPIR_ISA names no level, or one that the CPU does not run; RuntimeError where the CPU runs none of this build.
std::string get_cpu_capability();
/// That with the reason and the levels that are built in: "avx2: what TAPIR_ISA says; built in: sse4, avx2, avx512, avx512_bf16".
std::string capability_report();

}  // namespace tapir::inline v0::backends::cpu
