#pragma once
#include <cstdint>
#include <type_traits>

namespace tapir::inline v0 {

/// Threads that parallel loops may use: the CPUs this process may run on, unless set. ValueError below 1.
void set_num_threads(int threads);
int get_num_threads();

/// Threads that a loop started here and now would use: get_num_threads() under this thread's limit (modes.threads), and 1 inside a
/// parallel loop or in a forked child.
int threads_here();
/// Tells OpenMP's own loops of this thread (oneDNN's) threads_here(), but no more than there are CPUs, since oneDNN's threads wait for each
/// other by spinning, and what set_flush_denormal() had set. Cheap when nothing changed; call
/// before entering such a library.
void share_threads();

/// True inside a parallel loop; loops within it run serially.
bool in_parallel_region();
/// Runs body(context, first, last) over [0, n) in pieces. See parallel_for.
void parallel_for_erased(int64_t n, int64_t grain, void (*body)(void*, int64_t, int64_t), void* context);

/// Calls f(first, last) for pieces that cover [0, n), at most one piece for each thread and none smaller than `grain` (but the
/// last). An exception of f reaches the caller, once. Serial when n <= grain, inside another loop, and after a fork. Denormal numbers are in
/// each piece what they are in the calling thread (core/denormals.h).
template <class F> void parallel_for(int64_t n, int64_t grain, F&& f) {
  if (n <= 0) return;
  if (n <= grain) return f(int64_t(0), n);
  parallel_for_erased(
      n, grain,
      [](void* c, int64_t first, int64_t last) { (*static_cast<std::remove_reference_t<F>*>(c))(first, last); }, &f);
}

}  // namespace tapir::inline v0
