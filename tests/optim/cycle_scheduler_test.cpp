#include <tapir/tapir.h>

#include <cmath>
#include <numbers>

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

TEST_CASE("SWALR goes to the rate of averaging and stays there") {
  const auto rates = [](const optim::PerGroup& swa_lr, const optim::SWALROptions& options, int changed) {
    optim::SGD opt({{.params = {zeros({1}, {.requires_grad = true})}, .lr = 1},
                    {.params = {zeros({1}, {.requires_grad = true})}, .lr = 0.5}});
    optim::SWALR scheduler(opt, swa_lr, options);
    opt.step();
    std::vector<double> out = scheduler.get_last_lr();
    for (int i = 0; i < 5; ++i) {
      if (i == changed) opt.set_lr(0.7, 0);
      scheduler.step();
      for (const double lr : scheduler.get_last_lr()) out.push_back(lr);
    }
    return out;
  };
  const auto check_rates = [](const std::vector<double>& got, const std::vector<double>& want) {  // PyTorch's
    for (size_t i = 0; i < want.size(); ++i) CHECK(got.at(i) == Approx(want[i]).epsilon(1e-9));
  };
  check_rates(rates({0.1, 0.05}, {.anneal_epochs = 4}, -1),
              {1, 0.5, 0.8681980515, 0.4340990258, 0.55, 0.275, 0.2318019485, 0.1159009742, 0.1, 0.05, 0.1, 0.05});
  check_rates(rates(0.2, {.anneal_epochs = 3, .anneal_strategy = "linear"}, -1),
              {1, 0.5, 0.7333333333, 0.4, 0.4666666667, 0.3, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2});
  check_rates(rates(0.2, {.anneal_epochs = 0}, -1), {0.2, 0.2, 0.2, 0.2});
  check_rates(rates(0.05, {.anneal_epochs = 4}, 2),
              {1, 0.5, 0.8608757211, 0.4340990258, 0.525, 0.275, 0.2403805922, 0.1159009742, 0.05, 0.05, 0.05, 0.05});
  optim::SGD opt = optimizer(), other = optimizer();
  optim::SWALR scheduler(opt, 0.1, {.anneal_epochs = 4}), later(other, 0.1);
  opt.step(), scheduler.step(), scheduler.step();
  later.load_state_dict(scheduler.state_dict());
  other.set_lr(opt.lr());
  scheduler.step(), later.step();
  CHECK(later.last_epoch() == 3);
  CHECK(later.get_last_lr() == scheduler.get_last_lr());
  CHECK_THROWS_AS(optim::SWALR(opt, 0.1, {.anneal_epochs = -1}), ValueError);
  CHECK_THROWS_AS(optim::SWALR(opt, 0.1, {.anneal_strategy = "exp"}), ValueError);
  CHECK_THROWS_AS(optim::SWALR(opt, {0.1, 0.2}), ValueError);
}

TEST_CASE("OneCycleLR with nothing left to fall in") {
  for (const int64_t n : {1, 2, 5}) {
    optim::SGD opt = optimizer();
    optim::OneCycleLR scheduler(opt, 1, {.total_steps = n, .pct_start = 1});
    opt.step();
    for (int64_t i = 0; i < n; ++i) {
      CHECK(opt.lr() ==
            Approx(n == 1 ? 1 : 0.04 + 0.96 * (1 - std::cos(std::numbers::pi * double(i) / double(n - 1))) / 2));
      scheduler.step();
    }
    CHECK(opt.lr() == Approx(0.04 / 1e4));  // one more than there are: the end
  }
}

TEST_CASE("momentum stays in [0, 1) where a cycle overshoots") {
  optim::SGD opt = optimizer();
  optim::OneCycleLR one(opt, 0.1, {.total_steps = 1, .anneal_strategy = "linear"});
  opt.step();
  CHECK(opt.momentum() == Approx(0.95));
  one.step();
  CHECK(opt.momentum() == 0.95);
  CHECK(opt.lr() == 0);
  optim::SGD other = optimizer();
  optim::OneCycleLR ten(other, 0.1, {.total_steps = 10, .anneal_strategy = "linear"});
  other.step();
  for (int i = 0; i < 10; ++i) ten.step();
  CHECK(other.momentum() == Approx(0.85 + 0.1 * 8 / 7));  // PyTorch's: what can be used stays
  optim::SGD wide = optimizer();
  optim::CyclicLR cyclic(wide, 0.1, 1, {.step_size_up = 2, .mode = "exp_range", .gamma = 2});
  wide.step();
  std::vector<double> momenta, rates;
  for (int i = 0; i < 7; ++i) momenta.push_back(wide.momentum()), rates.push_back(wide.lr()), cyclic.step();
  const double want[] = {0.9, 0.8, 0.5, 0.5, 0.9, 0, 0};  // PyTorch's, but for -0.7 and -5.5
  for (size_t i = 0; i < 7; ++i) CHECK(momenta[i] == Approx(want[i]).margin(1e-12));
  CHECK(rates[6] == Approx(0.1 + 0.9 * 64));
}
