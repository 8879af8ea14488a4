#include "denormals.h"

#include "denormal_bits.h"
#include "parallel.h"
#include "recorder.h"

namespace tapir::inline v0 {

/// What flushes; 0 where the processor cannot.
static uint64_t flush_bits() {
#if defined(__x86_64__)
  static const bool can = __builtin_cpu_supports("sse3");  // before it, to set DAZ was a fault
  return can ? detail::kFlushBits : 0;
#else
  return detail::kFlushBits;
#endif
}

FlushDenormals::FlushDenormals(bool on)
    : mode_(modes.flush_denormals, modes.flush_denormals || on), before_(detail::denormal_bits()) {
  if (on) detail::DenormalBits::set(flush_bits());
}
FlushDenormals::~FlushDenormals() { detail::DenormalBits::set(before_); }

/// Inside a FlushDenormals or a parallel loop that waits: its end would undo it.
void detail::take_up_flush_denormal() {
  if (modes.flush_denormals || in_parallel_region()) return;
  modes.followed_flush_denormal = flush_denormal.load(std::memory_order_relaxed);
  DenormalBits::set(modes.followed_flush_denormal ? flush_bits() : 0);
}

bool set_flush_denormal(bool on) {
  if (modes.recorder)
    modes.recorder->host_acts(
        "[set_flush_denormal] expected a call outside of compile(): a program computes by the mode that it is called "
        "in");
  if (!flush_bits()) return false;
  detail::flush_denormal.store(on, std::memory_order_relaxed);
  detail::take_up_flush_denormal();
  return true;
}
bool get_flush_denormal() { return detail::flush_denormal.load(std::memory_order_relaxed); }

}  // namespace tapir::inline v0
