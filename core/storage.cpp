#include "storage.h"

#include "allocator.h"
#include "backend.h"

namespace tapir::inline v0 {

void destroy(Storage* s) noexcept {
  if (s->release) s->release(*s);
  forget(s);
}
void forget(Storage* s) noexcept {
  if (s->known.load(std::memory_order_acquire) != 1 && s->known.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  s->~Storage();
  pool_release(s, sizeof(Storage));
}

StoragePtr adopt_storage(void* data, int64_t bytes, Device device, void (*release)(Storage&), void* context) {
  auto* s = new (pool_allocate(sizeof(Storage))) Storage;
  s->data = data, s->bytes = bytes, s->device = device, s->release = release, s->context = context;
  return StoragePtr(s);
}

StoragePtr allocate_storage(int64_t bytes, Device device) {
  if (bytes == 0) return adopt_storage(nullptr, 0, device, nullptr, nullptr);
  void* data = backend(device).allocate(bytes, device, current_stream(device));
  if (!data) [[unlikely]]
    fail_out_of_memory(bytes, device);
  return adopt_storage(
      data, bytes, device, [](Storage& s) { backend(s.device).release(s.data, s.bytes, s.device); }, nullptr);
}

static void release_slice(Storage& s) { delete static_cast<StoragePtr*>(s.context); }

Storage* root_of(Storage* s) {
  while (s->release == release_slice) s = static_cast<StoragePtr*>(s->context)->get();
  return s;
}

StoragePtr slice_storage(const StoragePtr& whole, int64_t offset_bytes, int64_t bytes) {
  check(offset_bytes >= 0 && bytes >= 0 && offset_bytes + bytes <= whole->bytes,
        "[slice_storage] expected a part of {} bytes, got {} bytes at {}", whole->bytes, bytes, offset_bytes);
  StoragePtr part = adopt_storage(static_cast<char*>(whole->data) + offset_bytes, bytes, whole->device, release_slice,
                                  new StoragePtr(whole));
  part->read_only = whole->read_only;
  return part;
}

}  // namespace tapir::inline v0
