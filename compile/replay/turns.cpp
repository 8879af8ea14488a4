#include "turns.h"

#include <algorithm>
#include <numeric>

#include "../../core/storage.h"

namespace tapir::inline v0::ir {

constexpr size_t kMostSets = 10;  // generate() holds eight tokens before it reads them
constexpr size_t kMostTurns = 2 * kMostSets;
constexpr int64_t kMostBytes = 64 << 10;  // of a set

static bool has(const std::vector<StoragePtr>& set, const Storage* s) {
  return std::any_of(set.begin(), set.end(), [&](const StoragePtr& own) { return own.get() == s; });
}
bool Turns::in_set(const Tensor& x) const {
  return std::any_of(sets_.begin(), sets_.end(), [&](const auto& set) { return has(set, x.impl().storage.get()); });
}

size_t Turns::free_set(Device device, std::span<const int64_t> bytes) {
  const auto is_free = [](const std::vector<StoragePtr>& set) {
    return std::all_of(set.begin(), set.end(),
                       [](const StoragePtr& s) { return s->refs.load(std::memory_order_acquire) == 1; });
  };
  const auto at = size_t(std::find_if(sets_.begin(), sets_.end(), is_free) - sets_.begin());
  if (at < sets_.size() || at == kMostSets) return at;
  std::vector<StoragePtr>& made = sets_.emplace_back();
  for (const int64_t n : bytes) made.push_back(allocate_storage(n, device)), made.back()->pooled = true;
  return at;
}

void Turns::choose(Device device, std::span<const Tensor* const> arguments, std::span<const int64_t> results) {
  now_ = 0;
  for (const Tensor* x : arguments)
    come_back_ |= std::find(handed_out_.begin(), handed_out_.end(), x->impl().storage.get()) != handed_out_.end();
  handed_out_.clear();
  if (!come_back_ || std::accumulate(results.begin(), results.end(), int64_t(0)) > kMostBytes) return;
  Turn turn{{}, free_set(device, results)};
  if (turn.set == kMostSets) return;
  for (const Tensor* x : arguments) turn.arguments.push_back(in_set(*x) ? x->data_ptr() : nullptr);
  const auto known = size_t(std::find(turns_.begin(), turns_.end(), turn) - turns_.begin());
  if (known == kMostTurns) return;
  if (known == turns_.size()) turns_.push_back(std::move(turn));
  now_ = known + 1;
}

void Turns::clear() {
  for (auto& set : sets_)
    for (StoragePtr& s : set) s->pooled = false;
  sets_.clear(), turns_.clear(), now_ = 0;
}

}  // namespace tapir::inline v0::ir
