// In a step denormal numbers count as 0: Note [Denormal numbers] of core/denormals.h.
#include <tapir/core/denormal_bits.h>

#include <map>

#include "../catch.h"
#include "../errors.h"
#include "../modes.h"
#include "../same_bits.h"
#include "every_optimizer.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE(
    "denormal numbers count as 0 in a step of every optimizer, and other numbers are what they are without them") {
  for (const DType dtype : {kFloat32, kBFloat16})
    for (const AnyOptimizer& any : every_optimizer) {
      CAPTURE(any.name, std::string(name_of(dtype)));
      const StateDict small = stepped(any, dtype, kCPU, Small::Denormal), zero = stepped(any, dtype, kCPU, Small::Zero);
      const StepsCompared both = compared(small, zero);
      CHECK(both.different == 0);
      CHECK(both.denormal == 0);
      CHECK(compared(stepped(any, dtype, kCPU, Small::Squares), zero).denormal == 0);
    }
}

TEST_CASE("float64 keeps its denormal numbers, float16 all of its own") {
  for (const DType dtype : {kFloat64, kFloat16}) {
    const double tiny = dtype == kFloat64 ? 0x1p-1040 : 0x1p-24;
    Tensor p = full({9}, tiny, {.dtype = dtype, .requires_grad = true});
    optim::SGD opt({p}, {.lr = 1, .momentum = 0.5});
    p.set_grad(full({9}, tiny, {.dtype = dtype}));
    opt.step();
    CHECK(opt.state_dict().at("state.0.momentum_buffer")[8].item() == tiny);
    CHECK(p[8].item() == 0);  // tiny - tiny
    p.set_grad(zeros({9}, {.dtype = dtype}));
    for (int i = 0; i < 2; ++i) opt.step();
    CHECK(p[8].item() == (dtype == kFloat64 ? -0.75 * tiny : 0));  // half of the smallest float16 rounds to 0
  }
}

TEST_CASE("a step with denormal numbers is the same for any number of threads") {
  std::map<std::string, StateDict> first;
  for (const int threads : {1, 3}) {
    const ThreadCount guard(threads);
    for (const AnyOptimizer& any : every_optimizer) {
      if (std::string(any.name) == "Muon") continue;  // its products are oneDNN's: equal for equal numbers of threads
      CAPTURE(any.name);
      const StateDict now = stepped(any, kFloat32, kCPU, Small::Denormal);
      if (threads == 1) first[any.name] = now;
      else
        for (auto& [name, t] : now) CHECK(same_bits(t, first[any.name].at(name)));
    }
  }
}

TEST_CASE("after a step the thread computes with denormal numbers as before, after one that threw too") {
  const auto check_restored = [&](auto&& f) {
    for (const uint64_t bits : {uint64_t(0), detail::kFlushBits}) {
      const detail::DenormalBits mode(bits);
      f();
      CHECK(detail::denormal_bits() == bits);
      CHECK(!modes.flush_denormals);
    }
  };
  for (const AnyOptimizer& any : every_optimizer) {
    CAPTURE(any.name);
    Tensor p = ones({4, 6}, {.requires_grad = true});
    const auto opt = any.make({p});
    p.set_grad(ones({4, 6}));
    check_restored([&] { opt->step(); });
  }
  Tensor p = ones({4, 6}, {.requires_grad = true});
  p.set_grad(ones({4, 6}));
  const Tensor wrong = zeros({5});  // does not fit beside the parameter, which a step learns inside
  optim::Muon muon({p});
  optim::Adafactor adafactor({p});
  check_restored([&] { CHECK(!error_of([&] { muon.step({.inv_scale = {}, .found_inf = wrong}); }).empty()); });
  check_restored([&] { CHECK(!error_of([&] { adafactor.step({.inv_scale = {}, .found_inf = wrong}); }).empty()); });
  check_restored([&] {
    const TensorView none[1] = {p.detach()};
    const Tensor lr = ones({}), step = zeros({}, {.dtype = kInt64});
    CHECK_THROWS_AS(backend(kCPU).optimizer_step(context(kCPU), {.values = none,
                                                                 .grads = none,
                                                                 .first = none,
                                                                 .second = none,
                                                                 .lr = lr,
                                                                 .step = step,
                                                                 .params = {.op = OptimizerOp(99)}}),
                    InternalError);
  });
}

TEST_CASE("an eps that is denormal, or whose square is, still keeps gradients of 0 from dividing by 0") {
  const auto check_stays = [](auto make) {
    Tensor p = ones({4, 6}, {.requires_grad = true});
    auto opt = make(p);
    for (int i = 0; i < 2; ++i) p.set_grad(zeros({4, 6})), opt.step();
    CHECK(p[0][0].item() == 1);
  };
  for (const double eps : {1e-38, 1e-42}) {
    check_stays([&](const Tensor& p) { return optim::Adam({p}, {.eps = eps}); });
    check_stays([&](const Tensor& p) { return optim::Adamax({p}, {.eps = eps}); });
    check_stays([&](const Tensor& p) { return optim::NAdam({p}, {.eps = eps}); });
    check_stays([&](const Tensor& p) { return optim::Adagrad({p}, {.eps = eps}); });
    check_stays([&](const Tensor& p) { return optim::Adadelta({p}, {.eps = eps}); });
    check_stays([&](const Tensor& p) { return optim::RMSprop({p}, {.eps = eps}); });
    check_stays([&](const Tensor& p) { return optim::Adafactor({p}, {.eps = {1e-20, 1e-3}, .weight_decay = 0}); });
  }
}

TEST_CASE("Rprop turns where signs do, however small the gradients are") {
  Tensor p = zeros({1}, {.requires_grad = true});
  optim::Rprop opt({p}, {.lr = 0.01});
  for (int i = 0; i < 4; ++i) p.set_grad(full({1}, 1e-25)), opt.step();
  CHECK(opt.state_dict().at("state.0.step_size")[0].item() == Approx(0.01 * 1.2 * 1.2 * 1.2));
}

TEST_CASE("LBFGS takes denormal gradients for 0") {
  const auto run = [](double tiny) {
    Tensor p = zeros({8}, {.requires_grad = true});
    const Tensor slope = cat({full({4}, tiny), full({4}, -1.0)});
    optim::LBFGS opt({p}, {.max_iter = 4, .line_search_fn = "strong_wolfe"});
    const auto closure = [&] {
      opt.zero_grad();
      Tensor loss = sum(slope * p) + 0.5 * sum(square(narrow(p, 0, 4, 4)) * tensor({1.f, 2.f, 3.f, 4.f}));
      loss.backward();
      return loss;
    };
    for (int i = 0; i < 2; ++i) opt.step(closure);
    StateDict out = opt.state_dict();
    out.append("parameter", p.detach());
    return out;
  };
  const StateDict small = run(0x1p-130), zero = run(0);
  CHECK(zero.at("parameter")[7].item() == Approx(0.25).epsilon(1e-3));
  CHECK(compared(small, zero).different == 0);
  CHECK(compared(small, zero).denormal == 0);
}
