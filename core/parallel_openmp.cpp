#include <omp.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "busy_neighbour.h"
#include "parallel_detail.h"

// Note [The busy neighbour]
// libgomp's threads wait by spinning for some milliseconds. That is the fastest on an idle machine, and ruinous beside another
// busy process: a spinning thread holds the CPU that its own team mate needs, and a loop of 0.1 ms takes 5 ms or more. libgomp spins
// shortly only while it manages more threads than there are CPUs. So: when workers begin their pieces late, or a call into a library
// takes far longer than the fastest of its kind (twice within 100 ms or 32 loops, since a step may take longer than that by then),
// an idle extra team is parked, which makes libgomp, and with it oneDNN, wait passively. After a while the team is sent home to
// see whether the machine is free again; each time that it is not, twice as long is waited before the next try. The number
// of pieces never changes, so that results do not depend on the neighbours.
// The first loops after some idle milliseconds say little: the workers sleep by then, and the system may wake one on the caller's CPU, where
// it waits until the scheduler moves it. Of those it takes several within 100 ms.
// Where all calls into a library have been slow from the first, none is late by the fastest: after a long one, now and then, an empty loop of
// ours shows whether workers are.
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

constexpr int64_t kLong = 1'500, kBetweenProbes = 40'000;  // microseconds

class Parking {
 public:
  using Evidence = BusyNeighbour::Evidence;

  /// True while the extra team is there. Ends its stay when that is over.
  bool parked(int64_t now) {
    const int64_t until = until_.load(std::memory_order_relaxed);
    if (until == 0) [[likely]]
      return false;
    if (now < until) return true;
    std::lock_guard lock(mutex_);
    if (until_.load() == until) leave();
    return true;
  }
  /// A worker began its piece late.
  void note_late(Evidence evidence) {
    std::lock_guard lock(mutex_);
    const int64_t now = microseconds();
    if (until_.load() != 0) return;
    const int64_t stay = neighbour.note_late(now, evidence);
    if (stay && enter()) until_.store(now + stay);
  }
  bool may_probe(int64_t now) {
    int64_t last = probed_.load(std::memory_order_relaxed);
    return now - last > kBetweenProbes && probed_.compare_exchange_strong(last, now);
  }
  BusyNeighbour neighbour;

 private:
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
    neighbour.note_left(microseconds());
    until_.store(0);
  }

  std::atomic<int64_t> until_{0}, probed_{0};
  std::mutex mutex_;
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

/// By the whole team, even where it has few pieces: threads that a smaller one leaves out end, and starting them again takes far longer than
/// to wait for them.
void run_team(Loop& loop) {
  const int threads = affordable(std::max(int(loop.pieces), threads_here()));
  std::atomic<bool> late{false};
  const int64_t begin = microseconds(), latest = begin + 500 + 10 * loop.pieces;
  Parking& p = parking();
  const bool parked = p.parked(begin);
  const BusyNeighbour::Evidence evidence = p.neighbour.note_begin(begin);
#pragma omp parallel num_threads(threads)
  {
    const int me = omp_get_thread_num();
    if (!parked && me != 0 && me < loop.pieces && microseconds() > latest) late.store(true, std::memory_order_relaxed);
    // Fewer threads than asked for may have come.
    for (int64_t piece = me; piece < loop.pieces; piece += omp_get_num_threads()) loop.run(piece);
  }
  if (late.load(std::memory_order_relaxed)) [[unlikely]]
    p.note_late(evidence);
  p.neighbour.note_end(microseconds());
}

LibraryLoop begin_library_loop() {
  const int64_t now = microseconds();
  const bool parked = parking().parked(now);
  const BusyNeighbour::Evidence evidence = parking().neighbour.note_begin(now);
  return {parked ? 0 : now, evidence == BusyNeighbour::Evidence::Strong};
}

void end_library_loop(LibraryLoop loop, int64_t& fastest) {
  const int64_t now = microseconds();
  parking().neighbour.note_end(now);
  if (loop.begun == 0) return;
  const int64_t took = now - loop.begun;
  fastest = std::min(fastest, took);
  if (took > 500 + 3 * fastest) [[unlikely]]
    parking().note_late(loop.telling ? BusyNeighbour::Evidence::Strong : BusyNeighbour::Evidence::Weak);
  else if (took > kLong && parking().may_probe(now)) {
    Loop nothing{2, 2, [](void*, int64_t, int64_t) {}, nullptr, denormal_bits(), {}, {}};
    run_team(nothing);
  }
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
