#include <omp.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "parallel_detail.h"

// Note [The busy neighbour]
// libgomp's threads wait by spinning for some milliseconds. That is the fastest on an idle machine, and ruinous beside another
// busy process: a spinning thread holds the CPU that its own team mate needs, and a loop of 0.1 ms takes 5 ms or more. libgomp spins
// shortly only while it manages more threads than there are CPUs. So: when workers begin their pieces late, or a call into a library
// takes far longer than the fastest of its kind (twice within 100 ms or 32 loops, since a step may take longer than that by then),
// an idle extra team is parked, which makes libgomp, and with it oneDNN, wait passively. After a while the team is sent home to
// see whether the machine is free again; each time that it is not, twice as long is waited before the next try. The number
// of pieces never changes, so that results do not depend on the neighbours.
// The first loops after some idle milliseconds say nothing: the workers sleep by then, and the system may wake one on the CPU where the
// caller is, which holds it until they are put apart.
namespace tapir::inline v0::detail {
namespace {

int64_t microseconds() { return clock_now() / 1000; }

/// How many of `wanted` threads can be had: libgomp ends the process when it cannot start one (RLIMIT_NPROC), so try first.
int affordable(int wanted) {
  static thread_local int proven = 1, refused = 1 << 30;
  if (wanted <= proven || wanted >= refused) return std::min(wanted, proven);
  std::mutex gate;
  std::vector<std::thread> tries;
  try {
    std::lock_guard hold(gate);  // they must all exist at once
    while (int(tries.size()) + 1 < wanted) tries.emplace_back([&] { std::lock_guard pass(gate); });
  } catch (const std::system_error& e) {
    refused = wanted;
    static std::once_flag once;
    std::call_once(once, [&] {
      std::fprintf(stderr, "tapir: warning: %d threads wanted, %zu could be started (%s)\n", wanted, tries.size() + 1,
                   e.what());
    });
  }
  for (auto& t : tries) t.join();
  return proven = std::max(proven, int(tries.size()) + 1);
}

class Parking {
 public:
  /// A loop begins. Ends the stay of the extra team when that is over. False: whether this loop is late says nothing.
  bool note_begin(int64_t now) {
    const int64_t loop = loops_.fetch_add(1, std::memory_order_relaxed);
    if (now - ended_.load(std::memory_order_relaxed) > kAwake) woke_.store(loop, std::memory_order_relaxed);
    const int64_t until = until_.load(std::memory_order_relaxed);
    if (until == 0) [[likely]]
      return loop - woke_.load(std::memory_order_relaxed) >= kWaking;
    if (now < until) return false;
    std::lock_guard lock(mutex_);
    if (until_.load() == until) leave();
    return false;
  }
  void note_end(int64_t now) { ended_.store(now, std::memory_order_relaxed); }
  /// A worker began its piece late.
  void note_late() {
    std::lock_guard lock(mutex_);
    const Moment now = moment(), before = std::exchange(last_late_, now);
    if (until_.load() != 0) return;
    const bool on_trial = soon(left_, now, kTrial);
    if (!on_trial && !soon(before, now, kTwice)) return;
    stay_ = on_trial ? std::min(2 * stay_, kLongest) : kShortest;
    if (enter()) until_.store(now.time + stay_);
  }

 private:
  static constexpr int64_t kTwice = 100'000, kTrial = 30'000, kShortest = 50'000, kLongest = 2'000'000;
  static constexpr int64_t kAwake = 2'000, kWaking = 3, kFewLoops = 32;
  struct Moment {
    int64_t time, loop;
  };

  Moment moment() const { return {microseconds(), loops_.load(std::memory_order_relaxed)}; }
  static bool soon(Moment a, Moment b, int64_t time) { return b.time - a.time <= time || b.loop - a.loop <= kFewLoops; }

  bool enter() {
    const int size = omp_get_num_procs() + 1;
    stop_ = false;
    try {
      host_ = std::thread([this, size] {
        if (affordable(size) < size) return;
#pragma omp parallel num_threads(size)
        {
          std::unique_lock lock(stay_mutex_);
          leave_.wait(lock, [&] { return stop_; });
        }
      });
    } catch (const std::system_error&) {
      return false;
    }
    return true;
  }
  void leave() {
    {
      std::lock_guard lock(stay_mutex_);
      stop_ = true;
    }
    leave_.notify_all();
    host_.join();  // its team goes with it
    left_ = moment();
    until_.store(0);
  }

  std::atomic<int64_t> until_{0}, loops_{0}, ended_{0}, woke_{0};
  std::mutex mutex_;
  Moment last_late_{-kTwice, -kFewLoops - 1}, left_{-kTrial, -kFewLoops - 1};
  int64_t stay_ = kShortest;
  std::thread host_;
  std::mutex stay_mutex_;
  std::condition_variable leave_;
  bool stop_ = false;
};

/// Never destroyed: its threads may outlive main.
Parking& parking() {
  static Parking* const p = new Parking;
  return *p;
}

}  // namespace

void run_team(Loop& loop) {
  const int threads = affordable(int(loop.pieces));
  std::atomic<bool> late{false};
  const int64_t begin = microseconds(), latest = begin + 500 + 10 * loop.pieces;
  const bool telling = parking().note_begin(begin);
#pragma omp parallel num_threads(threads)
  {
    if (telling && omp_get_thread_num() != 0 && microseconds() > latest) late.store(true, std::memory_order_relaxed);
    // Fewer threads than asked for may have come.
    for (int64_t piece = omp_get_thread_num(); piece < loop.pieces; piece += omp_get_num_threads()) loop.run(piece);
  }
  if (late.load(std::memory_order_relaxed)) [[unlikely]]
    parking().note_late();
  parking().note_end(microseconds());
}

int64_t begin_library_loop() {
  const int64_t now = microseconds();
  return parking().note_begin(now) ? now : 0;
}

void end_library_loop(int64_t begun, int64_t& fastest) {
  const int64_t now = microseconds(), took = now - begun;
  parking().note_end(now);
  if (begun == 0) return;
  fastest = std::min(fastest, took);
  if (took > 500 + 3 * fastest) [[unlikely]]
    parking().note_late();
}

void set_team_size(int threads) { omp_set_num_threads(affordable(threads)); }
void set_team_denormals(int threads, uint64_t bits) {
#pragma omp parallel num_threads(affordable(threads))
  DenormalBits::set(bits);
}

// The forking thread's team is dissolved, since the child would wait for it forever. It comes back with the next loop.
void before_fork() {
  if (!omp_in_parallel()) omp_pause_resource(omp_pause_soft, omp_get_initial_device());
}

}  // namespace tapir::inline v0::detail
