#include <tapir/tapir.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "../catch.h"
#include "../errors.h"
using namespace tapir;

namespace {
constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

optim::SGD optimizer(double first, double second) {
  return optim::SGD({{.params = {zeros({1}, {.requires_grad = true})}},
                     {.params = {zeros({1}, {.requires_grad = true})}, .lr = second}},
                    {.lr = first});
}
/// The rates of both groups at every step, the start included.
template <class S> std::vector<std::vector<double>> rates(S& scheduler, int steps) {
  std::vector<std::vector<double>> out{scheduler.get_last_lr()};
  for (int i = 0; i < steps; ++i) scheduler.step(), out.push_back(scheduler.get_last_lr());
  return out;
}
bool near(double a, double b) { return std::abs(a - b) <= 1e-12; }
}  // namespace

TEST_CASE("StepLR multiplies every step_size steps, each group from its own rate") {
  optim::SGD opt = optimizer(1, 0.5);
  optim::StepLR scheduler(opt, 2, {.gamma = 0.1});
  const double want[] = {1, 1, 0.1, 0.1, 0.01, 0.01, 0.001};
  const auto got = rates(scheduler, 6);
  for (size_t i = 0; i < 7; ++i) CHECK((near(got[i][0], want[i]) && near(got[i][1], want[i] / 2)));
  CHECK(opt.lr(0) == got[6][0]);
  CHECK(scheduler.last_epoch() == 6);
  optim::SGD other = optimizer(1, 1);
  optim::StepLR tenth(other, 1);
  CHECK(near(rates(tenth, 1)[1][0], 0.1));
}

TEST_CASE("CosineAnnealingLR follows half a cosine down and up again") {
  optim::SGD opt = optimizer(1, 0.5);
  optim::CosineAnnealingLR scheduler(opt, 4, {.eta_min = 0.2});
  const auto got = rates(scheduler, 11);
  for (size_t t = 0; t < got.size(); ++t) {
    const double part = (1 + std::cos(std::numbers::pi * double(t) / 4)) / 2;
    CHECK(near(got[t][0], 0.2 + 0.8 * part));
    CHECK(near(got[t][1], 0.2 + 0.3 * part));
  }
}

TEST_CASE("a schedule goes on from its state") {
  optim::SGD a = optimizer(1, 0.5), b = optimizer(1, 0.5);
  optim::CosineAnnealingLR one(a, 7), two(b, 7);
  for (int i = 0; i < 3; ++i) one.step();
  b.load_state_dict(a.state_dict());
  two.load_state_dict(one.state_dict());
  for (int i = 0; i < 6; ++i) {
    one.step(), two.step();
    CHECK(one.get_last_lr() == two.get_last_lr());
  }
  optim::SGD single({zeros({1}, {.requires_grad = true})});
  optim::StepLR third(single, 1);
  CHECK(error_of([&] { third.load_state_dict(one.state_dict()); }).find("groups") != std::string::npos);
}

TEST_CASE("BI-216 schedules of no period, negative factors, numbers that are none") {
  optim::SGD opt = optimizer(1, 1);
  for (const int64_t bad : {0, -3}) {
    CHECK(error_of([&] { optim::StepLR(opt, bad); }).find("step_size") != std::string::npos);
    CHECK(error_of([&] { optim::CosineAnnealingLR(opt, bad); }).find("T_max") != std::string::npos);
  }
  for (const double bad : {-0.5, kNan, kInf})
    CHECK(error_of([&] { optim::StepLR(opt, 1, {.gamma = bad}); }).find("gamma") != std::string::npos);
  for (const double bad : {-0.5, kNan, kInf})
    CHECK(error_of([&] { optim::CosineAnnealingLR(opt, 5, {.eta_min = bad}); }).find("eta_min") != std::string::npos);
}

TEST_CASE("LinearLR to 0 ends at exactly 0, and is above it before") {
  for (const double start : {1., 0.1, 1. / 3})
    for (int64_t n = 1; n <= 40; ++n) {
      INFO(start << " " << n);
      optim::SGD opt = optimizer(0.1, 0.3);
      optim::LinearLR scheduler(opt, {.start_factor = start, .end_factor = 0, .total_iters = n});
      opt.step();
      const auto all = rates(scheduler, int(n) + 2);
      for (size_t i = 0; i < size_t(n); ++i) CHECK((all[i][0] > 0 && all[i][1] > 0));
      for (size_t i = size_t(n); i < all.size(); ++i) CHECK(all[i] == std::vector<double>{0, 0});
    }
}
