#pragma once
// The bits of a thread's floating-point control register that say what becomes of denormal numbers: Note [Denormal numbers].
#include <cstdint>

namespace tapir::inline v0::detail {

#if defined(__x86_64__)
inline constexpr uint64_t kFlushBits =
    0x8040;  // of MXCSR: results flushed to zero (FTZ), denormals as operands are zeros (DAZ)
inline uint64_t control_register() {
  uint32_t all;
  asm volatile("stmxcsr %0" : "=m"(all) : : "memory");
  return all;
}
inline void set_control_register(uint64_t all) {
  const uint32_t word = uint32_t(all);
  asm volatile("ldmxcsr %0" : : "m"(word) : "memory");
}
#elif defined(__aarch64__)
inline constexpr uint64_t kFlushBits = uint64_t(1) << 24;  // of FPCR: FZ does both
inline uint64_t control_register() {
  uint64_t all;
  asm volatile("mrs %0, fpcr" : "=r"(all) : : "memory");
  return all;
}
inline void set_control_register(uint64_t all) { asm volatile("msr fpcr, %0" : : "r"(all) : "memory"); }
#else
inline constexpr uint64_t kFlushBits = 0;
inline uint64_t control_register() { return 0; }
inline void set_control_register(uint64_t) {}
#endif

/// Those of this thread.
inline uint64_t denormal_bits() { return control_register() & kFlushBits; }

/// This thread's are others in this scope.
class [[nodiscard]] DenormalBits {
 public:
  explicit DenormalBits(uint64_t bits) : before_(denormal_bits()) { set(bits); }
  ~DenormalBits() { set(before_); }
  DenormalBits(const DenormalBits&) = delete;
  DenormalBits& operator=(const DenormalBits&) = delete;
  static void set(uint64_t bits) {
    const uint64_t all = control_register();
    if ((all & kFlushBits) != bits) set_control_register((all & ~kFlushBits) | bits);
  }

 private:
  uint64_t before_;
};

}  // namespace tapir::inline v0::detail
