#include <tapir/tapir.h>

#include <cmath>
#include <limits>

#include "../catch.h"
#include "../errors.h"
using namespace tapir;

namespace {
optim::SGD optimizer() {
  optim::SGD opt({zeros({1}, {.requires_grad = true})}, {.lr = 1});
  opt.step();
  return opt;
}
}  // namespace

TEST_CASE("ReduceLROnPlateau waits, reduces, cools down and stops at min_lr; a NaN is no improvement") {
  optim::SGD opt = optimizer();
  optim::ReduceLROnPlateau scheduler(opt, {.factor = 0.5, .patience = 1, .cooldown = 1, .min_lr = 0.3});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double metrics[] = {3, 2, 2, nan, 2, 2, 2, 1, 1, 1}, want[] = {1, 1, 1, 0.5, 0.5, 0.5, 0.3, 0.3, 0.3, 0.3};
  for (int i = 0; i < 10; ++i) {
    scheduler.step(metrics[i]);
    CHECK(opt.lr() == Approx(want[i]));
  }
  CHECK(scheduler.state_dict().at("best").item() == 1);
  CHECK(scheduler.last_epoch() == 10);
}

TEST_CASE("a warm-up and a decay in sequence, resumed in the middle") {
  const auto run = [](bool resumed) {
    optim::SGD opt = optimizer();
    optim::LinearLR warmup(opt, {.start_factor = 0.1, .total_iters = 5});
    optim::CosineAnnealingLR decay(opt, 10);
    optim::SequentialLR scheduler(opt, {&warmup, &decay}, {5});
    for (int i = 0; i < 7; ++i) scheduler.step();
    if (!resumed) {
      for (int i = 0; i < 6; ++i) scheduler.step();
      return opt.lr();
    }
    optim::SGD again = optimizer();
    optim::LinearLR warmup2(again, {.start_factor = 0.1, .total_iters = 5});
    optim::CosineAnnealingLR decay2(again, 10);
    optim::SequentialLR scheduler2(again, {&warmup2, &decay2}, {5});
    again.load_state_dict(opt.state_dict());
    scheduler2.load_state_dict(scheduler.state_dict());
    for (int i = 0; i < 6; ++i) scheduler2.step();
    return again.lr();
  };
  CHECK(run(false) == run(true));
  CHECK(run(false) == Approx((1 + std::cos(std::numbers::pi * 0.8)) / 2));
}

TEST_CASE("chained schedules both act; lambdas count epochs") {
  optim::SGD opt = optimizer();
  optim::LambdaLR lambda(opt, [](int64_t epoch) { return 1. / double(epoch + 1); });
  lambda.step();
  CHECK(opt.lr() == Approx(0.5));
  optim::SGD other = optimizer();
  optim::ConstantLR constant(other, {.factor = 0.5, .total_iters = 2});
  optim::MultiplicativeLR multiplied(other, [](int64_t epoch) { return epoch == 3 ? 0.1 : 1.0; });
  optim::ChainedScheduler scheduler({&constant, &multiplied});
  const double want[] = {0.5, 0.5, 1, 0.1};
  for (int i = 0; i < 4; ++i) {
    CHECK(other.lr() == Approx(want[i]));
    scheduler.step();
  }
}

TEST_CASE("BI-216 compound schedules that make no sense") {
  optim::SGD opt = optimizer(), other = optimizer();
  optim::StepLR a(opt, 1), b(opt, 2), foreign(other, 1);
  optim::ReduceLROnPlateau plateau(opt);
  const auto sequence = [&](std::vector<optim::LRScheduler*> s, std::vector<int64_t> m) {
    return error_of([&] { optim::SequentialLR(opt, s, m); });
  };
  CHECK(sequence({&a, &b}, {}).find("milestones") != std::string::npos);
  CHECK(sequence({&a, &b, &a}, {5, 3}).find("sorted") != std::string::npos);
  CHECK(sequence({&a, &foreign}, {3}).find("index 1") != std::string::npos);
  CHECK(sequence({&a, &plateau}, {3}).find("ReduceLROnPlateau") != std::string::npos);
  CHECK(sequence({}, {}).find("at least one") != std::string::npos);
  CHECK(error_of([&] { optim::ChainedScheduler({}); }).find("at least one") != std::string::npos);
  CHECK(error_of([&] { optim::ReduceLROnPlateau(opt, {.factor = 1}); }).find("factor") != std::string::npos);
  CHECK(error_of([&] { optim::ReduceLROnPlateau(opt, {.mode = "best"}); }).find("mode") != std::string::npos);
  CHECK(error_of([&] { optim::ReduceLROnPlateau(opt, {.patience = -1}); }).find("patience") != std::string::npos);
  CHECK(error_of([&] { optim::MultiStepLR(opt, {5, 3}); }).find("sorted") != std::string::npos);
  CHECK(error_of([&] { optim::ExponentialLR(opt, -0.5); }).find("gamma") != std::string::npos);
  CHECK(error_of([&] { optim::LinearLR(opt, {.start_factor = 0}); }).find("start_factor") != std::string::npos);
  CHECK(error_of([&] { optim::PolynomialLR(opt, {.total_iters = 0}); }).find("total_iters") != std::string::npos);
  CHECK(error_of([&] { optim::CosineAnnealingWarmRestarts(opt, 0); }).find("T_0") != std::string::npos);
}
