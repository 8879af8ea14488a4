#pragma once
// Note [Simulated threads]
// How would a program run with more threads than there are CPUs? With `simulated` on, get_num_threads() may be any number, and loops have
// their pieces, but the calling thread runs them one after the other. Of each loop it notes how much longer they took than the longest one
// alone. Libraries run by one thread, and are taken to divide evenly. What cores share, memory and power, is not in it.
#include <atomic>
#include <cstdint>

namespace tapir::inline v0::detail {

inline constinit std::atomic<bool> simulated{false};
struct Simulation {
  int64_t saved = 0;  // nanoseconds
  int loops = 0;
  void add(int64_t took, int64_t longest) { saved += took - longest, ++loops; }
};
/// Of this thread's kernel, while a profile runs.
inline constinit thread_local Simulation* simulation = nullptr;

}  // namespace tapir::inline v0::detail
