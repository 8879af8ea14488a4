#pragma once
#include <functional>

// Note [Work in the background]
// Kernels are compiled beside the program by a few threads, as many as it computes with and at most four. They begin when there is work
// and end where none is left: hot loops never meet them. They compute on the host alone; no thread but the program's own calls CUDA.
// When the program ends, what has not begun is dropped, and each thread ends with the job that it is at. A process that was forked has none
// of them, and waits for none. No CUDA in it.
namespace tapir::inline v0::cuda_kernels {

/// Runs a job, which does not throw, on such a thread. On this one where no thread can be had, and when the program ends.
void in_background(std::function<void()> job);
/// Does the program end? Then jobs wait for nobody.
bool background_ends();

}  // namespace tapir::inline v0::cuda_kernels
