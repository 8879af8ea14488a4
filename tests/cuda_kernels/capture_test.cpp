// cuda_kernels/runtime/graphs.cpp, streams.cpp, late_errors.cpp, memory.cpp: what threads do while another one captures a graph, or their own.
#include <tapir/core/device_table.h>
#include <tapir/core/modes.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "fused_steps.h"

using namespace tapir;

namespace {

const DeviceTable& table() { return *backend(kCUDA).device; }
std::string any_error(const std::function<void()>& f) { return message_of<std::exception>(f); }

/// Captures a kernel, `meanwhile` running at the same time. Does the graph do what the kernel did?
bool captures(const std::function<void()>& meanwhile) {
  const Tensor x = zeros({64}, {.device = kCUDA});
  const char* why = "";
  {
    ScopedMode<void*> stream(modes.streams[0], table().begin_capture(kCUDA));
    meanwhile();
    if (any_error([&] { backend(kCUDA).fill(context(kCUDA), {x, 3.0}); }) != "")  // it was spoilt
      return table().end_capture(kCUDA, false, why), false;
  }
  void* const graph = table().end_capture(kCUDA, true, why);
  if (!graph) return false;
  table().launch_graph(kCUDA, graph, current_stream(kCUDA));
  table().destroy_graph(kCUDA, graph);
  return x.sum().item<float>() == 3 * 64;
}
bool captures_beside(const std::function<void()>& f, std::string& thrown) {
  return captures([&] { std::thread([&] { thrown = any_error(f); }).join(); });
}

}  // namespace

TEST_CASE("cuda graphs: who waits for the device waits for captures of other threads, and spoils none") {
  NEEDS_CUDA
  std::atomic<bool> ended{false}, early{false};
  std::string thrown;
  std::thread other;
  CHECK(captures([&] {
    other = std::thread([&] {
      thrown = any_error([&] {
        cuda::synchronize();
        early = !ended;
      });
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ended = true;
  }));
  other.join();
  CHECK(thrown == "");
  CHECK_FALSE(early);
}

TEST_CASE("cuda graphs: a bad index is told to its thread while another one captures") {
  NEEDS_CUDA
  const Tensor table = randn({10, 4}, {.device = kCUDA}), bad = tensor({99}).to(kCUDA);
  cuda::synchronize();
  std::string text, thrown;
  CHECK(captures_beside([&] { text = error_of([&] { (void)embedding(bad, table).cpu(); }); }, thrown));
  CHECK(contains(text, "99"));
  CHECK(thrown == "");
  CHECK(error_of([] { cuda::synchronize(); }).empty());
}

TEST_CASE("cuda graphs: memory goes back to the driver while another thread captures") {
  NEEDS_CUDA
  if (is_emulated() && allocator() == "caching")
    CHECK(run_alone("TAPIR_CUDA_ALLOCATOR=expandable", "cuda graphs: memory goes back*") == 0);
  std::string thrown;
  int64_t reserved = 0;
  cuda::empty_cache();
  const auto use_and_drop = [&] {
    const cuda::Stream side;
    for (const bool beside : {false, true}) {
      std::optional<cuda::StreamGuard> guard;
      if (beside) guard.emplace(side);
      const Tensor x = ones({1 << 23}, {.device = kCUDA});
      (void)add(x, 1);
    }
    reserved = cuda::memory_reserved();
    cuda::empty_cache();
    reserved -= cuda::memory_reserved();
  };
  CHECK(captures_beside(use_and_drop, thrown));
  CHECK(thrown == "");
  CHECK(reserved >= (is_direct() ? 0 : int64_t(4) << 25));
}

TEST_CASE("cuda graphs: what waits is refused to the thread that captures, at once, and spoils nothing") {
  NEEDS_CUDA
  std::string texts[6];
  const cuda::Stream stream;
  cuda::Event event(true);
  event.record(stream);
  cuda::synchronize();
  CHECK(captures([&] {
    texts[0] = any_error([] { cuda::synchronize(); });
    texts[1] = any_error([] { cuda::empty_cache(); });
    texts[2] = any_error([&] { event.synchronize(); });
    texts[3] = any_error([&] { (void)event.query(); });
    texts[4] = any_error([&] { (void)event.elapsed_time(event); });
    texts[5] = any_error([&] { (void)stream.query(); });
  }));
  for (const std::string& text : texts) CHECK(contains(text, "while a graph is captured"));
}

TEST_CASE("cuda graphs: a thread that captures asks no event for memory, and takes none from the driver") {
  NEEDS_CUDA
  const cuda::Stream side;
  {
    const Tensor x = ones({1000}, {.device = kCUDA}), page_locked = ones({77777}).pin_memory();
    (void)page_locked.to(kCUDA, true);
    cuda::record_stream(x, side);
  }  // what is released waits for events
  std::string texts[2];
  CHECK(captures([&] {
    texts[0] = any_error([] { (void)empty({1 << 20}, {.device = kCUDA}); });
    texts[1] = any_error([] { (void)empty({3 << 20}).pin_memory(); });
  }));
  CHECK((contains(texts[0], "[allocate]") || allocator() == "expandable"));  // pages may be mapped meanwhile
  CHECK(contains(texts[1], "while a graph is captured"));
}

TEST_CASE("cuda graphs: a kernel that is not loaded yet is refused to the thread that captures") {
  NEEDS_CUDA
  if (!backend(kCUDA).fused) SKIP_TEST("nothing makes fused kernels here");
  const Tensor x = ones({16}, {.device = kCUDA}), y = empty_like(x);
  tapir_tests::Steps s;  // that no other test has
  uint8_t v = s.load(0, kFloat32);
  for (int i = 0; i < 7; ++i) v = s.binary(BinaryOp::Add, v, s.unary(UnaryOp::Cos, v));
  s.store(v, 0);
  const auto run = [&] { tapir_tests::run_fused(s.params, {y}, {x}); };
  std::string text;
  CHECK(captures([&] { text = any_error(run); }));
  CHECK(contains(text, "while a graph is captured"));
  CHECK(any_error(run) == "");
  CHECK(captures([&] { text = any_error(run); }));
  CHECK(text == "");
}

TEST_CASE("cuda graphs: a library's handle is not made while a thread captures") {
  NEEDS_CUDA
  const char* one_alone = "cuda graphs: a library's handle is not made*";
  if (!std::getenv("TAPIR_TEST_ALONE")) {  // where nothing has made the handles before
    CHECK(run_alone("TAPIR_TEST_ALONE=1", one_alone) == 0);
    return;
  }
  const Tensor a = ones({8, 8}, {.device = kCUDA}), y = zeros({8, 8}, {.device = kCUDA});
  std::string text;
  const auto product = [&] { backend(kCUDA).matmul(context(kCUDA), {.out = y, .a = a, .b = a, .params = {}}); };
  CHECK(captures([&] { text = any_error(product); }));
  CHECK(contains(text, "while a graph is captured"));
  CHECK(any_error(product) == "");
  CHECK(y.max().item<float>() == 8);
  CHECK(captures([&] { text = any_error(product); }));
  CHECK(text == "");
}

TEST_CASE("cuda graphs: a thread that ends while it captures keeps nobody waiting") {
  NEEDS_CUDA
  cuda::synchronize();
  std::thread([] { (void)table().begin_capture(kCUDA); }).join();
  CHECK(any_error([] { cuda::synchronize(); }) == "");
  CHECK(captures([] {}));
}

TEST_CASE("cuda graphs: compiled steps beside a thread that goes on waiting for the device") {
  NEEDS_CUDA
  const Tensor w = ones({64}, {.device = kCUDA});
  auto step = compile(
      [&](const Tensor& x) {
        NoGrad guard;
        Tensor y = x;
        for (int i = 0; i < 8; ++i) y = index_select(y * w, 0, arange(64, {.device = kCUDA}));
        return dropout(y, 0.5, true);
      },
      {.verify = 0, .background = false});
  std::atomic<bool> stop{false};
  std::string thrown;
  std::thread other([&] {
    while (!stop && thrown.empty()) thrown = any_error([] { cuda::synchronize(); }), std::this_thread::yield();
  });
  const Tensor x = ones({64}, {.device = kCUDA});
  for (int i = 0; i < 60; ++i) {
    if (i % 4 == 0) manual_seed(uint64_t(i));  // another graph
    const std::string text = any_error([&] { (void)step(x); });
    CHECK(text == "");
  }
  stop = true;
  other.join();
  CHECK(thrown == "");
  INFO(step.explain());
  CHECK(contains(step.explain(), "one graph"));
}
