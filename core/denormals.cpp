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

uint64_t detail::flush_denormal_bits() { return get_flush_denormal() ? flush_bits() : 0; }

detail::FlushDenormals::FlushDenormals(bool on)
    : on_(on), mode_(modes.flush_denormals, modes.flush_denormals || on), before_(on ? denormal_bits() : 0) {
  if (on_) DenormalBits::set(flush_bits());
}
detail::FlushDenormals::~FlushDenormals() {
  if (on_) DenormalBits::set(before_);
}

/// Inside a FlushDenormals or a parallel loop that waits: its end would undo it.
void detail::take_up_flush_denormal() {
  if (modes.flush_denormals || in_parallel_region()) return;
  modes.followed_flush_denormal = flush_denormal.load(std::memory_order_relaxed);
  DenormalBits::set(flush_denormal_bits());
}

bool set_flush_denormal(bool on) {
  if (modes.recorder)
    modes.recorder->host_acts(
        "[set_flush_denormal] expected a call outside of compile(): a program computes by the mode that it is called "
        "in");
  if (!flush_bits()) return false;
  uint32_t old = detail::flush_denormal.load(std::memory_order_relaxed);
  while (!detail::flush_denormal.compare_exchange_weak(old, ((old >> 1) + 1) << 1 | uint32_t(on))) {}
  detail::take_up_flush_denormal();
  return true;
}
bool get_flush_denormal() { return detail::flush_denormal.load(std::memory_order_relaxed) & 1; }

}  // namespace tapir::inline v0
