#pragma once
#include <atomic>
#include <exception>

#include "denormal_bits.h"
#include "parallel.h"
#include "simulation.h"

// Between core/parallel.cpp and the two teams, of which CMake compiles one: parallel_openmp.cpp or parallel_threads.cpp.
namespace tapir::inline v0::detail {

/// Set while this thread runs a piece of a parallel loop.
inline constinit thread_local bool in_region = false;

/// One loop: its pieces, and the first exception.
struct Loop {
  int64_t n;
  int64_t pieces;
  void (*body)(void*, int64_t, int64_t);
  void* context;
  uint64_t denormals;  // bits of the thread that started it: its pieces compute alike
  std::atomic<bool> failed{false};
  std::exception_ptr error;  // written by the piece that set `failed`

  int64_t first_of(int64_t piece) const { return n / pieces * piece + (piece < n % pieces ? piece : n % pieces); }
  void run(int64_t piece) noexcept {
    const bool outer = in_region;
    in_region = true;
    const DenormalBits mode(denormals);
    try {
      body(context, first_of(piece), first_of(piece + 1));
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
    in_region = outer;
  }
};

/// Runs every piece; piece 0 in the calling thread.
void run_team(Loop& loop);
/// Around a call into a library that runs loops of its own in the same team, so that a busy neighbour is noticed there too.
/// `fastest`: the microseconds that the fastest call of its kind took, kept by the caller; at first the largest number.
struct LibraryLoop {
  int64_t begun = 0;  // 0: not to be judged
  bool telling = false;
};
LibraryLoop begin_library_loop();
void end_library_loop(LibraryLoop loop, int64_t& fastest);
/// Nanoseconds of a clock that never goes back.
int64_t clock_now();
/// `threads` for OpenMP's loops in the calling thread.
void set_team_size(int threads);
/// The workers of that many threads compute with these bits, but in our loops.
void set_team_denormals(int threads, uint64_t bits);
/// In the thread that forks, before it does: no worker of its team may be left, since the child will not have it.
void before_fork();

}  // namespace tapir::inline v0::detail
