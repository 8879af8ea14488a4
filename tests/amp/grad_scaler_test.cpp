#include <tapir/tapir.h>

#include <cmath>
#include <functional>

#include "../catch.h"

using namespace tapir;

static std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const ValueError& e) {
    return e.what();
  }
  return "no error";
}

static Tensor parameter(const std::vector<float>& values) { return tensor(values).requires_grad_(); }

TEST_CASE("GradScaler: calls out of order are refused (BI-219)") {
  Tensor w = parameter({1, 2});
  optim::SGD opt({w}, {.lr = 0.1});
  amp::GradScaler scaler;
  CHECK(error_of([&] { scaler.update(); }).find("no inf checks were recorded prior to update()") != std::string::npos);
  scaler.scale((w * w).sum()).backward();
  scaler.unscale_(opt);
  CHECK(error_of([&] { scaler.unscale_(opt); }).find("unscale_() has already been called on this optimizer") !=
        std::string::npos);
  scaler.step(opt);
  CHECK(error_of([&] { scaler.step(opt); }).find("step() has already been called since the last update()") !=
        std::string::npos);
  CHECK(error_of([&] { scaler.load_state_dict({}); }).find("the state is empty") != std::string::npos);
  scaler.update();
  CHECK(w[0].item() == Approx(0.8));
}

TEST_CASE("GradScaler: a step with an infinity changes neither parameters nor state, of that optimizer alone") {
  Tensor a = parameter({1, 2}), b = parameter({3});
  optim::Adam first({a}), second({b});
  amp::GradScaler scaler({.init_scale = 4, .growth_interval = 1});
  const auto backward = [&](double factor) {
    a.set_grad({}), b.set_grad({});
    scaler.scale((a * factor).sum() + (b * 2).sum()).backward();
    scaler.step(first), scaler.step(second);
  };
  backward(1);
  scaler.update();
  CHECK(scaler.get_scale() == 8);
  const Tensor was = a.detach().clone(), b_was = b.detach().clone();
  const double steps = first.state_dict().at("state.0.step").item();
  backward(INFINITY);
  CHECK(scaler.skipped(first));
  CHECK(!scaler.skipped(second));
  scaler.update();
  CHECK(equal(a.detach(), was));
  CHECK(!equal(b.detach(), b_was));
  CHECK(first.state_dict().at("state.0.step").item() == steps);
  CHECK(second.state_dict().at("state.0.step").item() == 2);
  CHECK(scaler.get_scale() == 4);
  backward(1);
  scaler.update();
  CHECK(!equal(a.detach(), was));
}

TEST_CASE("GradScaler: accumulated gradients, clipped, equal those of a step without a scaler") {
  Tensor a = parameter({1, -2, 3}), b = parameter({1, -2, 3});
  optim::SGD with({a}, {.lr = 0.1, .momentum = 0.9}), without({b}, {.lr = 0.1, .momentum = 0.9});
  amp::GradScaler scaler({.init_scale = 1024});
  for (int step = 0; step < 3; ++step) {
    for (int part = 1; part <= 2; ++part) {
      scaler.scale((a * a).sum() * part).backward();
      ((b * b).sum() * part).backward();
    }
    scaler.unscale_(with);
    optim::clip_grad_norm_({a}, 1), optim::clip_grad_norm_({b}, 1);
    scaler.step(with), without.step();
    scaler.update();
    with.zero_grad(), without.zero_grad();
    CHECK(allclose(a.detach(), b.detach(), {.rtol = 1e-6}));
  }
}

TEST_CASE("GradScaler: a step that clips is unscale_, clip_grad_norm_ and step, and leaves the gradients alone") {
  for (bool enabled : {true, false})
    for (bool unscaled : {false, true})
      for (float factor : {1e-3f, 1.f, 1e4f, INFINITY}) {
        CAPTURE(enabled, unscaled, factor);
        Tensor a = parameter({1, 2, 3}), b = parameter({1, 2, 3});
        optim::SGD first({a}, {.lr = 0.1, .momentum = 0.9}), second({b}, {.lr = 0.1, .momentum = 0.9});
        amp::GradScaler one({.init_scale = 8, .enabled = enabled}), other({.init_scale = 8, .enabled = enabled});
        for (float f : {1.f, factor}) {
          first.zero_grad(), second.zero_grad();
          one.scale((a * a * f).sum()).backward(), other.scale((b * b * f).sum()).backward();
          if (unscaled) one.unscale_(first);
          const Tensor before = a.grad().clone();
          one.step(first, 2);
          CHECK(equal(a.grad(), before));
          other.unscale_(second);
          optim::clip_grad_norm_({b}, 2);
          other.step(second);
          if (enabled) CHECK(one.skipped(first) == std::isinf(f));
          one.update(), other.update();
        }
        CHECK(one.get_scale() == other.get_scale());
        if (enabled || !std::isinf(factor)) CHECK(allclose(a.detach(), b.detach(), {.rtol = 1e-6, .atol = 0}));
      }
  Tensor w = parameter({1});
  optim::SGD opt({w});
  CHECK(error_of([&] { amp::GradScaler().step(opt, -1); }) == "[GradScaler] expected max_norm of at least 0, got -1");
}

TEST_CASE("GradScaler: disabled, and on bfloat16, it lets everything through (BI-222)") {
  Tensor w = parameter({1});
  optim::SGD opt({w}, {.lr = 1});
  amp::GradScaler off({.enabled = false});
  off.scale(w.sum()).backward();
  off.unscale_(opt), off.step(opt), off.update();
  CHECK(w.item() == 0);
  CHECK(off.get_scale() == 1);
  CHECK(off.state_dict().empty());
  Tensor v = full({2}, 1.0, {.dtype = kBFloat16}).requires_grad_();
  optim::SGD other({v}, {.lr = 1});
  amp::GradScaler scaler;
  scaler.scale(v.sum()).backward();
  scaler.step(other);
  scaler.update();
  CHECK(v.sum().item() == 0);
}

TEST_CASE("GradScaler: options and state") {
  CHECK(error_of([&] { amp::GradScaler({.growth_factor = 1}); }).find("growth_factor above 1, got 1") !=
        std::string::npos);
  CHECK(error_of([&] { amp::GradScaler({.backoff_factor = 1}); }).find("expected a backoff_factor in (0, 1), got 1") !=
        std::string::npos);
  amp::GradScaler from({.init_scale = 32, .growth_interval = 7}), to;
  to.load_state_dict(from.state_dict());
  CHECK(to.get_scale() == 32);
  CHECK(to.state_dict().at("growth_interval").item() == 7);
}

TEST_CASE("GradScaler: a state that is loaded in the middle of a step begins a new one") {
  Tensor w = parameter({1});
  optim::SGD opt({w}, {.lr = 0.1});
  amp::GradScaler scaler({.init_scale = 8});
  const StateDict before = scaler.state_dict();
  scaler.scale(w.sum()).backward();
  scaler.step(opt);  // an error comes before update(), and the program goes back to its checkpoint
  scaler.load_state_dict(before);
  opt.zero_grad();
  scaler.scale(w.sum()).backward();
  scaler.unscale_(opt);
  scaler.step(opt);
  scaler.update();
  CHECK(scaler.get_scale() == 8);
  CHECK(w[0].item() == Approx(0.8));
}

TEST_CASE("GradScaler: float16 training recovers from a planted overflow") {
  manual_seed(0);
  nn::Sequential net(nn::Linear(8, 32), nn::ReLU(), nn::Linear(32, 1));
  optim::Adam opt(net.parameters(), {.lr = 1e-2});
  amp::GradScaler scaler({.init_scale = 65536, .growth_interval = 50});
  const Tensor x = randn({64, 8}), y = (x * x).sum(1, {.keepdim = true}) * 0.1;
  double first = 0, last = 0;
  int skipped = 0;
  for (int step = 0; step < 120; ++step) {
    opt.zero_grad();
    Tensor loss;
    {
      amp::Autocast autocast(kCPU, {.dtype = kFloat16});
      loss = mse_loss(net(x), y);
    }
    scaler.scale(step == 60 ? loss * 1e30 : loss).backward();
    scaler.step(opt);
    skipped += scaler.skipped(opt);
    scaler.update();
    last = loss.item();
    if (step == 0) first = last;
  }
  CHECK(skipped >= 1);
  CHECK(last < 0.2 * first);
}

TEST_CASE("GradScaler: moves, and is not copied, as optimizers are not") {
  static_assert(!std::is_copy_constructible_v<amp::GradScaler> && !std::is_copy_assignable_v<amp::GradScaler>);
  static_assert(std::is_nothrow_move_constructible_v<amp::GradScaler>);
  amp::GradScaler scaler({.init_scale = 8}), taken = std::move(scaler);
  CHECK(taken.get_scale() == 8);
  scaler = amp::GradScaler({.init_scale = 4});
  CHECK(scaler.get_scale() == 4);
}
