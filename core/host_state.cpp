#include "host_state.h"

#include "held.h"

namespace tapir::inline v0 {

static Held<Storage, StoragePtr>& held() {
  static auto* const h = new Held<Storage, StoragePtr>;
  return *h;
}
static constinit std::atomic<int64_t> watching{0};  // how many Watched there are

Watched::Watched(Storage* storage) : p_(storage) {
  held().hold(storage, StoragePtr::share(storage));
  watching.fetch_add(1, std::memory_order_relaxed);
}

Watched::~Watched() {
  if (!p_) return;
  watching.fetch_sub(1, std::memory_order_relaxed);
  held().release(p_);
}

bool is_watched(const Storage* storage) {
  return watching.load(std::memory_order_relaxed) != 0 && held().contains(storage);
}

}  // namespace tapir::inline v0
