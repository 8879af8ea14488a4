#pragma once
// Note [Profiler]
// While a recording runs (profiler::Profile, train/profiler.h), every thread that does something of ours writes down what it did, in a
// log of its own: scopes (modules, backward nodes, optimizer steps, loader, the user's own), kernel calls, memory, and operations.
// - Off, each of these places costs one branch on is_on(). Kernel calls and memory cost nothing: they are seen by a table that stands
//   before the thread's own while a recording runs, as in Note [Tracing].
// - An operation has no scope of its own: record(), its last line, says its name, and it is taken to begin with the first kernel call
//   since the last operation ended, or a scope began or ended, in this thread. What it did before counts as its surroundings' time.
// - On a device with queues each kernel stands between two events, which are read when the recording ends: nobody waits before.
#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>

#include "dims.h"

namespace tapir::inline v0::profiler {

enum class Kind : uint8_t { Op, Kernel, Module, Backward, Optimizer, Loader, User };

namespace detail {
inline constinit std::atomic<uint64_t> session{0};  // of the recording that runs; 0: none
/// Returns the session to end() it in; 0 where none runs. The name must outlive the recording, or is copied.
uint64_t begin(Kind kind, const char* name) noexcept;
uint64_t begin(std::string_view name) noexcept;
void end(uint64_t session) noexcept;
/// An operation has just been done. A null shape is that of an absent tensor.
void operation(const char* name, std::span<const Shape* const> inputs) noexcept;
}  // namespace detail

/// Does a recording run?
inline bool is_on() { return detail::session.load(std::memory_order_relaxed) != 0; }

/// A range of your own in a profile: `profiler::Range range("augment");` lasts to the end of its scope.
class [[nodiscard]] Range {
 public:
  explicit Range(std::string_view name) {
    if (is_on()) [[unlikely]]
      session_ = detail::begin(name);
  }
  /// One of ours; the name stays where it is.
  Range(Kind kind, const char* name) {
    if (is_on()) [[unlikely]]
      session_ = detail::begin(kind, name);
  }
  ~Range() {
    if (session_) [[unlikely]]
      detail::end(session_);
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  uint64_t session_ = 0;
};

/// Says the name of an operation without a record().
inline void note_operation(const char* name) {
  if (is_on()) [[unlikely]]
    detail::operation(name, {});
}

}  // namespace tapir::inline v0::profiler
