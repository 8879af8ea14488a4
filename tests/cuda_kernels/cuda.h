// What the tests of the CUDA backend share: they run on a real device, or on the emulated one (TAPIR_CUDA_PLUGIN).
#pragma once
#include <tapir/tapir.h>

#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <string>
#include <string_view>

#include "../catch.h"
#include "../errors.h"

#define NEEDS_CUDA                                             \
  if (!tapir::cuda::is_available()) {                          \
    SKIP_TEST(("no CUDA: " + tapir::cuda::why_not()).c_str()); \
  }
#define NEEDS_CUDA_DEVICES(n)               \
  NEEDS_CUDA                                \
  if (tapir::cuda::device_count() < (n)) {  \
    SKIP_TEST("needs " #n " CUDA devices"); \
  }

inline std::string_view allocator() {
  const char* text = std::getenv("TAPIR_CUDA_ALLOCATOR");
  return text && *text ? text : "caching";
}
/// Is every block a cudaMalloc of its own? Then nothing is cached.
inline bool is_direct() { return allocator() == "direct"; }
inline bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }
inline bool is_emulated() {
  const char* plugin = std::getenv("TAPIR_CUDA_PLUGIN");
  return plugin && contains(plugin, "emulated");
}
/// The text of the E that f throws, or nothing.
template <class E, class F> std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "";
}
inline std::string own_path() {
  char path[PATH_MAX] = {};
  return readlink("/proc/self/exe", path, sizeof(path) - 1) < 0 ? "" : path;
}
/// Runs one test case of this program in a process of its own, under other settings.
inline int run_alone(const std::string& settings, const std::string& test) {
  return std::system((settings + " '" + own_path() + "' '" + test + "' > /dev/null").c_str());
}
