// Note [Counting]
// With TAPIR_EMULATED_COUNT=FILE launches are measured instead of done, so that the time of a step can be predicted from its shapes alone
// (tools/gpu_model). Everything that is queued or waited for becomes a line of the file, in JSON, in order.
// - Device memory is addresses: zeros that are there where a block touches them. No order between streams and no bounds are checked.
// - Of a launch a sample of blocks runs: the first, the last, and others between them, which stand for all between them. Small launches run
//   whole, so that indices and counters hold what they should; what others compute is lost. A launch of the same kernel, grid and arguments
//   (but for addresses) as one before, and not small, is not measured again.
// - Kernels compiled with -fsanitize=thread announce their accesses. The lanes of a warp that do the same instruction for the same time count
//   as one access of it: it moves the 32-byte sectors that they touch, or takes so many turns of shared memory as most of them meet in a bank.
// - A sector that two blocks of a sample read is taken for one that all read: it comes from memory once.
// - Copies of up to 1 MiB are done. Calls of libraries are not, where the stand-in asks counted().
#pragma once
#include <cuda_runtime_api.h>

#include <string>

#include "include/emulation/launch.h"

#pragma GCC visibility push(hidden)
namespace cuda_emulation {

/// A library's kernels, copies, fills: bytes as they are; operations at the speed that `rate` names.
struct Moved {
  double read = 0, written = 0, operations = 0;
  std::string rate = {}, text = {};
};
bool counting();
/// The bytes of a copy or fill that is done all the same.
constexpr size_t kCounted = size_t(1) << 20;
/// In place of running the grid.
void count_grid(const cudaLaunchConfig_t& config, const Call& call, uint32_t launch);
/// One access of the running thread; `by` is the instruction.
void count_access(const void* p, size_t bytes, bool write, bool global, const void* by);
/// Multiplications and additions of tensor cores, by the running warp.
void count_operations(double n);
/// The name of a kernel in the lines, in place of its symbol.
void name_kernel(const void* kernel, const std::string& name);
void count_call(const char* kind, const std::string& name, const Moved& moved);
void count_wait(const char* what);
/// What is counted from now on, on this thread, is of that range (vendor/nvtx.cpp).
void push_range(const char* name);
void pop_range();
/// Lines of its scope are told to be of a launch of a graph.
class CountedGraph {
 public:
  CountedGraph();
  ~CountedGraph();
};

}  // namespace cuda_emulation
#pragma GCC visibility pop
