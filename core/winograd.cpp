#include "winograd.h"

#include <atomic>
#include <cstdlib>
#include <string_view>

namespace tapir::inline v0::backends::cpu {

static std::atomic<bool>& allowed() {
  static std::atomic<bool> on = [] {
    const char* const text = std::getenv("TAPIR_WINOGRAD");
    return !text || std::string_view(text) != "0";
  }();
  return on;
}
void set_allow_winograd(bool on) { allowed().store(on, std::memory_order_relaxed); }
bool allow_winograd() { return allowed().load(std::memory_order_relaxed); }

}  // namespace tapir::inline v0::backends::cpu
