#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include <tapir/core/allocator.h>
#include <tapir/core/error.h>
#include <tapir/core/tensor.h>

#include "../catch.h"
#include "messages.h"

using namespace tapir;
using tapir_tests::contains;
using tapir_tests::message_of;

namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kCaches = false;
#else
constexpr bool kCaches = true;
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kNeedsAddressSpace = true;
#else
constexpr bool kNeedsAddressSpace = false;
#endif

/// Runs f in a child process; true when it returned true.
template <class F> bool in_child(F f) {
  const pid_t child = fork();
  if (child == 0) {
    bool ok = false;
    try {
      ok = f();
    } catch (...) {}
    _exit(ok ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEST_CASE("blocks of every size are aligned, writable and come back") {
  trim_memory();  // a cached block may be larger
  const int64_t before = memory_stats().allocated;
  for (int64_t bytes :
       {int64_t(0), int64_t(1), int64_t(63), int64_t(64), int64_t(65), int64_t(512), int64_t(513), int64_t(577),
        int64_t(1023), int64_t(1025), int64_t(4096), int64_t(100000), (int64_t(1) << 20) - 1, int64_t(1) << 20,
        (int64_t(1) << 20) + 1, int64_t(3) << 20, int64_t(5000001), int64_t(33) << 20}) {
    INFO(bytes);
    void* block = cpu_allocate(bytes);
    REQUIRE(block);
    CHECK(reinterpret_cast<uintptr_t>(block) % 64 == 0);
    std::memset(block, 0xa5, size_t(bytes));
    const int64_t held = memory_stats().allocated - before;
    CHECK(held >= bytes);
    CHECK(held <= bytes + std::max<int64_t>({64, bytes / 7, bytes > (4 << 20) ? 2 << 20 : 0}));
    cpu_release(block, bytes);
    CHECK(memory_stats().allocated == before);
  }
  cpu_release(nullptr, 100);
  CHECK(cpu_allocate(-1) == nullptr);
}

TEST_CASE("statistics, peaks and trimming") {
  trim_memory();
  reset_peak_memory_stats();
  const MemoryStats start = memory_stats();
  CHECK(start.max_allocated == start.allocated);
  void* large = cpu_allocate(8 << 20);
  void* small = cpu_allocate(4096);
  MemoryStats s = memory_stats();
  CHECK(s.allocated == start.allocated + (8 << 20) + 4096);
  CHECK(s.allocations == start.allocations + 2);
  CHECK(s.reserved >= s.allocated);
  cpu_release(large, 8 << 20);
  cpu_release(small, 4096);
  s = memory_stats();
  CHECK(s.allocated == start.allocated);
  CHECK(s.max_allocated == start.allocated + (8 << 20) + 4096);
  if (kCaches) CHECK(s.reserved == start.reserved + (8 << 20) + 4096);
  // The same sizes again, and one a little smaller, come from the cache.
  const int64_t calls = s.system_allocations;
  for (int64_t bytes : {int64_t(8) << 20, int64_t(4096), int64_t(7) << 20}) cpu_release(cpu_allocate(bytes), bytes);
  if (kCaches) CHECK(memory_stats().system_allocations == calls);
  trim_memory();
  CHECK(memory_stats().reserved == start.reserved);
  reset_peak_memory_stats();
  CHECK(memory_stats().max_allocated == start.allocated);
}

TEST_CASE("blocks may be freed by another thread, and threads may end") {
  trim_memory();
  const MemoryStats start = memory_stats();
  std::vector<std::pair<void*, int64_t>> blocks;
  std::thread([&] {
    for (int i = 1; i <= 500; ++i) blocks.emplace_back(cpu_allocate(i * 97), i * 97);
  }).join();
  std::vector<std::thread> workers;
  for (int w = 0; w < 4; ++w)
    workers.emplace_back([&, w] {
      for (size_t i = size_t(w); i < blocks.size(); i += 4) cpu_release(blocks[i].first, blocks[i].second);
      for (int round = 0; round < 300; ++round) {
        void* a = cpu_allocate(64 + round % 7 * 1000);
        void* b = cpu_allocate((2 << 20) + round % 5);
        static_cast<char*>(a)[0] = static_cast<char*>(b)[1 << 20] = char(round);
        cpu_release(b, (2 << 20) + round % 5);
        cpu_release(a, 64 + round % 7 * 1000);
      }
    });
  for (auto& w : workers) w.join();
  CHECK(memory_stats().allocated == start.allocated);
  trim_memory();
  CHECK(memory_stats().reserved == start.reserved);
}

TEST_CASE("what several threads allocate adds up while they live") {
  const MemoryStats start = memory_stats();
  std::atomic<int> waiting{0};
  std::atomic<bool> go_on{false};
  std::vector<void*> blocks(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 1000; ++i) cpu_release(cpu_allocate(64 << (i % 12)), 64 << (i % 12));
      blocks[t] = cpu_allocate(4096);
      ++waiting;
      while (!go_on) std::this_thread::yield();
      cpu_release(blocks[(t + 1) % 4], 4096);  // another one's
    });
  while (waiting < 4) std::this_thread::yield();
  const MemoryStats now = memory_stats();
  CHECK(now.allocated == start.allocated + 4 * 4096);
  CHECK(now.allocations == start.allocations + 4 * 1001);
  CHECK(now.max_allocated >= start.allocated + 4 * 4096);
  reset_peak_memory_stats();
  CHECK(memory_stats().max_allocated == now.allocated);
  go_on = true;
  for (auto& t : threads) t.join();
  CHECK(memory_stats().allocated == start.allocated);
  CHECK(memory_stats().max_allocated <= now.allocated + 4 * 4096);
}

TEST_CASE("peaks between two lumps of a thread's counts count, and stay") {
  constexpr int64_t kOthers = 16 * (256 << 10);  // what threads of earlier tests may hold
  constexpr int kBlocks = 1003;
  std::thread([] {
    reset_peak_memory_stats();
    const MemoryStats start = memory_stats();
    std::vector<void*> blocks;
    for (int i = 0; i < kBlocks; ++i) blocks.push_back(cpu_allocate(65536));
    const MemoryStats top = memory_stats();
    CHECK(top.allocated == start.allocated + kBlocks * 65536);
    CHECK(top.max_allocated >= top.allocated);
    CHECK(top.max_allocated <= top.allocated + kOthers);
    for (void* block : blocks) cpu_release(block, 65536);
    cpu_release(cpu_allocate(100'000), 100'000);
    CHECK(memory_stats().allocated == start.allocated);
    CHECK(memory_stats().max_allocated == top.max_allocated);
    reset_peak_memory_stats();
    void* small = cpu_allocate(65536);  // less than a lump
    cpu_release(small, 65536);
    CHECK(memory_stats().max_allocated == start.allocated + 65536);
  }).join();
}

TEST_CASE("statistics hold while other threads move lumps") {
  const MemoryStats start = memory_stats();
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      while (!stop) cpu_release(cpu_allocate(2 << 20), 2 << 20);
    });
  reset_peak_memory_stats();
  int64_t least = INT64_MAX, most = 0;
  for (int i = 0; i < 2000; ++i) {
    const MemoryStats now = memory_stats();
    least = std::min(least, now.allocated), most = std::max({most, now.allocated, now.max_allocated});
  }
  stop = true;
  for (auto& t : threads) t.join();
  CHECK(least >= start.allocated - 3 * (256 << 10));
  CHECK(most <= start.allocated + 3 * (2 << 20) + 3 * (256 << 10));
  CHECK(memory_stats().allocated == start.allocated);
}

TEST_CASE("what a thread frees as it ends is counted") {
  const MemoryStats start = memory_stats();
  struct Late {
    void* block = nullptr;
    ~Late() { cpu_release(block, 4096); }
  };
  std::thread([] {
    static thread_local Late late;  // made before the thread's cache, so that it goes after it
    late.block = nullptr;
    late.block = cpu_allocate(4096);
  }).join();
  CHECK(memory_stats().allocated == start.allocated);
  CHECK(memory_stats().allocations == start.allocations + 1);
}

TEST_CASE("a request that the machine cannot hold fails cleanly") {
  CHECK(cpu_allocate(int64_t(1) << 40) == nullptr);
  CHECK(cpu_allocate(INT64_MAX) == nullptr);
  const std::string message = message_of<OutOfMemoryError>([] { empty({int64_t(1) << 38}); });
  CHECK(contains(message, "1099511627776"));
  CHECK(contains(message, "cpu"));
  CHECK(contains(message, "cached"));
  const Tensor after = empty({10});
  CHECK(after.numel() == 10);
}

TEST_CASE("a limited address space gives an OutOfMemoryError") {
  if (kNeedsAddressSpace) SKIP_TEST("a sanitizer needs the address space");
  const auto limited = [] {
    rlimit limit{}, now{};
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = rlim_t(4) << 30;
    setrlimit(RLIMIT_AS, &limit);
    getrlimit(RLIMIT_AS, &now);
    return now.rlim_cur == limit.rlim_cur;
  };
  if (!in_child(limited)) SKIP_TEST("no such limit can be set here (qemu passes none on)");
  CHECK(in_child([&] {
    limited();
    std::vector<Tensor> held;
    try {
      for (int i = 0; i < 40; ++i) held.push_back(empty({int64_t(64) << 20}));
    } catch (const OutOfMemoryError& e) {
      held.clear();
      return contains(e.what(), "address space limited") && empty({int64_t(64) << 20}).defined();
    }
    return false;
  }));
}

TEST_CASE("the summary is a table") {
  const std::string s = memory_summary();
  for (const char* row : {"allocated", "cached", "reserved", "available", "calls"}) CHECK(contains(s, row));
}

TEST_CASE("node blocks serve any size, across threads, at their ends and at exit") {
  std::vector<std::pair<void*, size_t>> blocks;
  for (size_t bytes = 0; bytes < 3000; bytes += 37) {
    blocks.emplace_back(pool_allocate(bytes), bytes);
    std::memset(blocks.back().first, 0x5a, bytes);
    CHECK(reinterpret_cast<uintptr_t>(blocks.back().first) % 16 == 0);
  }
  std::thread([&] {
    for (auto& [block, bytes] : blocks) pool_release(block, bytes);
    for (int i = 0; i < 10000; ++i) pool_release(pool_allocate(200), 200);
    std::vector<void*> many;
    for (int i = 0; i < 10000; ++i) many.push_back(pool_allocate(64));
    for (void* block : many) pool_release(block, 64);
  }).join();
  // Destructors of a thread that run after the pool's own still get and return blocks.
  struct Late {
    void* block = nullptr;
    ~Late() {
      pool_release(block, 300);
      pool_release(pool_allocate(300), 300);
      cpu_release(cpu_allocate(5000), 5000);
    }
  };
  std::thread([] {
    static thread_local Late late;  // made before the pool: destroyed after it
    late.block = pool_allocate(300);
    cpu_release(cpu_allocate(5000), 5000);
  }).join();
  static Late until_exit;
  until_exit.block = pool_allocate(300);
  pool_release(nullptr, 10);
}
