#include "value.h"

#include <algorithm>

namespace conformance {

const Value* Args::at(size_t i) {
  if (i >= positional.size()) return nullptr;
  used_positions_.insert(i);
  return positional[i].none() ? nullptr : &positional[i];
}

const Value* Args::find(const std::string& name) {
  if (auto it = named.find(name); it != named.end()) {
    used_.insert(name);
    return it->second.none() ? nullptr : &it->second;
  }
  for (auto& signature : signatures) {  // the first overload that has room for all arguments and knows their names
    bool fits = !signature.empty() && (signature.size() >= positional.size() || signature.back().starts_with("*"));
    for (auto& [n, v] : named) fits &= std::find(signature.begin(), signature.end(), n) != signature.end();
    if (!fits) continue;
    for (size_t i = 0; i < signature.size() && i < positional.size(); ++i)
      if (signature[i] == name) return at(i);
  }
  return nullptr;
}

const Value& Args::need(const std::string& name) {
  const Value* v = find(name);
  if (!v) throw Refused("expected an argument \"" + name + "\"");
  return *v;
}

Scalar scalar_of(const Value& v) {
  if (v.kind == Value::Kind::Bool) return Scalar(v.boolean);
  if (v.kind == Value::Kind::Int) return Scalar(v.integer);
  if (v.kind == Value::Kind::Float) return Scalar(v.number);
  if (v.kind == Value::Kind::Tensor) return v.tensor.item_scalar();
  throw Refused("expected a number");
}
Dims dims_of(const Value& v) {
  if (v.kind != Value::Kind::List) return Dims(scalar_of(v).to_int());
  Dims d;
  for (const Value& item : v.list) d.push_back(scalar_of(item).to_int());
  return d;
}

Tensor Args::optional_tensor(const std::string& name) {
  const Value* v = find(name);
  if (!v) return {};
  if (v->kind == Value::Kind::Tensor) return v->tensor;
  throw Refused("expected a tensor for \"" + name + "\"");
}
Tensor Args::tensor(const std::string& name) {
  need(name);
  return optional_tensor(name);
}
std::vector<Tensor> Args::tensors(const std::string& name) {
  std::vector<Tensor> out;
  for (const Value& v : need(name).list) out.push_back(v.tensor);
  return out;
}
int64_t Args::integer(const std::string& name, std::optional<int64_t> otherwise) {
  const Value* v = otherwise ? find(name) : &need(name);
  return v ? scalar_of(*v).to_int() : *otherwise;
}
double Args::number(const std::string& name, std::optional<double> otherwise) {
  const Value* v = otherwise ? find(name) : &need(name);
  return v ? scalar_of(*v).to_double() : *otherwise;
}
bool Args::boolean(const std::string& name, bool otherwise) {
  const Value* v = find(name);
  return v ? scalar_of(*v).to_bool() : otherwise;
}
std::string Args::text(const std::string& name, const std::string& otherwise) {
  const Value* v = find(name);
  return v ? v->text : otherwise;
}
Scalar Args::scalar(const std::string& name, std::optional<Scalar> otherwise) {
  const Value* v = otherwise ? find(name) : &need(name);
  return v ? scalar_of(*v) : *otherwise;
}
std::optional<Scalar> Args::optional_scalar(const std::string& name) {
  const Value* v = find(name);
  return v ? std::optional(scalar_of(*v)) : std::nullopt;
}
std::optional<DType> Args::dtype(const std::string& name) {
  const Value* v = find(name);
  return v && v->kind == Value::Kind::DType ? std::optional(v->dtype) : std::nullopt;
}
Dims Args::dims(const std::string& name, const Dims& otherwise) {
  const Value* v = find(name);
  return v ? dims_of(*v) : otherwise;
}
MemoryFormat Args::format(MemoryFormat otherwise) {
  const Value* v = find("memory_format");
  if (!v) return otherwise;
  if (v->text.starts_with("channels_last")) return kChannelsLast;
  return v->text == "contiguous_format" ? kContiguous : kPreserve;
}
Operand Args::operand(const std::string& name) {
  const Value& v = need(name);
  if (v.kind == Value::Kind::Tensor) return v.tensor;
  return scalar_of(v);
}

void Args::check_all_used() const {
  if (everything_) return;
  for (size_t i = 0; i < positional.size(); ++i)
    if (!used_positions_.contains(i)) throw Refused("no such argument at position " + std::to_string(i));
  for (auto& [name, value] : named)
    if (!used_.contains(name)) throw Refused("no such option: " + name);
}

std::vector<std::pair<std::string, Tensor*>> Args::paths() {
  std::vector<std::pair<std::string, Tensor*>> out;
  auto visit = [&](auto&& self, const std::string& path, Value& v) -> void {
    if (v.kind == Value::Kind::Tensor) out.emplace_back(path, &v.tensor);
    for (size_t i = 0; i < v.list.size(); ++i) self(self, path + "." + std::to_string(i), v.list[i]);
  };
  for (size_t i = 0; i < positional.size(); ++i) visit(visit, "args." + std::to_string(i), positional[i]);
  for (auto& [name, v] : named) visit(visit, "kwargs." + name, v);
  return out;
}

}  // namespace conformance
