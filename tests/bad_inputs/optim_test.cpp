// Optimizers and schedules: BI-204 to BI-217. Options of each: tests/optim.
#include "refused.h"

namespace {
Tensor weight(DType dtype = kFloat32) { return ones({2, 2}, {.dtype = dtype, .requires_grad = true}); }
}  // namespace

TEST_CASE("BI-204, BI-205, BI-206, BI-207 what an optimizer cannot be made of") {
  const Tensor w = weight();
  REFUSED(optim::RMSprop({w}, {.lr = -1}), "learning rate", "-1");
  REFUSED(optim::Lion({w}, {.weight_decay = kNan}), "weight_decay", "nan");
  REFUSED(optim::NAdam(std::vector<Tensor>{}), "NAdam", "empty parameter list");
  REFUSED(optim::Adagrad({w, w}), "position 1", "appears twice");
  REFUSED(optim::Muon({{.params = {w}}, {.params = {w}}}), "more than one parameter group");
  REFUSED(optim::Adamax({w, w * 2}), "non-leaf", "position 1");
  REFUSED(optim::Adafactor({zeros({2})}), "require grad", "position 0");
  REFUSED(optim::LBFGS({Tensor()}), "undefined", "position 0");
}

TEST_CASE("BI-208 a parameter without a gradient rests, and so does its state") {
  const Tensor w = weight(), idle = weight();
  optim::RMSprop opt({idle, w});
  w.set_grad(ones({2, 2}));
  opt.step();
  CHECK(idle.detach().sum().item() == 4);
  CHECK(!opt.state_dict().contains("state.0.step"));
}

TEST_CASE("BI-211, BI-212 states of another optimizer, count or shape leave the optimizer as it was") {
  Tensor a = weight(), b = ones({3}, {.requires_grad = true}), c = weight();
  optim::Adam one({a}, {.amsgrad = true}), two({a, b}), three({b}), same({c}, {.amsgrad = true});
  a.set_grad(ones({2, 2}));
  one.step();
  StateDict state = one.state_dict();
  REFUSED(two.load_state_dict(state), "group 0", "1 and 2");
  REFUSED(three.load_state_dict(state), "state.0.exp_avg", "(3,)", "(2, 2)");
  StateDict without;
  for (auto& [name, t] : state)
    if (name != "state.0.max_exp_avg_sq") without.append(name, t);
  REFUSED(same.load_state_dict(without), "max_exp_avg_sq");
  state.set("state.0.step", full({}, -1));
  REFUSED(same.load_state_dict(state), "steps", "-1");
  state.set("param_groups.1.lr", full({}, 0.1));
  REFUSED(same.load_state_dict(state), "different number of parameter groups");
  CHECK(!same.state_dict().contains("state.0.step"));
  REFUSED(optim::SGD({a}, {.momentum = 0.9, .dampening = 0.1, .nesterov = true}), "Nesterov", "0.1");
}

TEST_CASE("BI-213, BI-214 clipping") {
  const Tensor w = weight();
  CHECK(optim::clip_grad_norm_({w}, 1).item() == 0);
  w.set_grad(full({2, 2}, kNan));
  REFUSED(optim::clip_grad_norm_({w}, 1, {.error_if_nonfinite = true}), "non-finite");
  REFUSED(optim::clip_grad_norm_({w}, -1), "max_norm", "-1");
  REFUSED(optim::clip_grad_value_({w}, kNan), "clip_value");
}

TEST_CASE("BI-216, BI-217 schedules") {
  optim::SGD opt({weight()}, {.lr = 1, .momentum = 0.9});
  REFUSED(optim::CosineAnnealingWarmRestarts(opt, 5, {.T_mult = 0}), "T_mult", "0");
  REFUSED(optim::MultiStepLR(opt, {3, 1}), "sorted", "3", "1");
  REFUSED(optim::LinearLR(opt, {.end_factor = -0.5}), "end_factor", "-0.5");
  REFUSED(optim::ConstantLR(opt, {.factor = 0}), "factor", "0");
  REFUSED(optim::LambdaLR(opt, std::vector<double (*)(int64_t)>{}), "1 functions", "0");
  optim::OneCycleLR cycle(opt, 0.1, {.total_steps = 2});
  cycle.step(), cycle.step();  // before any step of the optimizer: warned once
  REFUSED(cycle.step(), "3 times", "total steps is 2");
  REFUSED(cycle.load_state_dict({{"base_lrs", tensor({1., 2.})}, {"last_epoch", full({}, 1)}}), "base_lrs", "1", "2");
}
