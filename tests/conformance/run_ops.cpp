// Operation cases: outputs, the call in place, gradients, second gradients.
#include "run_ops.h"

namespace conformance {

static std::string failed(const std::string& where, const std::string& what) {
  return what.empty() ? "" : where + ": " + what;
}

Args decode_args(const Family& family, const Json& json, const Signatures& signatures) {
  Args args;
  for (auto& v : json["args"]) args.positional.push_back(family.decode(v));
  for (auto& [name, v] : json["kwargs"].items()) args.named[name] = family.decode(v);
  if (auto it = signatures.find(json["op"]); it != signatures.end()) args.signatures = it->second;
  return args;
}

/// Output i against what was recorded.
static std::string check_output(const Family& family, const Json& want, const Result& got) {
  if (want.is_object() && want.contains("unchecked")) return "";
  if (want.is_object() && want.contains("tensor")) return compare(got.tensor, family.expected(want), want);
  const Scalar expected = scalar_of(family.decode(want));
  if (!got.number && !(got.tensor.defined() && got.tensor.numel() == 1)) return "not a number";
  const double a = (got.number ? *got.number : got.tensor.item_scalar()).to_double(), b = expected.to_double();
  return a == b || std::abs(a - b) <= 1e-6 * std::abs(b) ? "" : tapir::format("{}, expected {}", a, b);
}

/// Vectors that are unique up to sign get the recorded one; see the cases' README.
static void fix_signs(const Family& family, const Json& json, Results& results) {
  if (!json.contains("signs")) return;
  Tensor sign;
  for (auto& [number, axis] : json["signs"].items()) {
    const size_t i = std::stoul(number);
    const int64_t along = axis.get<int64_t>() == -1 ? -2 : -1;
    Tensor& got = results.at(i).tensor;
    if (!sign.defined()) {
      const Tensor dot = sum(got.detach().cpu() * family.expected(json["outputs"][i]), along, {.keepdim = true});
      sign = where(dot.lt(0), full({}, -1, {.dtype = got.dtype()}), ones({}, {.dtype = got.dtype()})).to(got.device());
      if (along == -1) sign = sign.transpose(-1, -2);  // kept as a row
    }
    got = got * (along == -2 ? sign : sign.transpose(-1, -2));
  }
}

static std::string run_inplace(const Family& family, const Json& json, const Signatures& signatures,
                               const Binding& binding) {
  if (!json.value("inplace", false)) return "";
  if (!binding.inplace) return "inplace: there is no such method";
  Args args = decode_args(family, json, signatures);
  Tensor self = args.positional.at(0).tensor;
  binding.inplace(self, args);
  return failed("inplace", compare(self, family.expected(json["outputs"][0]), json["outputs"][0]));
}

/// First and second gradients.
static std::string run_gradients(const Family& family, const Json& json, const Signatures& signatures,
                                 const Binding& binding) {
  if (!json.contains("grad")) return "";
  Args args = decode_args(family, json, signatures);
  std::vector<std::string> names;
  std::vector<Tensor> inputs;
  for (auto& [path, t] : args.paths()) {
    if (!json["grad"]["inputs"].contains(path)) continue;
    t->requires_grad_();
    names.push_back(path), inputs.push_back(*t);
  }
  Results results = binding.call(args);
  fix_signs(family, json, results);
  const bool second = json.contains("second");
  std::vector<Tensor> outputs, cotangents;
  std::vector<size_t> positions;
  const Json& recorded = json["grad"]["outputs"];
  for (size_t i = 0; i < recorded.size(); ++i) {
    if (recorded[i].is_null() || !results.at(i).tensor.defined()) continue;
    Tensor v = family.decode(recorded[i]).tensor;
    if (second && is_floating(v.dtype())) v.requires_grad_();
    if (!results[i].tensor.requires_grad()) continue;
    outputs.push_back(results[i].tensor), cotangents.push_back(v), positions.push_back(i);
  }
  std::vector<Tensor> got(inputs.size());
  if (!outputs.empty() && !inputs.empty())
    got = grad(outputs, inputs, cotangents, {.create_graph = second, .allow_unused = true});
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Json& want = json["grad"]["inputs"][names[i]];
    if (!got[i].defined()) got[i] = zeros_like(inputs[i].detach());
    if (std::string text = compare(got[i], family.expected(want), want); !text.empty())
      return "grad " + names[i] + ": " + text;
  }
  if (!second) return "";
  std::vector<Tensor> firsts, weights;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!json["second"]["cotangents"].contains(names[i]) || !got[i].requires_grad()) continue;
    firsts.push_back(got[i]), weights.push_back(family.decode(json["second"]["cotangents"][names[i]]).tensor);
  }
  std::vector<Tensor> wanted = inputs;
  wanted.insert(wanted.end(), cotangents.begin(), cotangents.end());
  std::vector<Tensor> twice(wanted.size());
  if (!firsts.empty()) twice = grad(firsts, wanted, weights, {.allow_unused = true});
  const auto check_one = [&](const std::string& where, Tensor t, const Tensor& like, const Json& want) {
    if (!t.defined()) t = zeros_like(like.detach());
    return failed("second " + where, compare(t, family.expected(want), want));
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!json["second"]["inputs"].contains(names[i])) continue;
    if (std::string text = check_one(names[i], twice[i], inputs[i], json["second"]["inputs"][names[i]]); !text.empty())
      return text;
  }
  for (size_t k = 0; k < positions.size(); ++k) {
    const Json& want = json["second"]["outputs"][positions[k]];
    if (want.is_null()) continue;
    if (std::string text =
            check_one("outputs." + std::to_string(positions[k]), twice[inputs.size() + k], cotangents[k], want);
        !text.empty())
      return text;
  }
  return "";
}

std::optional<std::string> run_op(const Family& family, const Json& json, const Signatures& signatures) {
  auto it = bindings().find(json["op"]);
  if (it == bindings().end()) return std::nullopt;
  Args args = decode_args(family, json, signatures);
  Results results = it->second.call(args);
  args.check_all_used();
  fix_signs(family, json, results);
  const Json& outputs = json["outputs"];
  if (results.size() != outputs.size())
    return tapir::format("{} outputs, expected {}", int64_t(results.size()), int64_t(outputs.size()));
  for (size_t i = 0; i < outputs.size(); ++i)
    if (std::string text = check_output(family, outputs[i], results[i]); !text.empty())
      return "outputs." + std::to_string(i) + ": " + text;
  if (json.contains("after")) {
    for (auto& [path, want] : json["after"].items())
      for (auto& [name, t] : args.paths())
        if (name == path)
          if (std::string text = compare(*t, family.expected(want), want); !text.empty())
            return "after " + path + ": " + text;
  }
  if (std::string text = run_inplace(family, json, signatures, it->second); !text.empty()) return text;
  return run_gradients(family, json, signatures, it->second);
}

}  // namespace conformance
