// What the tests of the CUDA backend share: they run on a real device, or on the emulated one (TAPIR_CUDA_PLUGIN).
#pragma once
#include <tapir/tapir.h>

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
using tapir_tests::own_path, tapir_tests::run_alone;
