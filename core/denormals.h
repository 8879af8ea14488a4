#pragma once
// Note [Denormal numbers]
// Float32 numbers below 2^-126 (float64: 2^-1022) are denormal: they have fewer digits the smaller they are, and many processors compute
// with them 2 to 100 times more slowly. Training meets them where nothing else happens any more: squares of gradients of 1e-20, moments
// that have decayed for 900 steps, probabilities of e^-90.
// - Operations on the CPU compute with them as IEEE 754 says, unless set_flush_denormal(true) was called.
// - In a step of an optimizer float32 numbers that are denormal count as 0: gradients, states and parameters, what is read and what is
//   written, on every device. So they do, on the CPU, in gradient clipping and unscaling, averages of weights, running statistics of
//   batch norm, softmax, cross entropy, attention and recurrent layers. There a FlushDenormals holds, and numbers in between count as 0
//   too. What is computed in float64 stays as it is.
// - The mode is one of a thread, a few bits of its control register. Loops compute as the thread that starts them (parallel_for), so that
//   results do not depend on the number of threads. Loops of libraries (oneDNN) have workers of their own, which know nothing of a
//   FlushDenormals: there set_flush_denormal() decides alone, for the calling thread too (share_threads, dnn::Session).
// - A thread learns of set_flush_denormal() by the number of its calls, before its next operation: context() compares it.
// - compile() writes down which calls were made inside of a FlushDenormals.
#include <atomic>
#include <cstdint>

#include "dtype.h"
#include "modes.h"

namespace tapir::inline v0 {

/// Whether all threads take denormal numbers for 0 (flush to zero, denormals are zeros) in what they compute on the CPU, float64 ones too:
/// the calling thread from now on (inside a parallel loop: from its end on), every other one from its next operation on. CUDA devices: no
/// effect. False where the processor cannot: nothing changed then. ValueError while compile() records.
bool set_flush_denormal(bool on);
/// What was set last; at first false.
bool get_flush_denormal();

namespace detail {

/// In this scope what this thread computes on the CPU takes denormal numbers for 0, where the processor can. None of the user's code runs
/// inside.
class [[nodiscard]] FlushDenormals {
 public:
  explicit FlushDenormals(DType computed) : FlushDenormals(computed != kFloat64) {}
  explicit FlushDenormals(bool on);  // off: nothing happens, at the end neither
  ~FlushDenormals();
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  bool on_;
  ScopedMode<bool> mode_;
  uint64_t before_;
};

inline constinit std::atomic<uint32_t> flush_denormal{
    0};  // twice the calls of set_flush_denormal(), and 1 where it is on
void take_up_flush_denormal();
/// Before this thread computes: what was set meanwhile is its mode too.
inline void follow_flush_denormal() {
  if (modes.followed_flush_denormal != flush_denormal.load(std::memory_order_relaxed)) [[unlikely]]
    take_up_flush_denormal();
}
/// The bits of a thread's control register by set_flush_denormal() alone.
uint64_t flush_denormal_bits();

}  // namespace detail
}  // namespace tapir::inline v0
