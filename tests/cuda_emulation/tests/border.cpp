// Exceptions of every kind that the plugin throws are caught here by type, and those of this program pass through the plugin, whichever
// C++ libraries the two are linked with.
#include <tapir/core/device_table.h>
#include <tapir/core/modes.h>
#include <tapir/tapir.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <thread>

using namespace tapir;

namespace {

int passed = 0, failed = 0;
void expect(bool ok, const char* what, const std::string& got) {
  ++(ok ? passed : failed);
  if (!ok) std::printf("FAILED %s: %s\n", what, got.c_str());
}
std::string kind_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const OutOfMemoryError& e) {
    return "out of memory: " + std::string(e.what());
  } catch (const RuntimeError& e) {
    return "runtime: " + std::string(e.what());
  } catch (const ValueError& e) {
    return "value: " + std::string(e.what());
  } catch (const InternalError& e) {
    return "internal: " + std::string(e.what());
  } catch (const std::runtime_error& e) {
    return "of the standard library: " + std::string(e.what());
  } catch (...) {
    return "of no known type";
  }
  return "nothing";
}
void expect_kind(const char* kind, const char* words, const std::function<void()>& f) {
  const std::string got = kind_of(f);
  expect(got.starts_with(kind) && got.find(words) != std::string::npos, kind, got);
}
const DeviceTable& table() { return *backend(kCUDA).device; }

void late_value_error() {
  const Tensor x = arange(10, {.dtype = kFloat32}).to(kCUDA);
  (void)index_select(x, 0, tensor({42}).to(kCUDA));
  cuda::synchronize();
}
void no_memory() { (void)empty({int64_t(1) << 50}, {.device = kCUDA}); }
void refused_in_capture() {
  const char* why = "";
  (void)table().begin_capture(kCUDA);
  try {
    cuda::synchronize();
  } catch (...) {  // whatever it is, it goes on
    (void)table().end_capture(kCUDA, false, why);
    throw;
  }
}
void bug() {
  const char* why = "";
  (void)table().end_capture(kCUDA, false, why);
}
/// What a kernel asks this program for, it does not get: the error passes through the plugin.
void through_the_plugin() {
  struct Empty final : ScratchPool {
    void* take(int64_t) override { throw OutOfMemoryError("the pool is empty"); }
    void give(void*) override {}
  } pool;
  const Tensor x = randn({64, 64}, {.device = kCUDA});
  table().set_scratch_pool(&pool);
  try {
    (void)nonzero(x);
  } catch (...) {
    table().set_scratch_pool(nullptr);
    throw;
  }
  table().set_scratch_pool(nullptr);
}

}  // namespace

int main() {
  if (!cuda::is_available()) return std::printf("no plugin: %s\n", cuda::why_not().c_str()), 1;
  for (int round = 0; round < 3; ++round) {
    expect_kind("value", "42", late_value_error);
    expect_kind("out of memory", "[allocate]", no_memory);
    expect_kind("runtime", "while a graph is captured", refused_in_capture);
    expect_kind("internal", "got none", bug);
    expect_kind("out of memory", "the pool is empty", through_the_plugin);
    std::exception_ptr kept;  // to another thread, past its scope
    std::thread([&] {
      try {
        late_value_error();
      } catch (...) {
        kept = std::current_exception();
      }
    }).join();
    expect_kind("value", "42", [&] { std::rethrow_exception(kept); });
    expect(arange(10, {.dtype = kFloat32}).to(kCUDA).sum().item<float>() == 45, "the device goes on", "another sum");
  }
  std::printf("uncaught exceptions by this program's library: %d\n", std::uncaught_exceptions());
  std::printf("%d passed, %d failed, 0 skipped\n", passed, failed);
  return failed > 0;
}
