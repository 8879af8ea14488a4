#pragma once
#include "module.h"

namespace tapir::inline v0::nn {

/// Modules of any type, in order; where all are of one type, a std::vector of them serves as a field.
struct ModuleList : Module {
  std::vector<AnyModule> items;
  ModuleList() = default;
  template <ModuleField... M> explicit ModuleList(M... modules) { (push_back(std::move(modules)), ...); }
  template <ModuleField M> M& push_back(M module) {
    auto* held = new M(std::move(module));
    items.emplace_back(held);
    return *held;
  }
  int64_t size() const { return int64_t(items.size()); }
  /// ValueError beyond the end.
  Module& operator[](int64_t i) const {
    check(i >= 0 && i < size(), "[ModuleList] index {} is out of range for {} modules", i, size());
    return *items[size_t(i)];
  }
  /// The module at i, known to be an M; ValueError when it is not.
  template <ModuleField M> M& as(int64_t i) const {
    M* m = dynamic_cast<M*>(&(*this)[i]);
    check(m != nullptr, "[ModuleList] the module at {} is not of the type asked for", i);
    return *m;
  }
  bool tapir_is_list() const override { return true; }
  TAPIR_FIELDS(items)
};

/// Runs its modules one after the other; an empty one returns its input.
///     nn::Sequential net(nn::Linear(784, 128), nn::ReLU(), nn::Linear(128, 10));
struct Sequential : ModuleList {
  using ModuleList::ModuleList;
  Tensor forward(const Tensor& x) {
    Tensor y = x;
    for (const AnyModule& m : items) y = m(y);
    return y;
  }
  TAPIR_FIELDS_WITH_BASE(ModuleList)
};

}  // namespace tapir::inline v0::nn
