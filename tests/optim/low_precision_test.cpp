// Note [Low precision] of optim/optimizer.h.
#include <tapir/core/generator.h>
#include <tapir/ops/ops.h>
#include <tapir/optim/adagrad.h>
#include <tapir/optim/adam.h>
#include <tapir/optim/sgd.h>
#include <tapir/optim/sign.h>

#include <cmath>

#include "../catch.h"
#include "../errors.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

Tensor parameter(const Shape& shape, double value, DType dtype = kBFloat16) {
  return full(shape, value, {.dtype = dtype}).requires_grad_();
}
double mean_of(const Tensor& x) { return mean(x.detach().to(kFloat64)).item(); }

}  // namespace

TEST_CASE("updates too small for bfloat16 are lost, kept by a copy, or kept in the mean") {
  // 1 - 1e-3 is 1 in bfloat16, whose step there is 2^-8 below 1
  const auto after = [](const std::string& mode, int64_t steps) {
    Tensor p = parameter({20000}, 1);
    manual_seed(3);
    optim::SGD opt({p}, {.lr = 1e-3, .low_precision = mode});
    for (int64_t i = 0; i < steps; ++i) p.set_grad(ones_like(p.detach())), opt.step();
    return p.detach();
  };
  CHECK(mean_of(after("nearest", 20)) == 1);
  CHECK(mean_of(after("master", 20)) == Approx(0.98).margin(2e-3));
  const Tensor once = after("stochastic", 1), many = after("stochastic", 20);
  CHECK(mean_of(once) == Approx(0.999).margin(2e-4));
  CHECK(mean_of(many) == Approx(0.98).margin(5e-4));
  const auto values = once.to(kFloat32).to_vector<float>();  // the two neighbours and nothing else
  CHECK(std::all_of(values.begin(), values.end(), [](float v) { return v == 1 || v == 1 - 0x1p-8f; }));
  CHECK(equal(after("stochastic", 3), after("stochastic", 3)));  // manual_seed fixes it
}

TEST_CASE("with a master copy every optimizer is the float32 one, rounded at the end") {
  const auto check_with = [](auto make) {
    manual_seed(1);
    const Tensor start = randn({7, 5}).to(kBFloat16);
    Tensor low = start.clone().requires_grad_(), wide = start.to(kFloat32).requires_grad_();
    auto a = make(low, "master");
    auto b = make(wide, "nearest");
    for (int i = 0; i < 5; ++i) {
      const Tensor g = randn({7, 5}).to(kBFloat16);
      low.set_grad(g), wide.set_grad(g.to(kFloat32));
      a.step(), b.step();
      CHECK(equal(low.detach(), wide.detach().to(kBFloat16)));
    }
    const StateDict state = a.state_dict();
    CHECK(equal(state.at("state.0.master_param"), wide.detach()));
    for (auto& [name, t] : state)
      if (name.starts_with("state.0.") && !name.ends_with("step")) CHECK(t.dtype() == kFloat32);
  };
  check_with(
      [](Tensor p, std::string mode) { return optim::SGD({p}, {.lr = 0.1, .momentum = 0.9, .low_precision = mode}); });
  check_with([](Tensor p, std::string mode) { return optim::AdamW({p}, {.lr = 0.01, .low_precision = mode}); });
  check_with([](Tensor p, std::string mode) {
    return optim::Adam({p}, {.lr = 0.01, .amsgrad = true, .low_precision = mode});
  });
  check_with([](Tensor p, std::string mode) { return optim::RMSprop({p}, {.lr = 0.01, .low_precision = mode}); });
  check_with([](Tensor p, std::string mode) { return optim::Adagrad({p}, {.low_precision = mode}); });
  check_with([](Tensor p, std::string mode) { return optim::Lion({p}, {.low_precision = mode}); });
}

TEST_CASE("a run with master copies resumes bitwise; a parameter that was written to is the copy's new value") {
  manual_seed(1);
  const auto gradient = [](int i) { return (randn({4}) * double(i + 1)).to(kBFloat16); };
  Tensor p = parameter({4}, 1);
  optim::AdamW opt({p}, {.lr = 1e-3, .low_precision = "master"});
  for (int i = 0; i < 3; ++i) p.set_grad(gradient(i)), opt.step();
  Tensor q = parameter({4}, 0);
  optim::AdamW other({q}, {.lr = 1, .low_precision = "master"});
  const StateDict state = opt.state_dict();
  other.load_state_dict(state);
  {
    NoGrad guard;
    q.copy_(p);  // the model after the optimizer
  }
  for (int i = 0; i < 20; ++i) {
    const Tensor g = gradient(i);
    p.set_grad(g), q.set_grad(g);
    opt.step(), other.step();
  }
  CHECK(equal(opt.state_dict().at("state.0.master_param"), other.state_dict().at("state.0.master_param")));
  CHECK(equal(p.detach(), q.detach()));
  {
    NoGrad guard;
    p.fill_(5);
  }
  p.set_grad(zeros_like(p.detach()));
  opt.step();
  CHECK(mean_of(p) == Approx(5).margin(0.05));
  StateDict wrong = opt.state_dict();
  wrong.set("state.0.master_param", ones({3}));
  CHECK_THROWS_AS(opt.load_state_dict(wrong), ValueError);
}

TEST_CASE(
    "elements that were written to lose their copy, the others keep it; float32 parameters beside them have none") {
  const double exact = 1 - 1e-3;  // 1 in bfloat16
  Tensor p = parameter({5}, 1), q = parameter({5}, 1, kFloat32);
  optim::SGD opt({p, q}, {.lr = 1e-3, .low_precision = "master"});
  const auto step = [&](float gradient) {
    for (const Tensor& x : {p, q}) Tensor(x).set_grad(full({5}, gradient, {.dtype = x.dtype()}));
    opt.step();
  };
  step(1);
  {
    NoGrad guard;
    p[1] = 3, p[2] = NAN, p[3] = 1;  // the last one is what was there
  }
  step(0);
  const StateDict state = opt.state_dict();
  CHECK(!state.contains("state.1.master_param"));
  CHECK(q.detach()[0].item() == Approx(exact));
  const auto copies = state.at("state.0.master_param").to_vector<float>();
  CHECK(copies[0] == Approx(exact));
  CHECK(copies[1] == 3);
  CHECK(std::isnan(copies[2]));
  CHECK(copies[3] == Approx(exact));
  CHECK(p.detach()[1].item() == 3);
  CHECK(std::isnan(p.detach()[2].item()));
}

TEST_CASE("a skipped step changes nothing in any mode, and strided parameters are served") {
  for (const char* mode : {"nearest", "stochastic", "master"}) {
    Tensor p = randn({6, 4}).to(kBFloat16).transpose(0, 1).detach().requires_grad_();
    const Tensor before = p.detach().clone();
    optim::Adam opt({p}, {.lr = 0.5, .low_precision = mode});
    p.set_grad(ones_like(before));
    opt.step({.inv_scale = {}, .found_inf = ones({})});
    CHECK(equal(p.detach(), before));
    opt.step();
    CHECK(std::abs(mean_of(p) - mean_of(before) + 0.5) < 0.01);
  }
}

TEST_CASE("float32 parameters are as without the option; what cannot be is refused") {
  Tensor p = parameter({3}, 1, kFloat32), q = parameter({3}, 1, kFloat32);
  optim::SGD a({p}, {.lr = 0.1, .low_precision = "stochastic"}), b({q}, {.lr = 0.1});
  p.set_grad(full({3}, 0.3)), q.set_grad(full({3}, 0.3));
  a.step(), b.step();
  CHECK(equal(p.detach(), q.detach()));
  CHECK_THROWS_AS(optim::SGD({p}, {.low_precision = "up"}), ValueError);
  Tensor half = parameter({3}, 1, kFloat16);
  optim::SGD c({half}, {.lr = 0.1, .low_precision = "stochastic"});
  half.set_grad(ones_like(half.detach()));
  CHECK_THROWS_AS(c.step(), ValueError);
  CHECK(a.text_options() == std::vector<std::pair<std::string, std::string>>{{"low_precision", "stochastic"}});
  CHECK(b.text_options().empty());
}
