// Module cases: state, outputs, gradients of inputs and parameters, changed buffers.
#include "modules.h"
#include "run.h"

namespace conformance {

std::map<std::string, Make>& module_makers() {
  static std::map<std::string, Make> table;
  return table;
}
ModuleArgs::ModuleArgs(const Family& family, const Json& json) : family(family), json(json) {
  for (auto& [name, v] : json["kwargs"].items()) {
    const bool is_module = v.is_object() && v.contains("module");
    named[name] = is_module ? family.decode("a module") : family.decode(v);
  }
}
Bound ModuleArgs::module(const std::string& name) {
  need(name);
  return make_module(family, json["kwargs"][name]);
}

Bound make_module(const Family& family, const Json& json) {
  auto it = module_makers().find(json["module"]);
  if (it == module_makers().end()) throw Refused("unbound module " + json["module"].get<std::string>());
  ModuleArgs args(family, json);
  Bound b = it->second(args);
  args.check_all_used();
  return b;
}

static bool is_bound(const Json& json) {
  if (!module_makers().contains(json["module"])) return false;
  for (const Json& child : json.value("children", Json::array()))
    if (!is_bound(child)) return false;
  for (auto& [name, v] : json["kwargs"].items())
    if (v.is_object() && v.contains("module") && !is_bound(v)) return false;
  return true;
}

/// The input tensor that a path names: "inputs.1", "inputs.1.0", "inputs.0.packed.data", "kwargs.mask".
static Tensor& input_at(Args& in, std::string path) {
  const std::string packed = ".packed.data";
  if (path.starts_with("inputs.")) path = "args" + path.substr(6);
  if (path.ends_with(packed)) path = path.substr(0, path.size() - packed.size()) + ".0";
  for (auto& [at, x] : in.paths())
    if (at == path) return *x;
  throw Refused("no input at " + path);
}

/// The recorded inputs, those that have a gradient as leaves.
static Args inputs_of(const Family& family, const Json& json, const Json& gradients) {
  Args in;
  for (const Json& v : json["inputs"]) {
    if (!v.is_object() || !v.contains("packed")) {
      in.positional.push_back(family.decode(v));
      continue;
    }
    const Json& p = v["packed"];
    Value packed;
    packed.kind = Value::Kind::List;
    for (const char* part : {"data", "lengths", "batch_first", "enforce_sorted"})
      packed.list.push_back(family.decode(p[part]));
    in.positional.push_back(packed);
  }
  const Json named = json.value("input_kwargs", Json::object());
  for (auto& [name, v] : named.items()) in.named[name] = family.decode(v);
  for (auto& [path, want] : gradients.items()) input_at(in, path).requires_grad_();
  return in;
}

/// The difference of a gradient from what is expected; one that did not come about counts as zeros.
static std::string compare_gradient(const Family& family, const std::string& path, const Tensor& x, const Json& want) {
  const Tensor got = x.grad().defined() ? x.grad() : zeros_like(x.detach());
  const std::string text = compare(got, family.expected(want), want);
  return text.empty() ? "" : "grad " + path + ": " + text;
}

static std::string check_outputs(const Family& family, const Json& json, const std::vector<Tensor>& outputs) {
  const Json& wanted = json["outputs"];
  if (wanted.size() != outputs.size())
    return tapir::format("{} outputs, expected {}", int64_t(outputs.size()), int64_t(wanted.size()));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string text = wanted[i].is_null() ? outputs[i].defined() ? "expected None" : ""
                                                 : compare(outputs[i], family.expected(wanted[i]), wanted[i]);
    if (!text.empty()) return tapir::format("outputs.{}: {}", int64_t(i), text);
  }
  return "";
}

/// Backward from the outputs, then every recorded gradient.
static std::string check_gradients(const Family& family, const Json& grads, nn::Module& module, Args& in,
                                   const std::vector<Tensor>& outputs) {
  std::vector<Tensor> roots, cotangents;
  for (size_t i = 0; i < outputs.size(); ++i)
    if (grads.contains("outputs") && !grads["outputs"][i].is_null() && outputs[i].requires_grad())
      roots.push_back(outputs[i]), cotangents.push_back(family.decode(grads["outputs"][i]).tensor);
  if (!roots.empty()) backward(roots, cotangents);
  const Json of_inputs = grads.value("inputs", Json::object()), of_state = grads.value("state", Json::object());
  for (auto& [path, want] : of_inputs.items())
    if (std::string text = compare_gradient(family, path, input_at(in, path), want); !text.empty()) return text;
  for (auto& [name, p] : module.named_parameters())
    if (auto want = of_state.find(name); want != of_state.end() && !want->is_null())
      if (std::string text = compare_gradient(family, name, p, *want); !text.empty()) return text;
  return "";
}

std::optional<std::string> run_module(const Family& family, const Json& json) {
  if (!is_bound(json)) return std::nullopt;
  const Json grads = json.value("grad", Json::object());
  Args in = inputs_of(family, json, grads.value("inputs", Json::object()));
  Bound b = make_module(family, json);
  nn::Module& module = *b.module;
  module.to(dtype_from_name(json["dtype"].get<std::string>()));
  module.to(run_device);
  StateDict state;
  for (auto& [name, v] : json["state"].items()) state.append(name, family.expected(v));
  module.load_state_dict(state);
  module.train(json["train"].get<bool>());
  Args given = in;
  if (json["kwargs"].value("inplace", false))  // a leaf that wants a gradient may not be overwritten
    for (auto& [path, x] : given.paths())
      if (x->requires_grad()) *x = *x * 1;
  const std::vector<Tensor> outputs = b.forward(module, given);
  given.check_all_used();
  if (std::string text = check_outputs(family, json, outputs); !text.empty()) return text;
  if (std::string text = check_gradients(family, grads, module, in, outputs); !text.empty()) return text;
  const StateDict after = module.state_dict();
  const Json state_after = json.value("state_after", Json::object());
  for (auto& [name, want] : state_after.items())
    if (std::string text = compare(after.at(name), family.expected(want), want); !text.empty())
      return "state_after " + name + ": " + text;
  return "";
}

}  // namespace conformance
