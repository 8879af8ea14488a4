#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include <tapir/core/allocator.h>
#include <tapir/core/busy_neighbour.h>
#include <tapir/core/error.h>
#include <tapir/core/modes.h>
#include <tapir/core/parallel.h>
#include <tapir/core/simulation.h>

#include "../catch.h"
#include "../modes.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

int64_t pieces_of(int64_t n, int64_t grain) {
  std::atomic<int64_t> pieces{0};
  parallel_for(n, grain, [&](int64_t, int64_t) { ++pieces; });
  return pieces;
}

}  // namespace

TEST_CASE("pieces cover the range once") {
  for (int threads : {1, 2, 3, 7}) {
    ThreadCount guard(threads);
    for (int64_t n : {0, 1, 2, 5, 64, 1000, 1001})
      for (int64_t grain : {0, 1, 3, 500, 2000}) {
        std::vector<int> seen(size_t(n), 0);
        parallel_for(n, grain, [&](int64_t first, int64_t last) {
          for (int64_t i = first; i < last; ++i) ++seen[size_t(i)];
        });
        CHECK(std::count(seen.begin(), seen.end(), 1) == n);
      }
  }
}

TEST_CASE("small loops run in few pieces") {
  ThreadCount guard(4);
  CHECK(pieces_of(1000, 1) == 4);
  CHECK(pieces_of(1000, 400) == 3);
  CHECK(pieces_of(1000, 1000) == 1);
  ScopedMode limit(modes.threads, 2);
  CHECK(threads_here() == 2);
  CHECK(pieces_of(1000, 1) == 2);
}

TEST_CASE("the first exception reaches the caller, once, and the team survives") {
  ThreadCount guard(4);
  for (int round = 0; round < 3; ++round) {
    std::string message;
    try {
      parallel_for(100, 1, [](int64_t first, int64_t) { throw std::runtime_error("piece " + std::to_string(first)); });
    } catch (const std::runtime_error& e) {
      message = e.what();
    }
    CHECK(message.substr(0, 6) == "piece ");
    CHECK_THROWS_AS(parallel_for(100, 1, [](int64_t, int64_t last) { check(last < 100, "[loop] the last piece"); }),
                    ValueError);
    CHECK(!in_parallel_region());
    CHECK(pieces_of(100, 1) == 4);
  }
}

TEST_CASE("loops within loops are serial") {
  ThreadCount guard(4);
  std::atomic<int> inner{0}, wrong{0};
  parallel_for(8, 1, [&](int64_t, int64_t) {
    wrong += !in_parallel_region() || threads_here() != 1;
    const auto outer = std::this_thread::get_id();
    parallel_for(100, 1, [&](int64_t first, int64_t last) {
      ++inner;
      wrong += first != 0 || last != 100 || std::this_thread::get_id() != outer;
    });
  });
  CHECK(inner == 4);
  CHECK(wrong == 0);
}

TEST_CASE("thread numbers are checked") {
  CHECK_THROWS_AS(set_num_threads(0), ValueError);
  CHECK_THROWS_AS(set_num_threads(-1), ValueError);
  CHECK(get_num_threads() >= 1);
  ThreadCount guard(1000000);
  CHECK(get_num_threads() <= 1024);
}

#if !defined(__SANITIZE_THREAD__)  // there any thread of the team takes any piece
TEST_CASE("a loop of few pieces leaves the team as it is") {
  ThreadCount guard(6);
  const auto threads_of = [](int64_t pieces) {
    std::mutex mutex;
    std::set<pid_t> seen;
    parallel_for(pieces, 1, [&](int64_t, int64_t) {
      std::lock_guard lock(mutex);
      seen.insert(gettid());
    });
    return seen;
  };
  const auto before = threads_of(6);
  CHECK(threads_of(2).size() <= 2);
  CHECK(threads_of(6) == before);
}
#endif

TEST_CASE("many threads may run loops at once") {
  ThreadCount guard(3);
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&] {
      for (int i = 0; i < 200; ++i) parallel_for(100, 1, [&](int64_t first, int64_t last) { sum += last - first; });
    });
  for (auto& c : callers) c.join();
  CHECK(sum == 4 * 200 * 100);
}

TEST_CASE("a busy neighbour is told from workers that sleep") {
  using Evidence = detail::BusyNeighbour::Evidence;
  constexpr int64_t kShortest = detail::BusyNeighbour::kShortest, kMs = 1000;
  detail::BusyNeighbour n;
  int64_t now = 1'000'000;
  const auto loop = [&](int64_t gap, int64_t took, bool late) {
    const Evidence e = n.note_begin(now += gap);
    now += took;
    const int64_t stay = late ? n.note_late(now, e) : 0;
    n.note_end(now);
    return stay;
  };
  // Calls after 45 ms, of which the first two are late, are no sign; the rest of the burst is not late.
  for (int call = 0; call < 100; ++call) {
    CHECK(loop(45 * kMs, 9 * kMs, true) == 0);
    CHECK(loop(10, 2 * kMs, true) == 0);
    for (int i = 0; i < 50; ++i) loop(10, 20, false);
  }
  // In a step without gaps two late loops are one.
  CHECK(loop(10, 5 * kMs, true) == 0);
  for (int i = 0; i < 10; ++i) loop(10, 20, false);
  CHECK(loop(10, 5 * kMs, true) == kShortest);
  // On trial one is enough, and the time doubles.
  now += kShortest;
  n.note_left(now), n.note_end(now);
  for (int i = 0; i < 3; ++i) loop(10, 20, false);
  CHECK(loop(10, 5 * kMs, true) == 2 * kShortest);
  // Short bursts with a neighbour: every loop is late.
  now += 1'000 * kMs;
  int64_t stay = 0;
  for (int i = 0; i < 10 && !stay; ++i) stay = loop(5 * kMs, 5 * kMs, true);
  CHECK(stay == kShortest);
}

TEST_CASE("simulated threads: all pieces run in the calling thread, which notes what they would save") {
  ThreadCount guard(4);
  struct Simulated {
    explicit Simulated(detail::Simulation& to) { detail::simulated = true, detail::simulation = &to; }
    ~Simulated() { detail::simulated = false, detail::simulation = nullptr; }
  };
  detail::Simulation noted;
  std::optional<Simulated> simulated(noted);
  std::vector<int> seen(100, 0);
  bool elsewhere = false, alone = false;
  const std::thread::id caller = std::this_thread::get_id();
  parallel_for(100, 1, [&](int64_t first, int64_t last) {
    elsewhere |= std::this_thread::get_id() != caller || last - first != 25;
    for (int64_t i = first; i < last; ++i) ++seen[size_t(i)];
    parallel_for(10, 1, [&](int64_t, int64_t n) { alone = n == 10; });
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
    while (std::chrono::steady_clock::now() < until) {}
  });
  CHECK_THROWS_AS(parallel_for(8, 1, [](int64_t, int64_t) { throw ValueError("a piece"); }), ValueError);
  simulated.reset();
  CHECK(std::count(seen.begin(), seen.end(), 1) == 100);
  CHECK(!elsewhere);
  CHECK(alone);
  CHECK(noted.loops == 2);
  CHECK(noted.saved >= 6'000'000 - 1000);  // three of four: a lower bound that no load of the machine breaks
  CHECK(pieces_of(100, 1) == 4);
}

TEST_CASE("a forked child computes, serially") {
  ThreadCount guard(4);
  CHECK(pieces_of(100, 1) == 4);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a hang ends the child, not the test
    int64_t sum = 0;
    parallel_for(100, 1, [&](int64_t first, int64_t last) { sum += last - first; });
    share_threads();
    _exit(sum == 100 && threads_here() == 1 ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(pieces_of(100, 1) == 4);
}

TEST_CASE("a process forks whose workers have memory of their own") {
  if (!std::getenv("TAPIR_FORKS_ALONE")) {  // in a new process, where threads are set before anything is allocated
    CHECK(run_alone("TAPIR_FORKS_ALONE=1", "a process forks whose workers have memory of their own") == 0);
    return;
  }
  alarm(60);
  set_num_threads(4);
  const auto allocate = [] { parallel_for(64, 1, [](int64_t, int64_t) { cpu_release(cpu_allocate(1000), 1000); }); };
  for (int i = 0; i < 20; ++i) allocate();
  const pid_t child = fork();
  if (child == 0) {
    allocate();
    _exit(0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  allocate();
}
