// cuda_kernels/runtime/memory.cpp: the caching allocator.
#include "cuda.h"

#include <map>
#include <thread>

using namespace tapir;

namespace {
constexpr int64_t kMiB = int64_t(1) << 20;
Tensor bytes(int64_t n) { return empty({n}, {.dtype = kUInt8, .device = kCUDA}); }
}  // namespace

TEST_CASE("cuda memory: what is given back is counted and used again") {
  NEEDS_CUDA
  cuda::empty_cache();
  const int64_t start = cuda::memory_allocated();
  Tensor a = bytes(1000);
  const int64_t size = cuda::memory_allocated() - start;
  CHECK(size == (is_direct() ? 1000 : 1024));
  void* const where = a.data_ptr();
  const MemoryStats before = cuda::memory_stats();
  a = {};
  CHECK(cuda::memory_allocated() == start);
  a = bytes(900);
  const MemoryStats after = cuda::memory_stats();
  CHECK(after.allocations == before.allocations + 1);
  if (!is_direct()) {
    CHECK(a.data_ptr() == where);
    CHECK(after.system_allocations == before.system_allocations);
    CHECK(cuda::memory_reserved() >= 2 * kMiB);
  }
  Tensor large = bytes(30 * kMiB);
  const int64_t peak = cuda::max_memory_allocated();
  CHECK(peak >= 30 * kMiB);
  large = {};
  CHECK(cuda::max_memory_allocated() == peak);
  cuda::reset_peak_memory_stats();
  CHECK(cuda::max_memory_allocated() == cuda::memory_allocated());
  cuda::empty_cache();
  CHECK(cuda::memory_reserved() < 30 * kMiB);
  CHECK(contains(cuda::memory_summary(), "allocated"));
}

TEST_CASE("cuda memory: blocks are cut from segments and join again; the snapshot agrees with the numbers") {
  NEEDS_CUDA
  if (is_direct()) SKIP_TEST("every block is a segment of its own");
  cuda::empty_cache();
  std::vector<Tensor> blocks;
  const int64_t start = cuda::memory_reserved();
  for (int i = 0; i < 4; ++i) blocks.push_back(bytes(2 * kMiB + 1));
  CHECK(cuda::memory_reserved() == start + 20 * kMiB);  // all in one
  blocks.erase(blocks.begin() + 1, blocks.begin() + 3);
  int64_t reserved = 0, in_use = 0;
  std::map<uint64_t, uint64_t> ends;  // of each segment's last block so far
  for (const cuda::MemoryBlock& b : cuda::memory_snapshot()) {
    reserved += b.bytes, in_use += b.in_use ? b.bytes : 0;
    CHECK((b.requested > 0) == b.in_use);
    if (ends.count(b.segment)) CHECK(ends[b.segment] == b.address);
    else CHECK(b.address == b.segment);
    ends[b.segment] = b.address + uint64_t(b.bytes);
  }
  CHECK(reserved == cuda::memory_reserved());
  CHECK(in_use == cuda::memory_allocated());
  const Tensor joined = bytes(4 * kMiB + 1);  // fits where two neighbours were
  CHECK(cuda::memory_reserved() == start + 20 * kMiB);
  blocks.clear();
}

TEST_CASE("cuda memory: a block stays with its stream, and waits for others that were recorded") {
  NEEDS_CUDA
  if (is_emulated() && !is_direct()) SKIP_TEST("the emulation orders whole segments");
  const cuda::Stream side;
  Tensor x = full({1000}, 3.f, {.device = kCUDA}), y;
  void* const where = x.data_ptr();
  side.wait_stream(cuda::current_stream());
  {
    const cuda::StreamGuard guard(side);
    const Tensor other = bytes(4000);
    CHECK(other.data_ptr() != where);
    y = x * 2;
    cuda::record_stream(x, side);
  }
  x = {};
  const Tensor next = full({1000}, 7.f, {.device = kCUDA});  // must not overwrite what `side` reads
  CHECK(next.sum().item<float>() == 7000);
  side.synchronize();
  CHECK(y.to(kCPU).sum().item<float>() == 6000);
  CHECK_FALSE(error_of([&] { cuda::record_stream(ones({2}), side); }).empty());
}

TEST_CASE("cuda memory: out of memory says how much, and one can go on (BI-349)") {
  NEEDS_CUDA
  CHECK(contains(error_of([] { cuda::set_per_process_memory_fraction(0); }), "(0, 1]"));
  CHECK(contains(error_of([] { cuda::set_per_process_memory_fraction(1.5); }), "1.5"));
  const int64_t total = cuda::mem_get_info().total;
  const Tensor m = ones({256, 256}, {.device = kCUDA});
  CHECK(matmul(m, m).sum().item<float>() == 256 * 256 * 256);
  (void)matmul(m, m);  // whose workspace is this thread's until its next kernel, or until empty_cache()
  cuda::empty_cache();
  const int64_t start = cuda::memory_allocated();
  CHECK(start == m.numel() * int64_t(sizeof(float)));
  const std::string text = message_of<OutOfMemoryError>([&] { (void)bytes(2 * total); });
  for (const std::string& part : {std::to_string(2 * total) + " bytes", std::string("cuda:0"), std::string("free"),
                                  std::string("holds"), std::string("cached"), std::string("smaller batches")})
    CHECK(contains(text, part));
  CHECK_FALSE(message_of<OutOfMemoryError>([&] { (void)bytes(INT64_MAX / 2); }).empty());
  CHECK(ones({4}, {.device = kCUDA}).sum().item<float>() == 4);

  cuda::empty_cache();
  const int64_t limit = cuda::memory_reserved() + 64 * kMiB;
  cuda::set_per_process_memory_fraction(double(limit) / double(total));
  for (int round = 0; round < 100; ++round) {
    std::vector<Tensor> held;
    try {
      while (held.size() < 1000) held.push_back(bytes((round % 7 + 5) * kMiB));
    } catch (const OutOfMemoryError& e) {
      if (round == 0) CHECK(contains(e.what(), "set_per_process_memory_fraction"));
    }
    CHECK(held.size() >= 3);  // of 11 MiB, in segments of 20
    CHECK(held.size() < 100);
    held.clear();
    CHECK(cuda::memory_allocated() == start);
  }
  cuda::set_per_process_memory_fraction(1);
}

TEST_CASE("cuda memory: expandable segments grow in place, and their pages go back one by one") {
  NEEDS_CUDA
  const char* const there = std::getenv("TAPIR_EMULATED_VIRTUAL_MEMORY");
  if (allocator() != "expandable" || there) {
    const std::string name = "cuda memory: *";
    if (!there && is_emulated() && allocator() == "caching") {
      CHECK(run_alone("TAPIR_CUDA_ALLOCATOR=expandable", name) == 0);
      CHECK(run_alone("TAPIR_CUDA_ALLOCATOR=expandable TAPIR_EMULATED_VIRTUAL_MEMORY=0", name) == 0);  // as caching
    }
    SKIP_TEST("needs TAPIR_CUDA_ALLOCATOR=expandable");
  }
  const cuda::Stream stream;  // has segments of its own
  const cuda::StreamGuard guard(stream);
  cuda::empty_cache();
  const int64_t start = cuda::memory_reserved(), used = cuda::memory_allocated();
  Tensor a = bytes(30 * kMiB);
  void* const first = a.data_ptr();
  CHECK(cuda::memory_reserved() == start + 40 * kMiB);
  a = {};
  a = bytes(70 * kMiB);  // no block was so large: the segment goes on where it ended
  CHECK(a.data_ptr() == first);
  CHECK(cuda::memory_reserved() == start + 80 * kMiB);
  a = {};
  a = bytes(20 * kMiB), a.fill_(1);
  Tensor b = bytes(20 * kMiB), c = bytes(45 * kMiB);
  b.fill_(2), c.fill_(3);
  CHECK(cuda::memory_reserved() == start + 100 * kMiB);
  a = {};
  cuda::empty_cache();  // the page of a, and nothing of c's last one
  CHECK(cuda::memory_reserved() == start + 80 * kMiB);
  CHECK(cuda::memory_allocated() == used + 65 * kMiB);
  int64_t reserved = 0;
  uint64_t before = 0;
  for (const cuda::MemoryBlock& m : cuda::memory_snapshot()) {
    reserved += m.bytes;
    if (m.segment == m.address) before = m.address;
    CHECK(m.segment == before);  // a run of pages
    CHECK(m.address != uint64_t(uintptr_t(first)));
  }
  CHECK(reserved == cuda::memory_reserved());
  CHECK(b.cpu().sum().item<int64_t>() == 40 * kMiB);
  CHECK(c.cpu().sum().item<int64_t>() == 135 * kMiB);
  a = bytes(18 * kMiB);  // where there is room at the lowest address
  CHECK(a.data_ptr() == first);
  CHECK(cuda::memory_reserved() == start + 100 * kMiB);

  // At the limit the cache of another stream goes back, and its pages serve here.
  {
    const cuda::StreamGuard other((cuda::Stream()));
    (void)bytes(60 * kMiB);
  }
  const double total = double(cuda::mem_get_info().total);
  cuda::set_per_process_memory_fraction(double(start + 170 * kMiB) / total);
  Tensor d = bytes(50 * kMiB);
  CHECK(cuda::memory_reserved() == start + 140 * kMiB);
  CHECK(contains(message_of<OutOfMemoryError>([&] { (void)bytes(100 * kMiB); }), "cached"));
  cuda::set_per_process_memory_fraction(1);
  CHECK(c.cpu().sum().item<int64_t>() == 135 * kMiB);
  a = b = c = d = Tensor();
  cuda::empty_cache();
  CHECK(cuda::memory_reserved() <= start);
  CHECK(cuda::memory_allocated() == used);
}

TEST_CASE("cuda memory: freed by another thread, and from many at once") {
  NEEDS_CUDA
  const int64_t start = cuda::memory_allocated();
  std::vector<Tensor> made(64);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = t; i < 64; i += 4) made[size_t(i)] = bytes((i % 5 + 1) * 300000);
      for (int i = 0; i < 100; ++i) (void)bytes(i * 1000 + 1);
    });
  for (std::thread& t : threads) t.join();
  made.clear();
  CHECK(cuda::memory_allocated() == start);
}
