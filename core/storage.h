#pragma once
#include <atomic>
#include <cstdint>

#include "device.h"
#include "handle.h"

namespace tapir::inline v0 {

/// A block of device memory with an owner and a version that every in-place write raises. Held by StoragePtr.
struct Storage {
  std::atomic<uint32_t> refs{1};
  std::atomic<uint32_t> known{1};    // Weak handles, and one for all owners
  std::atomic<uint32_t> version{0};  // raised by each write in place
  // Raised where a tensor in it gets another geometry or other hooks, or loses its place in a module.
  std::atomic<uint32_t> handles{0};
  std::atomic<uint32_t> leaves{0};  // a hash of the tensors in it that requires_grad_() has marked, by address
  void* data = nullptr;
  int64_t bytes = 0;
  Device device;
  bool read_only = false;               // memory of others that may not be written
  std::atomic<bool> pooled{false};      // a compiled program keeps it for its next result
  void (*release)(Storage&) = nullptr;  // gives `data` back; called once, before the Storage itself goes
  void* context = nullptr;              // what release needs: a deleter, or the Storage whose block this one lies in
};

inline void retain(Storage* s) { s->refs.fetch_add(1, std::memory_order_relaxed); }
/// Ends a storage that nobody owns any more.
void destroy(Storage* s) noexcept;
inline void release(Storage* s) {
  if (s->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy(s);
}

/// Shared ownership of a Storage.
class StoragePtr : public detail::Handle<Storage> {
 public:
  using Handle::Handle;
  /// One more owner of a storage that has some.
  static StoragePtr share(Storage* s) {
    retain(s);
    return StoragePtr(s);
  }
  bool unique() const { return *this && get()->refs.load(std::memory_order_acquire) == 1; }
};

namespace detail {
struct Forget {
  template <class T> void operator()(T* p) const { forget(p); }
};
/// Knows an object that others keep alive: T counts its owners in `refs`, and in `known` who else looks at it. What T holds goes with the
/// last owner, T itself with the last of those who know it.
template <class T> class Weak : public Owner<T, Forget> {
 public:
  Weak() = default;
  explicit Weak(T* p) : Owner<T, Forget>(p) {
    if (p) p->known.fetch_add(1, std::memory_order_relaxed);
  }
  bool alive() const { return *this && this->get()->refs.load(std::memory_order_acquire) != 0; }
  /// One more owner, whom the caller puts into a handle; false: it is gone.
  bool lock() const {
    T* const p = this->get();
    uint32_t refs = p ? p->refs.load(std::memory_order_relaxed) : 0;
    while (refs != 0)
      if (p->refs.compare_exchange_weak(refs, refs + 1, std::memory_order_acq_rel)) return true;
    return false;
  }
};
}  // namespace detail
/// Ends one weak handle, or that of all owners; the last one frees the object.
void forget(Storage* s) noexcept;

/// Memory of the device's allocator, not initialised. OutOfMemoryError when there is none.
StoragePtr allocate_storage(int64_t bytes, Device device);
/// Memory of someone else's: `release(storage)` is called once at the end.
StoragePtr adopt_storage(void* data, int64_t bytes, Device device, void (*release)(Storage&), void* context);
/// A part of another storage's block that has a version of its own (a slice of a flat gradient bucket).
StoragePtr slice_storage(const StoragePtr& whole, int64_t offset_bytes, int64_t bytes);
/// The storage whose block this one lies in: itself, unless it is a slice.
Storage* root_of(Storage* s);

}  // namespace tapir::inline v0
