// Learning-rate schedules, and the momentum that they cycle.
#include <cmath>

#include "run.h"

namespace conformance {
namespace {

using Pointer = std::unique_ptr<optim::LRScheduler>;
struct Schedules {
  std::vector<Pointer> all;  // parts of compound ones, too
  optim::ReduceLROnPlateau* plateau = nullptr;
};

optim::PerGroup per_group(Args& a, const char* name, const optim::PerGroup& otherwise) {
  const Value* v = a.find(name);
  if (!v) return otherwise;
  if (v->is_number()) return scalar_of(*v).to_double();
  std::vector<double> values;
  for (const Value& x : v->list) values.push_back(scalar_of(x).to_double());
  return values;
}
std::vector<int64_t> integers(Args& a, const char* name) {
  std::vector<int64_t> out;
  for (const Value& x : a.items(name)) out.push_back(x.integer);
  return out;
}
struct Table {
  std::vector<double> values;
  double operator()(int64_t epoch) const { return values.at(size_t(epoch)); }
};
template <template <class> class S> Pointer of_tables(optim::Optimizer& optimizer, const Json& json) {
  const auto table = [](const Json& t) { return Table{t["table"].get<std::vector<double>>()}; };
  if (json.is_object()) return std::make_unique<S<Table>>(optimizer, table(json));
  std::vector<Table> tables;
  for (const Json& t : json) tables.push_back(table(t));
  return std::make_unique<S<std::vector<Table>>>(optimizer, tables);
}

Pointer cyclic(optim::Optimizer& optimizer, Args& a) {
  optim::CyclicLROptions o;
  o.step_size_up = a.integer("step_size_up", o.step_size_up);
  if (const Value* v = a.find("step_size_down")) o.step_size_down = v->integer;
  o.mode = a.text("mode", o.mode), o.gamma = a.number("gamma", o.gamma);
  o.scale_mode = a.text("scale_mode", o.scale_mode), o.cycle_momentum = a.boolean("cycle_momentum", true);
  o.base_momentum = per_group(a, "base_momentum", o.base_momentum);
  o.max_momentum = per_group(a, "max_momentum", o.max_momentum);
  return std::make_unique<optim::CyclicLR>(optimizer, per_group(a, "base_lr", 0), per_group(a, "max_lr", 0), o);
}
Pointer one_cycle(optim::Optimizer& optimizer, Args& a) {
  optim::OneCycleLROptions o;
  o.total_steps = a.integer("total_steps", 0), o.epochs = a.integer("epochs", 0);
  o.steps_per_epoch = a.integer("steps_per_epoch", 0), o.pct_start = a.number("pct_start", o.pct_start);
  o.anneal_strategy = a.text("anneal_strategy", o.anneal_strategy);
  o.cycle_momentum = a.boolean("cycle_momentum", true), o.three_phase = a.boolean("three_phase", false);
  o.base_momentum = per_group(a, "base_momentum", o.base_momentum);
  o.max_momentum = per_group(a, "max_momentum", o.max_momentum);
  o.div_factor = a.number("div_factor", o.div_factor);
  o.final_div_factor = a.number("final_div_factor", o.final_div_factor);
  return std::make_unique<optim::OneCycleLR>(optimizer, per_group(a, "max_lr", 0), o);
}
Pointer plateau(optim::Optimizer& optimizer, Args& a, Schedules& to) {
  optim::ReduceLROnPlateauOptions o;
  o.mode = a.text("mode", o.mode), o.factor = a.number("factor", o.factor);
  o.patience = a.integer("patience", o.patience), o.threshold = a.number("threshold", o.threshold);
  o.threshold_mode = a.text("threshold_mode", o.threshold_mode), o.cooldown = a.integer("cooldown", 0);
  o.min_lr = per_group(a, "min_lr", o.min_lr), o.eps = a.number("eps", o.eps);
  auto made = std::make_unique<optim::ReduceLROnPlateau>(optimizer, o);
  to.plateau = made.get();
  return made;
}

/// The schedule of that name; null where it is not bound.
Pointer make(const Family& family, const Json& json, optim::Optimizer& opt, Schedules& to) {
  const std::string name = json["scheduler"];
  const Json& kwargs = json["kwargs"];
  if (name == "LambdaLR") return of_tables<optim::LambdaLR>(opt, kwargs["lr_lambda"]);
  if (name == "MultiplicativeLR") return of_tables<optim::MultiplicativeLR>(opt, kwargs["lr_lambda"]);
  if (name == "SequentialLR" || name == "ChainedScheduler") {
    std::vector<optim::LRScheduler*> parts;
    for (const Json& part : kwargs["schedulers"]) {
      to.all.push_back(make(family, part, opt, to));
      if (!to.all.back()) return nullptr;
      parts.push_back(to.all.back().get());
    }
    if (name == "ChainedScheduler") return std::make_unique<optim::ChainedScheduler>(parts);
    return std::make_unique<optim::SequentialLR>(opt, parts, kwargs["milestones"].get<std::vector<int64_t>>());
  }
  Args a;
  for (auto& [key, v] : kwargs.items()) a.named[key] = family.decode(v);
  Pointer made;
  if (name == "StepLR")
    made = std::make_unique<optim::StepLR>(opt, a.integer("step_size"), optim::GammaOptions{a.number("gamma", 0.1)});
  if (name == "MultiStepLR")
    made = std::make_unique<optim::MultiStepLR>(opt, integers(a, "milestones"),
                                                optim::GammaOptions{a.number("gamma", 0.1)});
  if (name == "ExponentialLR") made = std::make_unique<optim::ExponentialLR>(opt, a.number("gamma"));
  if (name == "ConstantLR")
    made = std::make_unique<optim::ConstantLR>(
        opt, optim::ConstantLROptions{a.number("factor", 1. / 3), a.integer("total_iters", 5)});
  if (name == "LinearLR")
    made = std::make_unique<optim::LinearLR>(
        opt, optim::LinearLROptions{a.number("start_factor", 1. / 3), a.number("end_factor", 1.),
                                    a.integer("total_iters", 5)});
  if (name == "PolynomialLR")
    made = std::make_unique<optim::PolynomialLR>(
        opt, optim::PolynomialLROptions{a.integer("total_iters", 5), a.number("power", 1.)});
  if (name == "CosineAnnealingLR")
    made = std::make_unique<optim::CosineAnnealingLR>(opt, a.integer("T_max"),
                                                      optim::CosineAnnealingLROptions{a.number("eta_min", 0.)});
  if (name == "CosineAnnealingWarmRestarts")
    made = std::make_unique<optim::CosineAnnealingWarmRestarts>(
        opt, a.integer("T_0"), optim::WarmRestartsOptions{a.integer("T_mult", 1), a.number("eta_min", 0.)});
  if (name == "CyclicLR") made = cyclic(opt, a);
  if (name == "OneCycleLR") made = one_cycle(opt, a);
  if (name == "SWALR")
    made = std::make_unique<optim::SWALR>(
        opt, per_group(a, "swa_lr", 0),
        optim::SWALROptions{a.integer("anneal_epochs", 10), a.text("anneal_strategy", "cos")});
  if (name == "ReduceLROnPlateau") made = plateau(opt, a, to);
  if (made) a.check_all_used();
  return made;
}

std::unique_ptr<optim::Optimizer> optimizer_of(const Json& json) {
  const auto rates = json["lr"].get<std::vector<double>>();
  const std::string name = json["optimizer"];
  const auto make = [&]<class O, class G, class Options>(Options options) -> std::unique_ptr<optim::Optimizer> {
    std::vector<G> groups;
    for (double lr : rates) groups.push_back({.params = {zeros({1}, {.requires_grad = true})}, .lr = lr});
    return std::make_unique<O>(std::move(groups), options);
  };
  if (name == "Adam")
    return make.template operator()<optim::Adam, optim::AdamGroup>(
        optim::AdamOptions{.betas = json.value("betas", std::array{0.9, 0.999})});
  if (name == "AdamW")
    return make.template operator()<optim::AdamW, optim::AdamWGroup>(
        optim::AdamWOptions{.betas = json.value("betas", std::array{0.9, 0.999})});
  if (name != "SGD") return nullptr;
  return make.template operator()<optim::SGD, optim::SGDGroup>(
      optim::SGDOptions{.momentum = json.value("momentum", 0.)});
}

std::string differs(const Json& want, const std::vector<double>& got, size_t step, const char* what) {
  for (size_t g = 0; g < want.size(); ++g)
    if (const double w = want[g]; !(std::abs(got[g] - w) <= 1e-9 * std::abs(w)))
      return tapir::format("step {}, {} of group {}: {}, expected {}", int64_t(step), what, int64_t(g), got[g], w);
  return "";
}

}  // namespace

std::optional<std::string> run_scheduler(const Family& family, const Json& json) {
  const auto optimizer = optimizer_of(json["optimizer"]);
  if (!optimizer) return "an optimizer that this runner does not make: " + json["optimizer"]["optimizer"].dump();
  Schedules schedules;
  const Pointer scheduler = make(family, json, *optimizer, schedules);
  if (!scheduler) return std::nullopt;
  optimizer->step();  // without gradients: so that no schedule warns
  for (size_t t = 0; t < json["lrs"].size(); ++t) {
    if (t && schedules.plateau) schedules.plateau->step(json["metrics"][t - 1].get<double>());
    else if (t) scheduler->step();
    if (std::string text = differs(json["lrs"][t], scheduler->get_last_lr(), t, "rate"); !text.empty()) return text;
    std::vector<double> momentum;
    for (int64_t g = 0; g < optimizer->num_groups(); ++g) momentum.push_back(optimizer->momentum(g));
    if (json.contains("momentum"))
      if (std::string text = differs(json["momentum"][t], momentum, t, "momentum"); !text.empty()) return text;
  }
  return "";
}

}  // namespace conformance
