#include "sgd.h"

namespace tapir::inline v0::optim {

SGD::SGD(std::vector<ParamGroup<SGDOptions>> groups, const SGDOptions& defaults) : Optimizer("SGD") {
  for (auto& group : groups) {
    const SGDOptions o = group.options.value_or(defaults);
    check_option("SGD", "learning rate", o.lr);
    check_option("SGD", "momentum", o.momentum);
    check_option("SGD", "weight_decay", o.weight_decay);
    check(!o.nesterov || (o.momentum > 0 && o.dampening == 0),
          "[SGD] Nesterov momentum requires a momentum and zero dampening, got momentum {} and dampening {}",
          o.momentum, o.dampening);
    OptimizerParams params{
        .op = OptimizerOp::Sgd, .weight_decay = o.weight_decay, .beta1 = o.momentum, .beta2 = o.dampening};
    params.nesterov = o.nesterov, params.maximize = o.maximize;
    add_group(std::move(group.params), params, o.lr);
  }
}

}  // namespace tapir::inline v0::optim
