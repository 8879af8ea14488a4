#pragma once
// Note [The narrow waist]
// The table is all that a device must provide: memory, and a kernel for each entry of core/entries.h. Everything Tapir computes goes
// through it, so a new device is one folder, the same tests run on every device, and compile() is one more table.
#include "entries.h"
#include "modes.h"

namespace tapir::inline v0 {

/// The first bad value that a kernel met (an index out of range, a label): the kernel skips it and goes on.
struct ErrorWord {
  bool set = false;
  int64_t position = 0, value = 0, bound = 0;
};

struct BackendTable;

/// What a kernel is given beside its operands. It gets memory in no other way than scratch().
struct Context {
  Device device;
  bool deterministic = false, autotune = false;
  void* stream = nullptr;               // the queue that the kernel joins; the CPU has none
  const BackendTable* table = nullptr;  // the device's own
  ErrorWord error;
  int late_error = 0;  // not 0: where a kernel that runs later will write its ErrorWord, see check_values()
  /// Memory until the kernel returns, aligned to 64 bytes, not initialised.
  void* scratch(int64_t bytes);
  template <class T> T* scratch_of(int64_t count) { return static_cast<T*>(scratch(count * int64_t(sizeof(T)))); }
  void bad_value(int64_t position, int64_t value, int64_t bound);
  void free_scratch();
  ~Context() { free_scratch(); }

 private:
  static constexpr int kMaxScratch = 16;
  void* blocks_[kMaxScratch];
  int64_t bytes_[kMaxScratch];
  int count_ = 0;
};

struct DeviceTable;

namespace entry {
namespace detail {
template <class E> struct ResultOf { using Type = void; };
template <class E>
requires requires { typename E::Result; }
struct ResultOf<E> {
  using Type = typename E::Result;
};
}  // namespace detail
/// The type of an entry's kernels: norm(Context&, const entry::Norm&).
template <class E> using Kernel = typename detail::ResultOf<E>::Type(Context&, const E&);
}  // namespace entry

/// The functions of one device.
struct BackendTable {
  const char* name;

  // Memory. Where a device has queues (`stream`), a block belongs to the one it was allocated for, and copies and kernels are ordered
  // within one alone; the CPU ignores it.
  void* (*allocate)(int64_t bytes, Device device, void* stream);  // null when there is none left
  void (*release)(void* data, int64_t bytes, Device device);
  void (*copy_bytes)(void* to, Device to_device, const void* from, Device from_device, int64_t bytes, void* stream);
  void (*synchronize)(Device device, void* stream);  // waits for the queue; throws what its kernels met
  const DeviceTable* device;                         // (optional) queues, events, statistics: core/device_table.h

  // Kernels: Note [Entries].
#define TAPIR_X(name, E) entry::Kernel<entry::E>* name;
  TAPIR_ENTRIES(TAPIR_X)
#undef TAPIR_X
};

namespace entry {
namespace detail {
template <class E> inline constexpr auto kSlot = nullptr;
#define TAPIR_X(name, E) template <> inline constexpr auto kSlot<E> = &BackendTable::name;
TAPIR_ENTRIES(TAPIR_X)
#undef TAPIR_X
}  // namespace detail
/// A device's kernel for an entry; null where it has none.
template <class E> Kernel<E>* kernel_of(const BackendTable& table) { return table.*detail::kSlot<E>; }
}  // namespace entry

/// The table built in for that kind of device, or null; written by CMake (backends.cpp).
const BackendTable* built_in_backend(DeviceType type);
const BackendTable& load_backend(Device device);

/// The table that this thread uses for that device.
inline const BackendTable& backend(Device device) {
  const BackendTable* table = modes.tables[int(device.type)];
  if (!table) [[unlikely]]
    return load_backend(device);
  return *table;
}
inline const BackendTable& backend(const Tensor& x) { return backend(x.device()); }

/// The context for the next kernel on x's device in this thread; valid until the next call.
Context& context(Device device);
inline Context& context(const Tensor& x) { return context(x.device()); }
/// The queue of that device that this thread's kernels join.
inline void* current_stream(Device device) { return device.is_cpu() ? nullptr : modes.streams[device.index]; }
/// After a kernel that checks values: throws ValueError with the first bad one, at once or, on a device that runs later, at the next
/// synchronisation. text: "[embedding] index {value} at position {position} is out of range for {bound} rows"
inline void check_values(const Context& ctx, std::string_view text);
[[noreturn]] void fail_values(const ErrorWord& error, std::string_view text);
void name_late_error(const Context& ctx, std::string_view text);
inline void check_values(const Context& ctx, std::string_view text) {
  if (ctx.error.set) [[unlikely]]
    fail_values(ctx.error, text);
  if (ctx.late_error) [[unlikely]]
    name_late_error(ctx, text);
}

}  // namespace tapir::inline v0
