// Optimizers, schedules, mixed precision.
#include "table.h"

using namespace bad_inputs;
using amp::GradScaler;

namespace {
Tensor weight() {
  Tensor w = ones({2, 2}).requires_grad_();
  w.set_grad(ones({2, 2}));
  return w;
}
optim::SGD sgd() { return optim::SGD({weight()}, {.lr = 0.1, .momentum = 0.9}); }
/// A state of an Adam of one weight, with one entry changed.
StateDict adam_state(const char* name, const Tensor& value) {
  optim::Adam adam({weight()});
  adam.step();
  StateDict state = adam.state_dict();
  state.set(name, value);
  return state;
}
void load_adam(const StateDict& state) { optim::Adam({weight()}).load_state_dict(state); }
template <class S> StateDict with(S& stateful, const char* name, double value) {
  StateDict state = stateful.state_dict();
  state.set(name, full({}, value, {.dtype = kFloat64}));
  return state;
}
}  // namespace

V(760, ("SGD", "low_precision", "\"nearest\", \"stochastic\", \"master\"", "\"half\""),
  optim::SGD({weight()}, {.low_precision = "half"}))
V(761, ("Muon", "adjust_lr_fn", "\"original\"", "\"x\""), optim::Muon({weight()}, {.adjust_lr_fn = "x"}))
V(762, ("LBFGS", "line_search_fn", "\"strong_wolfe\"", "\"wolfe\""),
  optim::LBFGS({weight()}, {.line_search_fn = "wolfe"}))
V(763, ("SGD", "learning rate", "finite", "inf"), optim::SGD({weight()}, {.lr = kInf}))
V(764, ("SGD", "initial learning rate", "nan"), auto opt = sgd(); opt.set_initial_lr(kNan))
V(765, ("SGD", "initial learning rate", "-5"), auto opt = sgd(); opt.set_initial_lr(-5))
V(766, ("SGD", "moved from"), auto opt = sgd(); auto taken = std::move(opt); opt.step())
V(767, ("LBFGS", "moved from"), optim::LBFGS opt({weight()}); auto taken = std::move(opt);
  opt.step([] { return ones({}); }))
V(768, ("SGD", "inv_scale of one element", "float32 (2,)"), auto opt = sgd(); opt.step({ones({2}), {}}))
V(769, ("SGD", "inv_scale", "int64 ()"), auto opt = sgd(); opt.step({ones({}, {.dtype = kInt64}), {}}))
V(770, ("SGD", "found_inf", "bool ()"), auto opt = sgd(); opt.step({{}, ones({}, {.dtype = kBool})}))
V(771, ("SGD", "places of their own", "position 0", "strides (0,)"),
  optim::SGD({ones({1}).expand({3}).detach().requires_grad_()}))
V(772, ("set_grad", "itself"), Tensor w = weight(); w.set_grad(w))
V(773, ("clip_grad_norm_", "undefined", "position 1"), optim::clip_grad_norm_({weight(), Tensor()}, 1))
V(774, ("clip_grad_value_", "undefined", "position 0"), optim::clip_grad_value_({Tensor()}, 1))
V(775, ("clip_factor", "undefined"), optim::clip_factor(Tensor(), 1))
V(776, ("clip_factor", "one element", "float32 (2,)"), optim::clip_factor(ones({2}), 1))
V(777, ("LBFGS", "closure that gives the loss: opt.step([&] { ... return loss; })"), optim::LBFGS({weight()}).step())
V(778, ("LBFGS", "one element", "undefined"), optim::LBFGS({weight()}).step([] { return Tensor(); }))
V(779, ("LBFGS", "one element", "float32 (2,)"), optim::LBFGS({weight()}).step([] { return ones({2}); }))
FINE(
    780, Tensor w = weight(); optim::LBFGS opt({w}); int caught = 0;
    try { opt.step([]() -> Tensor { throw 5; }); } catch (int i) {
      caught = i;
    } expect(caught == 5 && w.detach().sum().item() == 4, "the closure's exception, and weights as before"))
FINE(781, optim::LBFGS({weight()}, {.max_iter = kMost}))
V(782, ("Adam", "state.0.step", "1e+30"), load_adam(adam_state("state.0.step", full({}, 1e30, {.dtype = kFloat64}))))
V(783, ("Adam", "state.0.step", "nan"), load_adam(adam_state("state.0.step", full({}, kNan))))
V(784, ("Adam", "state.0.step", "undefined"), load_adam(adam_state("state.0.step", Tensor())))
V(785, ("Adam", "state.0.exp_avg", "(2, 2)", "undefined"), load_adam(adam_state("state.0.exp_avg", Tensor())))
V(786, ("Adam", "param_groups.0.lr", "float32 (3,)"), load_adam(adam_state("param_groups.0.lr", ones({3}))))
V(787, ("Adam", "param_groups.0.lr", "undefined"), load_adam(adam_state("param_groups.0.lr", Tensor())))
V(788, ("Adam", "names like", "param_groups.99999999999999999999.lr"),
  load_adam(adam_state("param_groups.99999999999999999999.lr", ones({}))))
V(789, ("Adam", "names like", "param_groups.x.lr"), load_adam(adam_state("param_groups.x.lr", ones({}))))
V(790, ("Adam", "states of 1 parameters", "state.7.step"), load_adam(adam_state("state.7.step", ones({}))))
V(791, ("Adam", "states of 1 parameters", "state.-1.step"), load_adam(adam_state("state.-1.step", ones({}))))
FINE(
    792, Tensor w = weight(); optim::Adam opt({w}); opt.step();
    const Values before = values(opt.state_dict().at("state.0.exp_avg"));
    try { opt.load_state_dict(adam_state("state.7.step", ones({}))); } catch (const ValueError&) {
    } expect(values(opt.state_dict().at("state.0.exp_avg")) == before, "the state from before"))
V(793, ("StepLR", "learning rate", "inf"), auto opt = sgd(); optim::StepLR s(opt, 1, {.gamma = 1e300});
  s.step(), s.step(), s.step())
FINE(
    794, auto opt = sgd(); optim::LambdaLR s(opt,
                                             [](int64_t e) {
                                               if (e == 1) throw 5;
                                               return 1. / double(1 + e);
                                             });
    try { s.step(); } catch (int) {} expect(s.last_epoch() == 0 && opt.lr() == 0.1, "the schedule as before"))
V(795, ("LambdaLR", "learning rate", "nan"), auto opt = sgd(); optim::LambdaLR s(opt, [](int64_t) { return kNan; }))
FINE(
    796, auto opt = sgd(); optim::LambdaLR s(opt, [](int64_t e) { return e == 1 ? -1. : 1.; }); try {
      s.step();
    } catch (const ValueError&) {} expect(s.last_epoch() == 0 && opt.lr() == 0.1, "the schedule as before"))
FINE(
    797, auto opt = sgd(); optim::CyclicLR s(opt, 0.1, 1,
                                             {.step_size_up = 2,
                                              .scale_fn = [](double x) -> double {
                                                if (x > 1) throw 5;
                                                return 1;
                                              }});
    const double m = opt.momentum(); for (int i = 0; i < 3; ++i) s.step(); const double now = opt.momentum(); try {
      s.step();
    } catch (int) {} expect(opt.momentum() == now && s.last_epoch() == 3 && m > 0, "momentum as before"))
V(798, ("OneCycleLR", "epochs and steps_per_epoch", "9223372036854775807"), auto opt = sgd();
  optim::OneCycleLR(opt, 1, {.epochs = kMost, .steps_per_epoch = kMost}))
V(799, ("OneCycleLR", "base_momentum", "[0, 1)", "3"), auto opt = sgd();
  optim::OneCycleLR(opt, 1, {.total_steps = 10, .base_momentum = 3}))
V(800, ("CyclicLR", "max_momentum", "[0, 1)", "1.5"), auto opt = sgd();
  optim::CyclicLR(opt, 0.1, 1, {.max_momentum = 1.5}))
FINE(801, auto opt = sgd(); optim::CyclicLR s(opt, 0.1, 1, {.step_size_up = kMost, .step_size_down = kMost}); s.step();
     expect(opt.lr() >= 0.1 && opt.lr() < 0.11))
V(802, ("SequentialLR", "sorted milestones", "5 before 3"), auto opt = sgd(); optim::ConstantLR a(opt), b(opt), c(opt);
  optim::SequentialLR(opt, {&a, &b, &c}, {5, 3}))
V(803, ("StepLR", "last_epoch", "nan"), auto opt = sgd(); optim::StepLR s(opt, 3);
  s.load_state_dict(with(s, "last_epoch", kNan)))
V(804, ("StepLR", "last_epoch", "9223372036854775808"), auto opt = sgd(); optim::StepLR s(opt, 3);
  s.load_state_dict(with(s, "last_epoch", 0x1p63)))
V(805, ("StepLR", "last_epoch", "1.5"), auto opt = sgd(); optim::StepLR s(opt, 3);
  s.load_state_dict(with(s, "last_epoch", 1.5)))
V(806, ("StepLR", "base_lrs", "nan"), auto opt = sgd(); optim::StepLR s(opt, 3); StateDict state = s.state_dict();
  state.set("base_lrs", full({1}, kNan)); s.load_state_dict(state))
V(807, ("CosineAnnealingWarmRestarts", "T_i", "0"), auto opt = sgd(); optim::CosineAnnealingWarmRestarts s(opt, 3);
  s.load_state_dict(with(s, "T_i", 0)))
V(808, ("ReduceLROnPlateau", "num_bad_epochs", "nan"), auto opt = sgd(); optim::ReduceLROnPlateau s(opt);
  s.load_state_dict(with(s, "num_bad_epochs", kNan)))
V(809, ("GradScaler", "init_scale", "inf"), GradScaler({.init_scale = kInf}))
V(810, ("GradScaler", "init_scale", "1e-300"), GradScaler({.init_scale = 1e-300}))
V(811, ("GradScaler", "growth_factor", "inf"), GradScaler({.growth_factor = kInf}))
V(812, ("GradScaler", "new scale", "1e+300"), GradScaler scaler; scaler.update(1e300))
V(813, ("GradScaler", "a scale", "nan"), GradScaler scaler; scaler.load_state_dict(with(scaler, "scale", kNan)))
V(814, ("GradScaler", "_growth_tracker", "1e+18"), GradScaler scaler;
  scaler.load_state_dict(with(scaler, "_growth_tracker", 1e18)))
V(815, ("GradScaler", "growth_interval", "1e+300"), GradScaler scaler;
  scaler.load_state_dict(with(scaler, "growth_interval", 1e300)))
V(816, ("GradScaler", "scale", "undefined"), GradScaler scaler; StateDict state = scaler.state_dict();
  state.set("scale", Tensor()); scaler.load_state_dict(state))
V(817, ("GradScaler", "loss", "undefined"), GradScaler().scale(Tensor()))
V(818, ("GradScaler", "moved from"), GradScaler scaler; GradScaler taken = std::move(scaler); scaler.get_scale())
V(819, ("GradScaler", "moved from"), GradScaler scaler; GradScaler taken = std::move(scaler); scaler.scale(ones({})))
FINE(
    820, GradScaler scaler; const double before = scaler.get_scale(); try {
      scaler.load_state_dict(with(scaler, "_growth_tracker", 1e18));
    } catch (const ValueError&) {} expect(scaler.get_scale() == before && scaler.is_enabled(), "the scale from before"))
FINE(1120, auto opt = sgd(); optim::LinearLR s(opt, {.start_factor = 0.1, .end_factor = 0, .total_iters = 10});
     for (int i = 0; i < 12; ++i) s.step(); expect(opt.lr() == 0))
FINE(1121, auto opt = sgd(); optim::OneCycleLR s(opt, .1, {.total_steps = 1, .anneal_strategy = "linear"}); s.step();
     expect(opt.lr() == 0 && opt.momentum() == 0.95))
FINE(1122, auto opt = sgd(); optim::CyclicLR s(opt, 0.1, 1, {.step_size_up = 2, .mode = "exp_range", .gamma = 2});
     for (int i = 0; i < 20; ++i) s.step(); expect(opt.momentum() >= 0 && opt.momentum() < 1))
