// Optimizer trajectories, gradient clipping, averages of weights.

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
/// Sets an option where the arguments give it.
template <class T, size_t N> void read(const Value& v, std::array<T, N>& to);
void read(const Value& v, double& to) { to = scalar_of(v).to_double(); }
void read(const Value& v, bool& to) { to = v.boolean; }
void read(const Value& v, int64_t& to) { to = v.integer; }
void read(const Value& v, std::string& to) { to = v.text; }
template <class T> void read(const Value& v, std::optional<T>& to) {
  if (v.none()) to.reset();
  else read(v, to.emplace());
}
template <class T, size_t N> void read(const Value& v, std::array<T, N>& to) {
  for (size_t i = 0; i < N; ++i) read(v.list[i], to[i]);
}
/// Sets what the arguments give; `o` is an optimizer's options or a group of it.
template <class O> void read_options(Args& a, O& o) {
  o.each([&](const char* name, auto& option) {
    if (const Value* v = a.find(name)) read(*v, option);
  });
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
#define OPTIMIZER(Name) \
  if (name == #Name) return make<optim::Name, optim::Name##Options, optim::Name##Group>(family, json, params);
  OPTIMIZER(SGD)
  OPTIMIZER(ASGD)
  OPTIMIZER(Adam)
  OPTIMIZER(AdamW)
  OPTIMIZER(Adamax)
  OPTIMIZER(NAdam)
  OPTIMIZER(RAdam)
  OPTIMIZER(Adagrad)
  OPTIMIZER(Adadelta)
  OPTIMIZER(RMSprop)
  OPTIMIZER(Rprop)
  OPTIMIZER(Lion)
  OPTIMIZER(Muon)
  OPTIMIZER(Adafactor)
#undef OPTIMIZER
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
          return tapir::format("{}: {}, expected {}", key, got->item(), want.get<double>());
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
        return tapir::format("step {}, {}: {}", s + 1, name, text);
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
      return tapir::format("grads_after.{}: {}", int64_t(i), text);
  return "";
}

/// Three steps on mean((x w - y)^2).
std::optional<std::string> run_lbfgs(const Family& family, const Json& json) {
  Args a = options_of(family, json["options"]);
  optim::LBFGSOptions o;
  o.lr = a.number("lr", 1.0), o.max_iter = a.integer("max_iter", 20), o.history_size = a.integer("history_size", 100);
  o.tolerance_grad = a.number("tolerance_grad", 1e-7), o.tolerance_change = a.number("tolerance_change", 1e-9);
  if (const Value* v = a.find("max_eval")) o.max_eval = v->integer;
  o.line_search_fn = a.text("line_search_fn", ""), o.maximize = a.boolean("maximize", false);
  a.check_all_used();
  const Tensor x = family.decode(json["x"]).tensor, y = family.decode(json["y"]).tensor;
  Tensor w = family.decode(json["params"]["w"]).tensor.requires_grad_();
  optim::LBFGS optimizer({w}, o);
  const Tensor losses = family.expected(json["losses"]), after = family.expected(json["params_after"]["w"]);
  for (int64_t s = 0; s < losses.numel(); ++s) {
    const Tensor loss = optimizer.step([&] {
      optimizer.zero_grad();
      Tensor l = mean(square(matmul(x, w) - y));
      l.backward();
      return l;
    });
    if (std::string text = compare(loss.detach(), losses.select(0, s), json["losses"]); !text.empty())
      return tapir::format("step {}, loss: {}", s + 1, text);
    if (std::string text = compare(w.detach(), after.select(0, s), json["params_after"]["w"]); !text.empty())
      return tapir::format("step {}, w: {}", s + 1, text);
  }
  return "";
}

struct Weight : nn::Module {
  Parameter weight;
  explicit Weight(const Tensor& w) : weight(w) {}
  TAPIR_FIELDS(weight)
};
std::optional<std::string> run_average(const Family& family, const Json& json) {
  Args a = options_of(family, json["kwargs"]);
  train::AverageOptions o;
  if (json["average"] == "ema") o.decay = a.number("decay");
  else if (json["average"] != "swa") return std::nullopt;
  a.check_all_used();
  const Tensor all = family.decode(json["params"]["weight"]).tensor;
  const Json& facts = json["average_after"]["weight"];
  Weight model(all.select(0, 0).clone());
  train::AveragedModel average(model, o);
  for (int64_t i = 0; i < all.size(0); ++i) {
    {
      NoGrad guard;
      model.weight.copy_(all.select(0, i));
    }
    average.update_parameters(model);
    if (std::string text = compare(average.module.weight.detach(), family.expected(facts).select(0, i), facts);
        !text.empty())
      return tapir::format("update {}: {}", i + 1, text);
  }
  return average.n_averaged == json["n_averaged"].get<int64_t>() ? "" : "n_averaged";
}

}  // namespace

std::optional<std::string> run_optimizer(const Family& family, const Json& json) {
  if (json["kind"] == "optimizer") return run_trajectory(family, json);
  if (json["kind"] == "clip") return run_clip(family, json);
  if (json["kind"] == "lbfgs") return run_lbfgs(family, json);
  if (json["kind"] == "average") return run_average(family, json);
  return std::nullopt;
}

}  // namespace conformance
