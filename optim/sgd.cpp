#include "sgd.h"

namespace tapir::inline v0::optim {

SGD::SGD(std::vector<SGDGroup> groups, const SGDOptions& defaults) : Optimizer("SGD") {
  check(!groups.empty(), "[SGD] optimizer got an empty parameter list");
  for (SGDGroup& g : groups) {
    const SGDOptions o{g.lr.value_or(defaults.lr),
                       g.momentum.value_or(defaults.momentum),
                       g.dampening.value_or(defaults.dampening),
                       g.weight_decay.value_or(defaults.weight_decay),
                       g.nesterov.value_or(defaults.nesterov),
                       g.maximize.value_or(defaults.maximize)};
    check_option("SGD", "learning rate", o.lr);
    check_option("SGD", "momentum", o.momentum, 0, 1);
    check_option("SGD", "dampening", o.dampening, kAnyNumber);
    check_option("SGD", "weight_decay", o.weight_decay);
    check(!o.nesterov || (o.momentum > 0 && o.dampening == 0),
          "[SGD] Nesterov momentum requires a momentum and zero dampening, got momentum {} and dampening {}",
          o.momentum, o.dampening);
    OptimizerParams params{
        .op = OptimizerOp::Sgd, .weight_decay = o.weight_decay, .beta1 = o.momentum, .beta2 = o.dampening};
    params.nesterov = o.nesterov, params.maximize = o.maximize;
    add_group(std::move(g.params), params, o.lr);
  }
}

}  // namespace tapir::inline v0::optim
