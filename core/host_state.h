#pragma once
// Note [What a compiled program takes for constant]
// A program that compile() recorded holds kernel calls, not the host code that made them. What the host code asked is therefore part of
// what selects the program, and kept here, where the askers can reach it:
// - flags: a hash over the flags that are not as they were born: modules in evaluation mode, and requires_grad flips of tensors whose
//   storage is watched. It returns to its old value when the flags do, so that two alternating states select two programs.
// - changes: raised where an option changed for good, or where state was exchanged: every program is then recorded anew.
// - seeds: raised by manual_seed().
// A watched storage is one that a program reads or writes. All programs share one reference to it: when nobody else holds it any more,
// it was replaced.
#include <atomic>
#include <cstdint>

#include "storage.h"

namespace tapir::inline v0 {

struct HostState {
  std::atomic<uint64_t> flags{0}, changes{0}, seeds{0};
  /// The flag at that address now differs from what it was born with, or does so no longer.
  void flip(const void* flag) {
    const uint64_t h = (uint64_t(uintptr_t(flag)) + 0x9E3779B97F4A7C15u) * 0xBF58476D1CE4E5B9u;
    flags.fetch_xor(h ^ h >> 31, std::memory_order_relaxed);
  }
};
inline constinit HostState host_state;

/// A shared handle to a watched storage.
class Watched {
 public:
  Watched() = default;
  explicit Watched(Storage* storage);
  Watched(Watched&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  Watched& operator=(Watched&& o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Watched();
  Storage* get() const { return p_; }
  Storage* operator->() const { return p_; }
  /// Does nobody hold it but programs?
  bool abandoned() const { return p_->refs.load(std::memory_order_acquire) == 1; }

 private:
  Storage* p_ = nullptr;
};
/// Does a program hold that storage?
bool is_watched(const Storage* storage);

}  // namespace tapir::inline v0
