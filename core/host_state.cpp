#include "host_state.h"

#include <mutex>
#include <unordered_map>

namespace tapir::inline v0 {
namespace {

struct Entry {
  StoragePtr storage;
  int64_t holders = 0;
};
struct Registry {
  std::mutex mutex;
  std::unordered_map<const Storage*, Entry> entries;
};
/// Never destroyed: programs may end after main.
Registry& registry() {
  static Registry* const r = new Registry;
  return *r;
}
constinit std::atomic<int64_t> watched{0};

}  // namespace

Watched::Watched(Storage* storage) : p_(storage) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  Entry& e = r.entries[storage];
  if (!e.storage) e.storage = StoragePtr::share(storage);
  ++e.holders;
  watched.store(int64_t(r.entries.size()), std::memory_order_relaxed);
}

Watched::~Watched() {
  if (!p_) return;
  StoragePtr last;  // goes after the lock: its release may end other programs
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  const auto at = r.entries.find(p_);
  if (--at->second.holders > 0) return;
  last = std::move(at->second.storage);
  r.entries.erase(at);
  watched.store(int64_t(r.entries.size()), std::memory_order_relaxed);
}

bool is_watched(const Storage* storage) {
  if (watched.load(std::memory_order_relaxed) == 0) return false;
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  return r.entries.contains(storage);
}

}  // namespace tapir::inline v0
