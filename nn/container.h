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
    training.changed();
    return *held;
  }
  int64_t size() const {
    training.asked();
    return int64_t(items.size());
  }
  /// Callable: list[0](x). ValueError beyond the end.
  Module& operator[](int64_t i) const {
    check(i >= 0 && i < size(), "[ModuleList] index {} is out of range for {} modules", i, size());
    return *items[size_t(i)];
  }
  /// `for (nn::Module& m : list) x = m(x);`
  struct Iterator {
    const AnyModule* at;
    Module& operator*() const { return **at; }
    Iterator& operator++() { return ++at, *this; }
    bool operator==(const Iterator&) const = default;
  };
  Iterator begin() const {
    training.asked();
    return {items.data()};
  }
  Iterator end() const { return {items.data() + items.size()}; }
  /// The module at i, known to be an M; ValueError when it is not.
  template <ModuleField M> M& as(int64_t i) const {
    M* m = dynamic_cast<M*>(&(*this)[i]);
    check(m != nullptr, "[ModuleList] the module at {} is not of the type asked for", i);
    return *m;
  }
  bool tapir_is_list() const override { return true; }
  TAPIR_DECLARE_FIELDS(items)
};

/// Modules by name, in the order of insertion.
///     nn::ModuleDict heads; heads.insert("cls", nn::Linear(8, 2)); heads["cls"](x);
struct ModuleDict : Module {
  std::vector<std::pair<std::string, AnyModule>> items;
  ModuleDict() = default;
  /// A module that stands under that name is replaced. ValueError for a name that is empty or has a dot.
  template <ModuleField M> M& insert(const std::string& name, M module) {
    auto* held = new M(std::move(module));
    put(name, AnyModule(held));
    return *held;
  }
  void erase(const std::string& name);
  bool contains(const std::string& name) const { return find(name) != nullptr; }
  int64_t size() const { return int64_t(items.size()); }
  auto begin() {
    training.asked();
    return items.begin();
  }
  auto end() { return items.end(); }
  /// ValueError where there is none of that name.
  AnyModule& operator[](const std::string& name);
  /// The module of that name, known to be an M; ValueError when it is not.
  template <ModuleField M> M& as(const std::string& name) {
    M* m = dynamic_cast<M*>(&*(*this)[name]);
    check(m != nullptr, "[ModuleDict] the module {} is not of the type asked for", name);
    return *m;
  }
  bool tapir_is_list() const override { return true; }
  TAPIR_DECLARE_FIELDS(items)

 private:
  void put(const std::string& name, AnyModule module);
  const AnyModule* find(const std::string& name) const;
};

/// Parameters in order; as a field of one's own a std::vector<Parameter> serves as well.
struct ParameterList : Module {
  std::vector<Parameter> items;
  ParameterList() = default;
  explicit ParameterList(const std::vector<Tensor>& values) {
    for (const Tensor& v : values) push_back(v);
  }
  Parameter& push_back(const Tensor& value) { return items.emplace_back(value); }
  int64_t size() const { return int64_t(items.size()); }
  auto begin() { return items.begin(); }
  auto end() { return items.end(); }
  /// ValueError beyond the end.
  Parameter& operator[](int64_t i);
  bool tapir_is_list() const override { return true; }
  std::string extra_repr() override;
  TAPIR_DECLARE_FIELDS(items)
};
/// Parameters by name, in the order of insertion.
struct ParameterDict : Module {
  std::vector<std::pair<std::string, Parameter>> items;
  ParameterDict() = default;
  /// ValueError for a name that is empty or has a dot.
  Parameter& insert(const std::string& name, const Tensor& value);
  bool contains(const std::string& name) const;
  int64_t size() const { return int64_t(items.size()); }
  auto begin() { return items.begin(); }
  auto end() { return items.end(); }
  /// ValueError where there is none of that name.
  Parameter& operator[](const std::string& name);
  bool tapir_is_list() const override { return true; }
  std::string extra_repr() override;
  TAPIR_DECLARE_FIELDS(items)
};

/// Runs its modules one after the other; an empty one returns its input. An error names the stage.
///     nn::Sequential net(nn::Linear(784, 128), nn::ReLU(), nn::Linear(128, 10));
struct Sequential : ModuleList {
  using ModuleList::ModuleList;
  Tensor forward(const Tensor& x) {
    Tensor y = x;
    for (const AnyModule& m : items) y = m(y);
    return y;
  }
  TAPIR_DECLARE_FIELDS_WITH_BASE(ModuleList)
};

}  // namespace tapir::inline v0::nn
