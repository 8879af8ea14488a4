#include "container.h"

#include <algorithm>

namespace tapir::inline v0::nn {

/// The entry of that name, or the end.
template <class Items> static auto entry(Items& items, const std::string& name) {
  return std::find_if(items.begin(), items.end(), [&](auto& e) { return e.first == name; });
}
static void check_name(const char* container, const std::string& name) {
  check(!name.empty(), "[{}] module name can't be empty string \"\"", container);
  check(name.find('.') == name.npos, "[{}] module name can't contain \".\", got: {}", container, name);
}

void ModuleDict::put(const std::string& name, AnyModule module) {
  check_name("ModuleDict", name);
  training.changed();
  if (auto it = entry(items, name); it != items.end()) it->second = std::move(module);
  else items.emplace_back(name, std::move(module));
}
const AnyModule* ModuleDict::find(const std::string& name) const {
  training.asked();
  auto it = entry(items, name);
  return it == items.end() ? nullptr : &it->second;
}
void ModuleDict::erase(const std::string& name) {
  check(contains(name), "[ModuleDict] no module {}", name);
  items.erase(entry(items, name));
  training.changed();
}
AnyModule& ModuleDict::operator[](const std::string& name) {
  check(contains(name), "[ModuleDict] no module {}", name);
  return entry(items, name)->second;
}

/// "(w): Parameter containing: [float32 of size 2x3]", a line for each.
static std::string lines(const std::vector<std::pair<std::string, Tensor>>& parameters) {
  std::string out;
  for (auto& [name, p] : parameters) {
    std::string size;
    for (int64_t n : p.shape()) size += (size.empty() ? "" : "x") + std::to_string(n);
    out += tapir::format("\n  ({}): Parameter containing: [{} of size {}]", name, p.dtype(), size);
  }
  return out.empty() ? out : out + "\n";
}
Parameter& ParameterList::operator[](int64_t i) {
  check(i >= 0 && i < size(), "[ParameterList] index {} is out of range for {} parameters", i, size());
  return items[size_t(i)];
}
std::string ParameterList::extra_repr() { return lines(named_parameters()); }

Parameter& ParameterDict::insert(const std::string& name, const Tensor& value) {
  check_name("ParameterDict", name);
  if (auto it = entry(items, name); it != items.end()) return it->second = Parameter(value);
  return items.emplace_back(name, Parameter(value)).second;
}
bool ParameterDict::contains(const std::string& name) const { return entry(items, name) != items.end(); }
Parameter& ParameterDict::operator[](const std::string& name) {
  check(contains(name), "[ParameterDict] no parameter {}", name);
  return entry(items, name)->second;
}
std::string ParameterDict::extra_repr() { return lines(named_parameters()); }

TAPIR_DEFINE_FIELDS(ModuleList, ModuleDict, ParameterList, ParameterDict, Sequential)

}  // namespace tapir::inline v0::nn
