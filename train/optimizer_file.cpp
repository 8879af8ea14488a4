#include "optimizer_file.h"

#include <string>

#include "../ops/cast.h"

namespace tapir::inline v0::train {
namespace {

using io::Value;

Value number(const Tensor& t) {
  if (t.dtype() == kBool) return t.item() != 0;
  if (is_floating(t.dtype())) return t.item();
  return t.item<int64_t>();
}
/// An option: a number, or several.
Value option(const std::string& name, const Tensor& t) {
  if (t.dim() == 0) return number(t);
  std::vector<Value> items;
  for (int64_t i = 0; i < t.size(0); ++i) items.push_back(number(t.select(0, i)));
  return name == "params" ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}
/// Adds a tensor of a state to its parameter's dict: "exp_avg", or "old_dirs.0" as an element of a list.
void add_state(Value& to, const std::string& name, const Tensor& t) {
  const size_t dot = name.find('.');
  if (dot == std::string::npos) return to.append(name, name == "step" ? t.to(kFloat32) : t);
  Value list = to.find(name.substr(0, dot)) ? *to.find(name.substr(0, dot)) : Value::list({});
  list.push_back(t);
  to.set(name.substr(0, dot), std::move(list));
}

}  // namespace

Value pytorch_state(const optim::Optimizer& optimizer) {
  std::vector<Value> groups(size_t(optimizer.num_groups()), Value::dict()), states;
  for (int64_t g = 0; g < optimizer.num_groups(); ++g)
    states.resize(states.size() + optimizer.params(g).size(), Value::dict());
  for (auto& [name, t] : optimizer.state_dict()) {
    const size_t first = name.find('.'), second = name.find('.', first + 1);
    const size_t at = size_t(std::stoll(name.substr(first + 1, second - first - 1)));
    const std::string key = name.substr(second + 1);
    if (name.starts_with("state.")) add_state(states[at], key, t);
    else groups[at].append(key, option(key, t));
  }
  for (size_t g = 0; g < groups.size(); ++g)
    for (auto& [name, text] : optimizer.text_options(int64_t(g)))
      groups[g].append(name, text.empty() ? Value() : Value(text));
  Value state = Value::dict();
  for (size_t i = 0; i < states.size(); ++i)
    if (states[i].size() > 0) state.append(int64_t(i), states[i]);
  return Value::dict({{"state", state}, {"param_groups", Value::list(std::move(groups))}});
}

}  // namespace tapir::inline v0::train
