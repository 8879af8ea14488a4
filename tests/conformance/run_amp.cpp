// Dtypes under autocast, the policy table of CUDA, gradient scaler trajectories.
#include <tapir/tapir.h>

#include "run.h"

namespace conformance {

namespace {

DType dtype_named(const std::string& name) {
  for (DType t : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool})
    if (tapir::format("{}", t) == name) return t;
  fail(ErrorKind::Value, "no dtype {}", name);
}

/// PyTorch's operator overload -> the name of our rule; "" where there is no such operation here.
std::string rule_of(const std::string& op) {
  static const std::map<std::string, std::string> ours = {
      {"linalg_vecdot", "vecdot"},           {"linalg_multi_dot", "multi_dot"},
      {"native_layer_norm", "layer_norm"},   {"frobenius_norm", "matrix_norm"},
      {"nuclear_norm", "matrix_norm"},       {"linalg_vector_norm", "vector_norm"},
      {"linalg_matrix_norm", "matrix_norm"}, {"nll_loss2d", "nll_loss"},
      {"grid_sampler", "grid_sample"},       {"vdot", "dot"}};
  if (const auto it = ours.find(op); it != ours.end()) return it->second;
  if (op.find("upsample") != op.npos) return "interpolate";
  return cast_rule(op).any() ? op : "";
}

std::optional<std::string> run_policy(const Json& json) {
  const std::string op = rule_of(json["op"]), policy = json["policy"];
  if (op.empty()) return std::nullopt;
  const CastPolicy want = policy == "lower_precision" ? CastPolicy::Lower
                          : policy == "fp32"          ? CastPolicy::Float32
                          : policy == "promote"       ? CastPolicy::Widest
                                                      : CastPolicy::Refused;
  return cast_rule(op).cuda == want ? "" : "another policy for " + op;
}

std::optional<std::string> run_autocast(const Family& family, const Json& json, const Signatures& signatures) {
  const auto it = bindings().find(json["op"]);
  if (it == bindings().end()) return std::nullopt;
  const Device before = std::exchange(run_device, kCPU);  // recorded with the CPU's rules
  Args args = decode_args(family, json, signatures);
  run_device = before;
  amp::Autocast autocast(kCPU, {.dtype = dtype_named(json["autocast"]["dtype"])});
  const Results results = it->second.call(args);
  const Json& outputs = json["outputs"];
  if (results.size() != outputs.size())
    return tapir::format("{} outputs, expected {}", int64_t(results.size()), int64_t(outputs.size()));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& got = results[i].tensor;
    if (!got.defined() || !outputs[i].is_object() || !outputs[i].contains("dtype")) continue;
    const auto shape = outputs[i]["shape"].get<std::vector<int64_t>>();
    if (got.dtype() != dtype_named(outputs[i]["dtype"]) || got.shape() != Shape(shape))
      return tapir::format("outputs.{}: {}, expected {}{}", int64_t(i), got, outputs[i]["dtype"].get<std::string>(),
                           Shape(shape));
  }
  return "";
}

}  // namespace

std::optional<std::string> run_amp(const Family& family, const Json& json, const Signatures& signatures) {
  return json["kind"] == "policy" ? run_policy(json) : run_autocast(family, json, signatures);
}

std::optional<std::string> run_grad_scaler(const Family& family, const Json& json) {
  Args options;
  for (auto& [name, v] : json["scaler"].items()) options.named[name] = family.decode(v);
  amp::GradScaler scaler({.init_scale = options.number("init_scale", 65536),
                          .growth_factor = options.number("growth_factor", 2),
                          .backoff_factor = options.number("backoff_factor", 0.5),
                          .growth_interval = options.integer("growth_interval", 2000),
                          .enabled = options.boolean("enabled", true)});
  std::vector<std::string> names;
  std::vector<Tensor> params;
  for (auto& [name, v] : json["params"].items())
    names.push_back(name), params.push_back(family.decode(v).tensor.requires_grad_());
  const Json& o = json["optimizer"]["options"];
  optim::SGD optimizer(params, {.lr = o["lr"], .momentum = o["momentum"]});
  const auto same = [&](const std::string& what, const Tensor& got, const Json& want) {
    const std::string text = compare(got, family.expected(want), want);
    return text.empty() ? "" : what + ": " + text;
  };
  scaler.scale(ones({}, {.device = run_device}));  // so that it knows the device
  for (const Json& step : json["steps"]) {
    for (size_t i = 0; i < params.size(); ++i) params[i].set_grad(family.decode(step["grads"][names[i]]).tensor);
    if (scaler.get_scale() != step["scale_before"].get<double>()) return "another scale before the step";
    if (!json["clip_grad_norm"].is_null()) {
      scaler.unscale_(optimizer);
      const Tensor norm = optim::clip_grad_norm_(params, json["clip_grad_norm"]);
      if (std::string text = same("total_norm", norm, step["total_norm"]); !text.empty()) return text;
    }
    scaler.step(optimizer);
    if (scaler.skipped(optimizer) == step["stepped"].get<bool>()) return "stepped where it should not, or the reverse";
    scaler.update();
    if (scaler.get_scale() != step["scale_after"].get<double>()) return "another scale after the step";
    const StateDict state = scaler.state_dict();
    if (!state.empty() && state.at("_growth_tracker").item() != step["growth_tracker"].get<double>())
      return "another growth tracker";
    for (size_t i = 0; i < params.size(); ++i)
      if (std::string text = same(names[i], params[i].detach(), step["params_after"][names[i]]); !text.empty())
        return text;
  }
  const StateDict state = scaler.state_dict();
  if (state.size() != json["state_dict"].size()) return "another number of entries in the state";
  for (auto& [name, want] : json["state_dict"].items())
    if (state.at(name).item() != want.get<double>()) return "another " + name + " in the state";
  return "";
}

}  // namespace conformance
