// The fused optimizers and what their options mean: a table. Their arithmetic is core/formulas/optimizer.h.
#include "kinds.h"

#include "adagrad.h"
#include "adam.h"
#include "sgd.h"
#include "sign.h"

namespace tapir::inline v0::optim {
namespace {

using V = OptionValues;
using Names = std::array<const char*, 3>;

constexpr OptionRule weight_decay{"weight_decay", {&V::weight_decay}}, eps{"eps", {&V::eps}},
    momentum{"momentum", {&V::beta1}, nullptr, 0, 1}, betas{"betas", {&V::beta1, &V::beta2}, nullptr, 0, 1},
    maximize{"maximize", {}, &V::maximize}, decoupled{"decoupled_weight_decay", {}, &V::decoupled},
    amsgrad{"amsgrad", {}, &V::amsgrad}, nesterov{"nesterov", {}, &V::nesterov};
constexpr const char* roundings[] = {"nearest", "stochastic", "master"};
constexpr OptionRule low_precision{"low_precision", {&V::low_precision}, nullptr, 0, kAnyNumber, roundings};

constexpr OptionRule sgd_options[] = {low_precision, momentum, {"dampening", {&V::beta2}, nullptr, kAnyNumber},
                                      weight_decay,  nesterov, maximize};
constexpr OptionRule asgd_options[] = {low_precision,          {"lambd", {&V::beta1}},
                                       {"alpha", {&V::beta2}}, {"t0", {&V::a}, nullptr, kAnyNumber},
                                       weight_decay,           maximize};
constexpr OptionRule adam_options[] = {low_precision, betas, eps, weight_decay, amsgrad, maximize, decoupled};
constexpr OptionRule adamw_options[] = {low_precision, betas, eps, weight_decay, amsgrad, maximize};
constexpr OptionRule adamax_options[] = {low_precision, betas, eps, weight_decay, maximize};
constexpr OptionRule nadam_options[] = {low_precision, betas,   eps, weight_decay, {"momentum_decay", {&V::a}},
                                        decoupled,     maximize};
constexpr OptionRule radam_options[] = {low_precision, betas, eps, weight_decay, decoupled, maximize};
constexpr OptionRule adagrad_options[] = {
    low_precision, {"lr_decay", {&V::a}}, weight_decay, {"initial_accumulator_value", {&V::b}}, eps, maximize};
constexpr OptionRule adadelta_options[] = {low_precision, {"rho", {&V::beta2}}, eps, weight_decay, maximize};
constexpr OptionRule rmsprop_options[] = {low_precision, {"alpha", {&V::beta2}},         eps,     weight_decay,
                                          momentum,      {"centered", {}, &V::centered}, maximize};
constexpr OptionRule rprop_options[] = {
    low_precision, {"etas", {&V::beta1, &V::beta2}}, {"step_sizes", {&V::a, &V::b}}, maximize};
constexpr OptionRule lion_options[] = {low_precision, betas, weight_decay, maximize};

void check_sgd(const V& o) {
  check(!o.nesterov || (o.beta1 > 0 && o.beta2 == 0),
        "[SGD] Nesterov momentum requires a momentum and zero dampening, got momentum {} and dampening {}", o.beta1,
        o.beta2);
}
void check_adadelta(const V& o) {
  check(o.beta2 <= 1, "[Adadelta] invalid rho: expected a number in [0, 1], got {}", o.beta2);
}
void check_rprop(const V& o) {
  check(0 < o.beta1 && o.beta1 < 1 && 1 < o.beta2, "[Rprop] invalid etas: expected 0 < {} < 1 < {}", o.beta1, o.beta2);
  check(o.a <= o.b, "[Rprop] invalid step_sizes: expected {} to be at most {}", o.a, o.b);
}
Names two_moments(const V& o, const Tensor&) {
  return {"exp_avg", "exp_avg_sq", o.amsgrad ? "max_exp_avg_sq" : nullptr};
}
Names sgd_states(const V& o, const Tensor&) { return {o.beta1 != 0 ? "momentum_buffer" : nullptr}; }
Names asgd_states(const V&, const Tensor&) { return {"ax"}; }
Names lion_states(const V&, const Tensor&) { return {"exp_avg"}; }
Names adamax_states(const V&, const Tensor&) { return {"exp_avg", "exp_inf"}; }
Names adagrad_states(const V&, const Tensor&) { return {"sum"}; }
Names adadelta_states(const V&, const Tensor&) { return {"square_avg", "acc_delta"}; }
Names rprop_states(const V&, const Tensor&) { return {"prev", "step_size"}; }
Names rmsprop_states(const V& o, const Tensor&) {
  return {"square_avg", o.beta1 != 0 ? "momentum_buffer" : nullptr, o.centered ? "grad_avg" : nullptr};
}

}  // namespace

namespace kinds {
using O = OptimizerOp;
constinit const OptimizerKind sgd{.name = "SGD",
                                  .op = O::Sgd,
                                  .options = sgd_options,
                                  .states = sgd_states,
                                  .momentum = true,
                                  .check = check_sgd,
                                  .uncounted = true};
constinit const OptimizerKind asgd{
    .name = "ASGD", .op = O::ASGD, .options = asgd_options, .states = asgd_states, .numbers = {"eta", "mu"}};
constinit const OptimizerKind adam{
    .name = "Adam", .op = O::Adam, .options = adam_options, .states = two_moments, .momentum = true};
constinit const OptimizerKind adamw{
    .name = "AdamW", .op = O::AdamW, .options = adamw_options, .states = two_moments, .momentum = true};
constinit const OptimizerKind adamax{
    .name = "Adamax", .op = O::Adamax, .options = adamax_options, .states = adamax_states, .momentum = true};
constinit const OptimizerKind nadam{.name = "NAdam",
                                    .op = O::NAdam,
                                    .options = nadam_options,
                                    .states = two_moments,
                                    .momentum = true,
                                    .numbers = {"mu_product"}};
constinit const OptimizerKind radam{
    .name = "RAdam", .op = O::RAdam, .options = radam_options, .states = two_moments, .momentum = true};
constinit const OptimizerKind adagrad{.name = "Adagrad",
                                      .op = O::Adagrad,
                                      .options = adagrad_options,
                                      .states = adagrad_states,
                                      .start = [](const V& o, double, size_t) { return o.b; },
                                      .early = true};
constinit const OptimizerKind adadelta{.name = "Adadelta",
                                       .op = O::Adadelta,
                                       .options = adadelta_options,
                                       .states = adadelta_states,
                                       .check = check_adadelta};
constinit const OptimizerKind rmsprop{
    .name = "RMSprop", .op = O::RMSprop, .options = rmsprop_options, .states = rmsprop_states, .momentum = true};
constinit const OptimizerKind rprop{.name = "Rprop",
                                    .op = O::Rprop,
                                    .options = rprop_options,
                                    .states = rprop_states,
                                    .check = check_rprop,
                                    .start = [](const V&, double lr, size_t state) { return state == 1 ? lr : 0; }};
constinit const OptimizerKind lion{
    .name = "Lion", .op = O::Lion, .options = lion_options, .states = lion_states, .momentum = true};
}  // namespace kinds

#define TAPIR_OPTIMIZER(x) TAPIR_OPTIMIZER_ x
#define TAPIR_OPTIMIZER_(Name, kind)                                        \
  TAPIR_OPTIMIZER_OF_PARAMETERS(Name)                                       \
  Name::Name(std::vector<Name##Group> groups, const Name##Options& options) \
      : Optimizer(kinds::kind, std::move(groups), options) {}
TAPIR_EACH(TAPIR_OPTIMIZER, (SGD, sgd), (ASGD, asgd), (Adam, adam), (AdamW, adamw), (Adamax, adamax), (NAdam, nadam),
           (RAdam, radam), (Adagrad, adagrad), (Adadelta, adadelta), (RMSprop, rmsprop), (Rprop, rprop), (Lion, lion))

}  // namespace tapir::inline v0::optim
