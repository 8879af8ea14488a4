#pragma once
// Note [What a compiled program takes for constant]
// A program that compile() recorded holds kernel calls, not the host code that made them. It knows what that code depended on by object
// and version, and looks at each in every call:
// - memory from outside, by a weak handle to its Storage: it is alive, and its `handles` and `leaves` are the same;
// - a module or an optimizer that was called, by its Stamp: the same place, version and flag;
// - leaves whose gradients change, by weak handles;
// - settings of the thread and the process, which are part of the call's signature.
// Nothing is registered anywhere: an object that no program asked has no Stamp, and no object knows its programs.
#include <atomic>
#include <cstdint>

#include "handle.h"
#include "modes.h"

namespace tapir::inline v0::detail {

/// The identity of an object that programs depend on. It outlives the object, and goes with it when that moves.
struct Stamp {
  std::atomic<uint32_t> refs{1};
  std::atomic<uint32_t> version{0};         // raised where the object answers otherwise for good, or is gone
  std::atomic<bool> flag{false};            // an answer that may change back and forth
  std::atomic<const void*> place{nullptr};  // of the object
};

inline void retain(Stamp* s) { s->refs.fetch_add(1, std::memory_order_relaxed); }
inline void release(Stamp* s) {
  if (s->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) delete s;
}

/// The part of an object that programs know it by: a module's training flag, and the version of what else it answers.
class Versioned {
 public:
  Versioned() = default;
  explicit Versioned(bool flag) : flag_(flag) {}
  Versioned(Versioned&& o) noexcept : stamp_(o.stamp_.exchange(nullptr)), flag_(o.flag_) { settle(); }
  Versioned& operator=(Versioned&& o) noexcept {
    if (this == &o) return *this;
    leave();
    flag_ = o.flag_, stamp_ = o.stamp_.exchange(nullptr);
    settle();
    return *this;
  }
  ~Versioned() { leave(); }

  /// Programs that asked are recorded anew.
  void changed() const {
    if (Stamp* s = stamp_.load(std::memory_order_acquire)) s->version.fetch_add(1, std::memory_order_relaxed);
  }
  /// To be called where host code depends on the object.
  void asked() const {
    if (modes.recorder) [[unlikely]]
      observe();
  }
  bool flag() const {
    asked();
    return flag_;
  }
  void set_flag(bool on) {
    asked();
    flag_ = on;
    if (Stamp* s = stamp_.load(std::memory_order_acquire)) s->flag.store(on, std::memory_order_relaxed);
  }

 private:
  void observe() const;
  void leave() {
    changed();
    if (Stamp* s = stamp_.exchange(nullptr)) release(s);
  }
  void settle() {
    if (Stamp* s = stamp_.load(std::memory_order_relaxed)) s->place = this, s->flag = flag_;
  }
  mutable std::atomic<Stamp*> stamp_{nullptr};
  bool flag_ = false;  // last: a module's small fields may stand behind it
};

}  // namespace tapir::inline v0::detail
