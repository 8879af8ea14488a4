#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

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

TEST_CASE("simulated threads: all pieces run in the calling thread, which notes what they would save") {
  ThreadCount guard(4);
  detail::Simulation noted;
  detail::simulated = true, detail::simulation = &noted;
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
  detail::simulated = false, detail::simulation = nullptr;
  CHECK(std::count(seen.begin(), seen.end(), 1) == 100);
  CHECK(!elsewhere);
  CHECK(alone);
  CHECK(noted.loops == 2);
  CHECK(noted.saved >= 6'000'000 - 1000);  // three of four
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
