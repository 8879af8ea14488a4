#include "adam.h"

namespace tapir::inline v0::optim {

/// The options of a group over the optimizer's, checked.
template <class Options>
static OptimizerParams checked(const char* name, OptimizerOp op, const AdamGroup& g, const Options& defaults) {
  const auto betas = g.betas.value_or(defaults.betas);
  OptimizerParams p{.op = op,
                    .weight_decay = g.weight_decay.value_or(defaults.weight_decay),
                    .beta1 = betas[0],
                    .beta2 = betas[1],
                    .eps = g.eps.value_or(defaults.eps)};
  p.amsgrad = g.amsgrad.value_or(defaults.amsgrad), p.maximize = g.maximize.value_or(defaults.maximize);
  check_option(name, "learning rate", g.lr.value_or(defaults.lr));
  check_option(name, "beta parameter at index 0", p.beta1, 0, 1);
  check_option(name, "beta parameter at index 1", p.beta2, 0, 1);
  check_option(name, "epsilon value", p.eps);
  check_option(name, "weight_decay value", p.weight_decay);
  return p;
}

Adam::Adam(std::vector<AdamGroup> groups, const AdamOptions& defaults) : Optimizer("Adam") {
  check(!groups.empty(), "[Adam] optimizer got an empty parameter list");
  for (AdamGroup& g : groups) {
    const OptimizerParams params = checked("Adam", OptimizerOp::Adam, g, defaults);
    add_group(std::move(g.params), params, g.lr.value_or(defaults.lr));
  }
}

AdamW::AdamW(std::vector<AdamWGroup> groups, const AdamWOptions& defaults) : Optimizer("AdamW") {
  check(!groups.empty(), "[AdamW] optimizer got an empty parameter list");
  for (AdamWGroup& g : groups) {
    const OptimizerParams params = checked("AdamW", OptimizerOp::AdamW, g, defaults);
    add_group(std::move(g.params), params, g.lr.value_or(defaults.lr));
  }
}

}  // namespace tapir::inline v0::optim
