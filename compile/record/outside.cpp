#include "outside.h"

#include <algorithm>

namespace tapir::inline v0::ir {

Fit Outside::fit(const char*& why, Held& held) const {
  const auto is = [&](const char* what, Fit fit) { return why = what, fit; };
  for (const Seen& s : storages) {
    if ((s.storage->pooled && s.storage->refs.load(std::memory_order_acquire) == 1) || !s.storage.lock())
      return is("the memory of a tensor from outside was replaced", Fit::Changed);
    held.storages.emplace_back(s.storage.get());
    if (s.storage->handles.load(std::memory_order_relaxed) != s.handles)
      return is("a tensor from outside was replaced, or has another geometry or other hooks", Fit::Changed);
  }
  for (const GradSlot& g : grads)
    if (!held.leaves.emplace_back(g.leaf.lock()).defined()) return is("a parameter was replaced", Fit::Changed);
  for (const WeakTensor& leaf : asked)
    if (!held.leaves.emplace_back(leaf.lock()).defined()) return is("a parameter was replaced", Fit::Changed);
  for (const Object& o : objects)
    if (o.stamp->version.load(std::memory_order_relaxed) != o.version || o.stamp->place.load() != o.place)
      return is("a module or an optimizer was replaced, or its hooks, submodules, options or state", Fit::Changed);
  for (const Object& o : objects)
    if (o.stamp->flag.load(std::memory_order_relaxed) != o.flag)
      return is("a module is in the other mode (train, eval)", Fit::OtherStart);
  for (const Seen& s : storages)
    if (s.storage->leaves.load(std::memory_order_relaxed) != s.leaves)
      return is("other tensors from outside require a gradient", Fit::OtherStart);
  for (const GradSlot& g : grads)
    if (g.relevant && g.leaf->grad().defined() != g.had)
      return is(g.had ? "a gradient is no longer there" : "a gradient is there, where none was", Fit::OtherStart);
  for (const WeakTensor& leaf : asked)
    if (!leaf->grad().defined()) return is("a gradient is no longer there", Fit::OtherStart);
  return Fit::Same;
}

bool Outside::same_start(const Outside& other) const {
  const auto agree = [](const auto& ours, const auto& theirs, const auto& differ) {
    return std::all_of(ours.begin(), ours.end(), [&](const auto& a) {
      return std::none_of(theirs.begin(), theirs.end(), [&](const auto& b) { return differ(a, b); });
    });
  };
  const auto missing = [](const GradSlot& a, const WeakTensor& leaf) {
    return a.leaf->is_same(*leaf) && a.relevant && !a.had;
  };
  return agree(grads, other.asked, missing) && agree(other.grads, asked, missing) &&
         agree(grads, other.grads,
               [](const GradSlot& a, const GradSlot& b) {
                 return a.leaf->is_same(*b.leaf) && (a.relevant || b.relevant) && a.had != b.had;
               }) &&
         agree(objects, other.objects,
               [](const Object& a, const Object& b) { return &*a.stamp == &*b.stamp && a.flag != b.flag; }) &&
         agree(storages, other.storages,
               [](const Seen& a, const Seen& b) { return a.storage.get() == b.storage.get() && a.leaves != b.leaves; });
}

}  // namespace tapir::inline v0::ir
