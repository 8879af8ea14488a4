#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor.h"

namespace tapir::inline v0 {

/// Names and tensors in the order they were added; what modules, optimizers and files exchange.
class StateDict {
 public:
  using Item = std::pair<std::string, Tensor>;
  StateDict() = default;
  StateDict(std::initializer_list<Item> items) : items_(items) {}
  /// Adds a tensor, or replaces the one of that name.
  void set(std::string_view name, Tensor value) {
    if (Tensor* held = find(name)) *held = std::move(value);
    else items_.emplace_back(std::string(name), std::move(value));
  }
  Tensor* find(std::string_view name) {
    for (auto& [n, t] : items_)
      if (n == name) return &t;
    return nullptr;
  }
  const Tensor* find(std::string_view name) const { return const_cast<StateDict*>(this)->find(name); }
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// The tensor of that name; ValueError when there is none.
  const Tensor& at(std::string_view name) const {
    const Tensor* t = find(name);
    check(t != nullptr, "[StateDict] expected a tensor named \"{}\", found none", name);
    return *t;
  }
  /// The items whose names begin with prefix, without it.
  StateDict strip(std::string_view prefix) const {
    StateDict out;
    for (auto& [n, t] : items_)
      if (n.starts_with(prefix)) out.items_.emplace_back(n.substr(prefix.size()), t);
    return out;
  }
  /// Adds a tensor whose name is known to be new.
  void append(std::string name, Tensor value) { items_.emplace_back(std::move(name), std::move(value)); }
  /// Adds every item of `other` under prefix + name.
  void merge(std::string_view prefix, const StateDict& other) {
    for (auto& [n, t] : other.items_) items_.emplace_back(std::string(prefix) + n, t);
  }
  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  std::vector<Item> items_;
};

}  // namespace tapir::inline v0
