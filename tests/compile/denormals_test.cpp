// Denormal numbers in programs: Note [Denormal numbers] of core/denormals.h.
#include <tapir/core/denormals.h>

#include <algorithm>

#include "../errors.h"
#include "../modes.h"
#include "../optim/every_optimizer.h"
#include "steps.h"

using namespace tapir;
using namespace tapir_tests;

TEST_CASE("a compiled step of every optimizer leaves no denormal numbers") {
  for (const AnyOptimizer& any : every_optimizer) {
    CAPTURE(any.name);
    const bool matrix = std::string(any.name) == "Muon";
    const Shape shape = matrix ? Shape{12, 7} : Shape{84};  // Adafactor keeps all of a vector
    const auto run = [&](bool compiled) {
      manual_seed(5);
      Tensor p = randn(shape).requires_grad_();
      const auto opt = any.make({p});
      auto step = compile(
          [&](const Tensor& g) {
            p.set_grad(g * 1);
            opt->step();
          },
          {.enabled = compiled, .verify = 0});
      manual_seed(7);
      // Gradients whose squares are denormal and such as are just not denormal themselves; then none, so that moments decay.
      for (int i = 0; i < 30; ++i)
        step(i < 15 ? with_small(with_small(randn(shape), 1, Small::Squares), 2, Small::Edge) : zeros(shape));
      if (compiled) CHECK(replays_of(step) > 20);
      StateDict out = opt->state_dict();
      out.append("parameter", p.detach());
      return out;
    };
    const StateDict compiled = run(true), eager = run(false);
    for (auto& [name, t] : compiled) {
      CAPTURE(name);
      CHECK(denormals_in(t) == 0);
      CHECK(allclose(t.to(kFloat64), eager.at(name).to(kFloat64), {.rtol = 1e-4, .atol = 1e-7}));
    }
  }
}

TEST_CASE("set_flush_denormal between the calls of a compiled function: each call computes by the mode that is set") {
  const FlushDenormal off(false);
  const Tensor weight = full({1000}, 0x1p-100);
  auto product = compile(
      [&](const Tensor& x) {
        NoGrad guard;
        return x * 0x1p-20 + sum(weight * 0x1p-30);  // the second term is prepared: computed once for many calls
      },
      {.verify = 0});
  for (int i = 0; i < 60; ++i) {
    CAPTURE(i);
    const bool on = i / 10 % 2;
    Tensor large, small;
    {
      const FlushDenormal mode(on);
      large = product(full({1000}, 0x1p-100)), small = product(full({1000}, 0x1p-108));
    }
    CHECK(large[999].item() == (on ? 0x1p-120 : 0x1p-120 + 1000 * 0x1p-130));
    CHECK(small[999].item() == (on ? 0 : 0x1p-128 + 1000 * 0x1p-130));
  }
  CHECK(replays_of(product) > 10);
}

TEST_CASE("set_flush_denormal within a compiled function is refused") {
  auto f = compile([](const Tensor& x) {
    set_flush_denormal(true);
    return x + 1;
  });
  CHECK(error_of([&] { f(ones({2})); }).find("[set_flush_denormal] expected a call outside of compile()") == 0);
  CHECK(!get_flush_denormal());
}
