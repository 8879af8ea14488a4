#pragma once
#include <cstdint>

#include "device.h"

namespace tapir::inline v0 {

namespace detail {
struct Recorder;
}
struct AutocastRegion;
struct BackendTable;
struct SavedTensorHooks;

/// A module's forward that is running, innermost first.
struct ModuleCall {
  const char* type;  // typeid(...).name()
  const ModuleCall* outer;
};

/// Everything that is switched per thread, in one place. Guards set and restore it; a new thread starts with the defaults.
struct Modes {
  bool grad = true;
  bool inference = false;
  bool anomaly = false;
  bool deterministic = false;
  bool autotune = false;                 // kernels try their variants and keep the fastest one's name (core/choices.h)
  bool cloning = false;                  // a module's fields move and come back (nn::detail::clone_field)
  bool flush_denormals = false;          // inside a detail::FlushDenormals (core/denormals.h)
  uint32_t followed_flush_denormal = 0;  // the set_flush_denormal() that this thread knows of
  int threads = 0;                       // limit for parallel loops of this thread; 0: the process-wide number
  const BackendTable* tables[kNumDeviceTypes] = {};
  void* streams[kMaxDevices] = {};  // the current one of each CUDA device (cuda::StreamGuard); null: the default stream
  SavedTensorHooks* saved_hooks = nullptr;  // what becomes of tensors that operations save (autograd/saved_hooks.h)
  const ModuleCall* module = nullptr;
  AutocastRegion* autocast = nullptr;    // ops/autocast.h; null: off on every device
  detail::Recorder* recorder = nullptr;  // core/recorder.h; set while a program is recorded in this thread
};
inline constinit thread_local Modes modes;

/// From now on this thread's operations give the same bits in every run and, on the CPU, for any number of threads. That costs some percent:
/// docs/random.md, "Any number of threads". Off at first.
inline void use_deterministic_algorithms(bool on) { modes.deterministic = on; }
inline bool are_deterministic_algorithms_enabled() { return modes.deterministic; }

/// Sets one mode for a scope: ScopedMode guard(modes.grad, false).
template <class T> class ScopedMode {
 public:
  ScopedMode(T& mode, T value) : mode_(mode), before_(mode) { mode_ = value; }
  ~ScopedMode() { mode_ = before_; }
  ScopedMode(const ScopedMode&) = delete;
  ScopedMode& operator=(const ScopedMode&) = delete;

 private:
  T& mode_;
  T before_;
};

/// Nothing in this scope is recorded on the tape.
struct [[nodiscard]] NoGrad : ScopedMode<bool> {
  NoGrad() : ScopedMode(modes.grad, false) {}
};
/// Recording is on in this scope, also inside a NoGrad.
struct [[nodiscard]] EnableGrad : ScopedMode<bool> {
  EnableGrad() : ScopedMode(modes.grad, true) {}
};
/// Nothing is recorded, and the tensors made here can never take part in a recorded graph.
struct [[nodiscard]] InferenceMode {
  ScopedMode<bool> inference{modes.inference, true};
  ScopedMode<bool> grad{modes.grad, false};
};
/// Recording on or off by a value.
struct [[nodiscard]] GradMode : ScopedMode<bool> {
  explicit GradMode(bool on) : ScopedMode(modes.grad, on) {}
};
inline bool grad_enabled() { return modes.grad; }

}  // namespace tapir::inline v0
