#include <tapir/tapir.h>

#include <cmath>

#include "../catch.h"
#include "../errors.h"
using namespace tapir;

namespace {
optim::SGD optimizer(double momentum = 0.9) {
  return optim::SGD({zeros({1}, {.requires_grad = true})}, {.lr = 1, .momentum = momentum});
}
}  // namespace

TEST_CASE("OneCycleLR rises, falls, cycles momentum the other way, and ends") {
  optim::SGD opt = optimizer();
  optim::OneCycleLR scheduler(opt, 1,
                              {.total_steps = 11, .pct_start = 5. / 11, .anneal_strategy = "linear", .div_factor = 10});
  opt.step();
  CHECK(opt.lr() == Approx(0.1));
  CHECK(opt.momentum() == Approx(0.95));
  for (int i = 0; i < 4; ++i) scheduler.step();
  CHECK(opt.lr() == Approx(1));
  CHECK(opt.momentum() == Approx(0.85));
  for (int i = 0; i < 6; ++i) scheduler.step();
  CHECK(opt.lr() == Approx(1e-5));
  scheduler.step();
  CHECK(error_of([&] { scheduler.step(); }).find("tried to step 12 times. The specified number of total steps is 11") !=
        std::string::npos);
}

TEST_CASE("CyclicLR takes a function of its own, rates for each group, and no momentum where there is none") {
  optim::SGD opt(
      {{.params = {zeros({1}, {.requires_grad = true})}}, {.params = {zeros({1}, {.requires_grad = true})}}});
  optim::CyclicLR scheduler(
      opt, {0.1, 0.2}, {0.3, 0.6},
      {.step_size_up = 2, .scale_fn = [](double cycle) { return 1 / cycle; }, .cycle_momentum = false});
  opt.step();
  std::vector<double> first;
  for (int i = 0; i < 7; ++i) first.push_back(opt.lr(0)), scheduler.step();
  const double want[] = {0.1, 0.2, 0.3, 0.2, 0.1, 0.15, 0.2};
  for (size_t i = 0; i < 7; ++i) CHECK(first[i] == Approx(want[i]));
  CHECK(opt.lr(1) == Approx(0.2 + 0.4 / 4));
}

TEST_CASE("BI-216 cycles that make no sense") {
  optim::SGD opt = optimizer();
  const auto one = [&](const optim::OneCycleLROptions& o) { return error_of([&] { optim::OneCycleLR(opt, 1, o); }); };
  CHECK(one({}).find("total_steps") != std::string::npos);
  CHECK(one({.total_steps = -5}).find("total_steps") != std::string::npos);
  CHECK(one({.total_steps = 5, .pct_start = 1.5}).find("pct_start") != std::string::npos);
  CHECK(one({.total_steps = 5, .anneal_strategy = "step"}).find("step") != std::string::npos);
  CHECK(one({.total_steps = 5, .div_factor = 0}).find("dividers") != std::string::npos);
  CHECK(error_of([&] { optim::OneCycleLR(opt, {1, 2, 3}, {.total_steps = 5}); }).find("max_lr") != std::string::npos);
  const auto cyclic = [&](const optim::CyclicLROptions& o) {
    return error_of([&] { optim::CyclicLR(opt, 0.1, 1, o); });
  };
  CHECK(cyclic({.step_size_up = 0}).find("step sizes") != std::string::npos);
  CHECK(cyclic({.mode = "square"}).find("square") != std::string::npos);
  CHECK(cyclic({.gamma = -1}).find("gamma") != std::string::npos);
  optim::Adadelta none({zeros({1}, {.requires_grad = true})});
  CHECK(error_of([&] { optim::CyclicLR(none, 0.1, 1); }).find("momentum") != std::string::npos);
}
