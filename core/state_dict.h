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
    if (const Tensor* t = find(name)) return *t;
    fail_missing(name);
  }
  /// The same: state["fc.weight"]. ValueError, with names that are near, when there is none; set() adds.
  const Tensor& operator[](std::string_view name) const& { return at(name); }
  Tensor& operator[](std::string_view name) & { return const_cast<Tensor&>(at(name)); }
  Tensor operator[](std::string_view name) && { return at(name); }
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
    const size_t count = other.items_.size();  // which may be this one
    items_.reserve(items_.size() + count);
    for (size_t i = 0; i < count; ++i)
      items_.emplace_back(std::string(prefix) + other.items_[i].first, other.items_[i].second);
  }
  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  /// `for (auto& [name, tensor] : state)`
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }

 private:
  [[noreturn]] void fail_missing(std::string_view name) const;
  std::vector<Item> items_;
};

}  // namespace tapir::inline v0
