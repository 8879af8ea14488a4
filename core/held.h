#pragma once
// Used by core/host_state.cpp and compile/recorded.cpp.
#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace tapir::inline v0 {

/// One handle to each object, however many hold it. Objects of this class are never destroyed: programs may end after main.
template <class Object, class Handle> class Held {
 public:
  /// The handle stays where it is until the last release().
  const Handle& hold(const Object* object, Handle handle) {
    std::lock_guard lock(mutex_);
    Entry& e = entries_[object];
    if (!e.holders++) e.handle = std::move(handle), changes.fetch_add(1, std::memory_order_release);
    return e.handle;
  }
  void release(const Object* object) {
    Handle last;  // goes after the lock: that may end other programs
    std::lock_guard lock(mutex_);
    const auto at = entries_.find(object);
    if (--at->second.holders > 0) return;
    last = std::move(at->second.handle);
    entries_.erase(at);
    changes.fetch_add(1, std::memory_order_release);
  }
  bool contains(const Object* object) {
    std::lock_guard lock(mutex_);
    return entries_.contains(object);
  }

  template <class F> void each(F f) {
    std::lock_guard lock(mutex_);
    for (const auto& [object, entry] : entries_) f(entry.handle);
  }
  std::atomic<uint64_t> changes{0};  // of which objects are held

 private:
  struct Entry {
    Handle handle;
    int64_t holders = 0;
  };
  std::mutex mutex_;
  std::unordered_map<const Object*, Entry> entries_;
};

}  // namespace tapir::inline v0
