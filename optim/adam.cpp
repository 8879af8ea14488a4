#include "adam.h"

namespace tapir::inline v0::optim {

template <class Options> static OptimizerParams checked(const char* name, OptimizerOp op, const Options& o) {
  check_option(name, "learning rate", o.lr);
  check_option(name, "beta parameter at index 0", o.betas[0], 0, 1);
  check_option(name, "beta parameter at index 1", o.betas[1], 0, 1);
  check_option(name, "epsilon value", o.eps);
  check_option(name, "weight_decay value", o.weight_decay);
  OptimizerParams params{
      .op = op, .weight_decay = o.weight_decay, .beta1 = o.betas[0], .beta2 = o.betas[1], .eps = o.eps};
  params.amsgrad = o.amsgrad, params.maximize = o.maximize;
  return params;
}

Adam::Adam(std::vector<ParamGroup<AdamOptions>> groups, const AdamOptions& defaults) : Optimizer("Adam") {
  for (auto& group : groups) {
    const AdamOptions o = group.options.value_or(defaults);
    add_group(std::move(group.params), checked("Adam", OptimizerOp::Adam, o), o.lr);
  }
}

AdamW::AdamW(std::vector<ParamGroup<AdamWOptions>> groups, const AdamWOptions& defaults) : Optimizer("AdamW") {
  for (auto& group : groups) {
    const AdamWOptions o = group.options.value_or(defaults);
    add_group(std::move(group.params), checked("AdamW", OptimizerOp::AdamW, o), o.lr);
  }
}

}  // namespace tapir::inline v0::optim
