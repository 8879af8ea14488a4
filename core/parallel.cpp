#include "parallel.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>

#include "allocator.h"
#include "denormals.h"
#include "error.h"
#include "modes.h"
#include "parallel_detail.h"

namespace tapir::inline v0 {
namespace {

constexpr int kMaxThreads = 1024;

int affinity_count() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return kMaxThreads;  // more CPUs than the mask holds
}

/// CPUs that a control group's quota allows, rounded up; kMaxThreads without one.
int quota_count() {
  double quota = 0, period = 0;
  std::string first;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2 >> first >> period && first != "max") {
    quota = std::strtod(first.c_str(), nullptr);
  } else if (std::ifstream v1("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"); v1 >> quota) {
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
  }
  if (quota <= 0 || period <= 0) return kMaxThreads;
  return int(std::min(std::ceil(quota / period), double(kMaxThreads)));
}

/// OMP_NUM_THREADS where it holds a sane number; of a list "4,2" the first.
int environment_count() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  if (!text) return kMaxThreads;
  char* end = nullptr;
  const long n = std::strtol(text, &end, 10);
  return end != text && (*end == 0 || *end == ',') && n >= 1 && n <= kMaxThreads ? int(n) : kMaxThreads;
}

int cpu_count() {
  static const int n = std::max(1, std::min(affinity_count(), quota_count()));
  return n;
}
int default_count() { return std::min(cpu_count(), environment_count()); }

std::atomic<int> process_threads{0};       // 0: not asked for yet
std::atomic<bool> forked{false};           // this process is the child of one that had threads
thread_local constinit int team_size = 0;  // what this thread's OpenMP was told last
thread_local constinit uint64_t team_denormals =
    0;  // bits of its workers in loops of libraries: Note [Denormal numbers]

/// The allocator's handler, which takes its mutex, must run after ours, for workers that end take it too; handlers run in reverse order.
void watch_forks() {
  static const int registered =
      (memory_stats(), pthread_atfork([] { detail::before_fork(); }, nullptr, [] { forked.store(true); }));
  (void)registered;
}

}  // namespace

int get_num_threads() {
  int n = process_threads.load(std::memory_order_relaxed);
  if (n == 0) [[unlikely]] {
    const int found = default_count();
    process_threads.compare_exchange_strong(n, found);
    n = process_threads.load(std::memory_order_relaxed);
  }
  return n;
}

void set_num_threads(int threads) {
  check(threads >= 1, "[set_num_threads] expected at least 1 thread, got {}", threads);
  const int most = std::max(64, 4 * affinity_count());  // more than that is a slip, and each one costs
  process_threads.store(std::min({threads, most, kMaxThreads}), std::memory_order_relaxed);
  share_threads();
}

bool in_parallel_region() { return detail::in_region; }

int threads_here() {
  if (detail::in_region || forked.load(std::memory_order_relaxed)) return 1;
  const int n = get_num_threads();
  return modes.threads > 0 ? std::min(n, modes.threads) : n;
}

void share_threads() {
  watch_forks();
  const int n = detail::simulated.load(std::memory_order_relaxed) ? 1 : std::min(threads_here(), cpu_count());
  if (n != team_size) detail::set_team_size(team_size = n);
  const uint64_t bits = detail::flush_denormal_bits();
  if (n > 1 && bits != team_denormals) [[unlikely]]
    detail::set_team_denormals(n, team_denormals = bits);
}

int64_t detail::clock_now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

static void run_simulated(detail::Loop& loop) {
  int64_t took = 0, longest = 0;
  for (int64_t piece = 0; piece < loop.pieces; ++piece) {
    const int64_t begun = detail::clock_now();
    loop.run(piece);
    const int64_t piece_took = detail::clock_now() - begun;
    took += piece_took, longest = std::max(longest, piece_took);
  }
  if (detail::simulation) detail::simulation->add(took, longest);
}

void parallel_for_erased(int64_t n, int64_t grain, void (*body)(void*, int64_t, int64_t), void* context) {
  if (n <= 0) return;
  const int64_t most = grain > 1 ? (n - 1) / grain + 1 : n;
  const int64_t pieces = std::min<int64_t>(threads_here(), most);
  if (pieces <= 1) return body(context, 0, n);
  watch_forks();
  detail::Loop loop{n, pieces, body, context, detail::denormal_bits(), {}, {}};
  if (detail::simulated.load(std::memory_order_relaxed)) [[unlikely]] {
    run_simulated(loop);
  } else {
    const detail::DenormalBits inherited(team_denormals);  // by workers that are made now
    detail::run_team(loop);
  }
  if (loop.error) std::rethrow_exception(loop.error);
}

}  // namespace tapir::inline v0
