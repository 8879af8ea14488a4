// Optimizer trajectories, gradient clipping, learning-rate schedules.
#include <cmath>

#include "run.h"

namespace conformance {

namespace {

struct Params {
  std::vector<std::string> names;
  std::map<std::string, Tensor> tensors;
};

Args options_of(const Family& family, const Json& json) {
  Args a;
  for (auto& [name, v] : json.items()) a.named[name] = family.decode(v);
  return a;
}
/// Sets what the arguments give; `o` is an optimizer's options or a group of it.
template <class T> void read(Args& a, const char* name, T& to) {
  if (!a.has(name)) return;
  if constexpr (requires { to = std::array<double, 2>(); }) {
    const auto& list = a.need(name).list;
    to = std::array<double, 2>{scalar_of(list[0]).to_double(), scalar_of(list[1]).to_double()};
  } else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::optional<bool>>) to = a.boolean(name, false);
  else to = a.number(name);
}
template <class O> void read_options(Args& a, O& o) {
  read(a, "lr", o.lr), read(a, "weight_decay", o.weight_decay), read(a, "maximize", o.maximize);
  if constexpr (requires { o.momentum; })
    read(a, "momentum", o.momentum), read(a, "dampening", o.dampening), read(a, "nesterov", o.nesterov);
  if constexpr (requires { o.betas; }) read(a, "betas", o.betas), read(a, "eps", o.eps), read(a, "amsgrad", o.amsgrad);
  for (const char* way : {"foreach", "fused", "capturable", "differentiable"}) a.find(way);
  a.check_all_used();
}

template <class Optimizer, class Options, class Group>
std::unique_ptr<optim::Optimizer> make(const Family& family, const Json& json, Params& params) {
  std::vector<Group> groups;
  for (const Json& group : json["groups"]) {
    Group& g = groups.emplace_back();
    for (const Json& name : group["params"]) g.params.push_back(params.tensors.at(name)), params.names.push_back(name);
    Args a = options_of(family, group["options"]);
    read_options(a, g);
  }
  Args a = options_of(family, json["options"]);
  Options options;
  read_options(a, options);
  return std::make_unique<Optimizer>(std::move(groups), options);
}

std::unique_ptr<optim::Optimizer> make_optimizer(const Family& family, const Json& json, Params& params) {
  const std::string name = json["optimizer"];
  if (name == "SGD") return make<optim::SGD, optim::SGDOptions, optim::SGDGroup>(family, json, params);
  if (name == "Adam") return make<optim::Adam, optim::AdamOptions, optim::AdamGroup>(family, json, params);
  if (name == "AdamW") return make<optim::AdamW, optim::AdamWOptions, optim::AdamWGroup>(family, json, params);
  return nullptr;
}

std::string check_state(const Family& family, const Json& json, const optim::Optimizer& optimizer) {
  const StateDict state = optimizer.state_dict();
  for (auto& [number, entries] : json["state_dict"]["state"].items()) {
    for (auto& [name, want] : entries.items()) {
      if (want.is_null()) continue;
      const std::string key = "state." + number + "." + name;
      const Tensor* got = state.find(key);
      if (!got) return "no " + key;
      if (want.is_number()) {
        if (got->item() != want.get<double>())
          return format("{}: {}, expected {}", key, got->item(), want.get<double>());
      } else if (std::string text = compare(*got, family.expected(want), want); !text.empty()) return key + ": " + text;
    }
  }
  return "";
}

std::optional<std::string> run_trajectory(const Family& family, const Json& json) {
  Params params;
  for (auto& [name, v] : json["params"].items()) params.tensors.emplace(name, family.decode(v).tensor.requires_grad_());
  auto optimizer = make_optimizer(family, json, params);
  if (!optimizer) return std::nullopt;
  const int64_t steps = family.expected(json["params_after"].begin().value()).size(0);
  for (int64_t s = 0; s < steps; ++s) {
    for (auto& [name, p] : params.tensors) {
      if (!json["grads"].contains(name) || json["grads"][name].is_null()) continue;
      p.set_grad(family.decode(json["grads"][name]).tensor.select(0, s).clone());
    }
    optimizer->step();
    for (auto& [name, p] : params.tensors) {
      const Json& want = json["params_after"][name];
      if (std::string text = compare(p.detach(), family.expected(want).select(0, s), want); !text.empty())
        return format("step {}, {}: {}", s + 1, name, text);
    }
  }
  return check_state(family, json, *optimizer);
}

std::optional<std::string> run_clip(const Family& family, const Json& json) {
  std::vector<Tensor> params;
  for (const Json& v : json["grads"]) {
    const Tensor g = family.decode(v).tensor;
    params.push_back(zeros_like(g).requires_grad_());
    params.back().set_grad(g);
  }
  Args a = options_of(family, json["kwargs"]);
  a.find("foreach");
  if (json["function"] == "clip_grad_norm_") {
    const Tensor norm = optim::clip_grad_norm_(params, a.number("max_norm"),
                                               {a.number("norm_type", 2.0), a.boolean("error_if_nonfinite", false)});
    if (std::string text = compare(norm, family.expected(json["total_norm"]), json["total_norm"]); !text.empty())
      return "total_norm: " + text;
  } else if (json["function"] == "clip_grad_value_") optim::clip_grad_value_(params, a.number("clip_value"));
  else return std::nullopt;
  a.check_all_used();
  for (size_t i = 0; i < params.size(); ++i)
    if (std::string text = compare(params[i].grad(), family.expected(json["grads_after"][i]), json["grads_after"][i]);
        !text.empty())
      return format("grads_after.{}: {}", int64_t(i), text);
  return "";
}

}  // namespace

std::optional<std::string> run_optimizer(const Family& family, const Json& json) {
  if (json["kind"] == "optimizer") return run_trajectory(family, json);
  if (json["kind"] == "clip") return run_clip(family, json);
  return std::nullopt;
}

std::optional<std::string> run_scheduler(const Family& family, const Json& json) {
  const std::string name = json["scheduler"];
  if (name != "StepLR" && name != "CosineAnnealingLR") return std::nullopt;
  const auto rates = json["optimizer"]["lr"].get<std::vector<double>>();
  std::vector<optim::SGDGroup> groups;
  for (double lr : rates) groups.push_back({.params = {zeros({1}, {.requires_grad = true})}, .lr = lr});
  optim::SGD optimizer(std::move(groups));
  Args a = options_of(family, json["kwargs"]);
  std::unique_ptr<optim::LRScheduler> scheduler;
  if (name == "StepLR")
    scheduler = std::make_unique<optim::StepLR>(optimizer, a.integer("step_size"),
                                                optim::StepLROptions{.gamma = a.number("gamma", 0.1)});
  else
    scheduler = std::make_unique<optim::CosineAnnealingLR>(
        optimizer, a.integer("T_max"), optim::CosineAnnealingLROptions{.eta_min = a.number("eta_min", 0.0)});
  a.check_all_used();
  for (size_t t = 0; t < json["lrs"].size(); ++t) {
    if (t) scheduler->step();
    const auto want = json["lrs"][t].get<std::vector<double>>(), got = scheduler->get_last_lr();
    for (size_t g = 0; g < want.size(); ++g)
      if (std::abs(got[g] - want[g]) > 1e-9 * std::abs(want[g]))
        return format("step {}, group {}: {}, expected {}", int64_t(t), int64_t(g), got[g], want[g]);
  }
  return "";
}

}  // namespace conformance
