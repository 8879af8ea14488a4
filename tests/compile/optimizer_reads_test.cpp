// What an optimizer tells the host inside of a compiled function, and what it asks of its parameters.
#include "../core/messages.h"
#include "../stderr_of.h"
#include "steps.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

constexpr const char* kVaries = "did not do what is replayed";

/// Makes each of the optimizers that the tests are about, of these parameters.
struct Kind {
  const char* name;
  std::function<std::unique_ptr<optim::Optimizer>(std::vector<Tensor>, const std::string& low_precision)> make;
};
const std::vector<Kind>& kinds() {
  static const auto of = []<class Opt, class Options>(const char* name, Options options) {
    return Kind{name, [options](std::vector<Tensor> params, const std::string& low_precision) mutable {
                  options.low_precision = low_precision;
                  return std::unique_ptr<optim::Optimizer>(std::make_unique<Opt>(std::move(params), options));
                }};
  };
  static const std::vector<Kind> all = {of.operator()<optim::SGD>("SGD", optim::SGDOptions{.lr = 0.1, .momentum = 0.9}),
                                        of.operator()<optim::Adam>("Adam", optim::AdamOptions{.lr = 0.1}),
                                        of.operator()<optim::AdamW>("AdamW", optim::AdamWOptions{.lr = 0.1})};
  return all;
}

/// Calls of f give `want()`, whatever `change(i)` did before call i.
template <class F>
void check_reads(F&& f, const std::function<double()>& want, const std::function<void(int)>& change) {
  for (int i = 0; i < 60; ++i) {
    change(i);
    INFO("call " << i);
    CHECK(f(ones({2}))[0].template item<double>() == want());
  }
  INFO(f.explain());
  CHECK(replays_of(f) > 25);
}

}  // namespace

TEST_CASE(
    "an optimizer's rate, momentum and initial rate, read inside: what is set between the calls is seen at once") {
  for (const Kind& kind : kinds()) {
    INFO(kind.name);
    Tensor w = ones({2}).requires_grad_();
    const auto opt = kind.make({w}, "nearest");
    const auto read = [&](const std::function<double()>& value) {
      return compile(
          [&opt, w, value](const Tensor& x) {
            opt->zero_grad();
            sum(w * x).backward();
            opt->step();
            return x.to(kFloat64) * value();
          },
          {.verify = 0});
    };
    const auto lr = [&] { return opt->lr(); };
    check_reads(read(lr), lr, [&](int i) {
      if (i == 20 || i == 40) opt->set_lr(opt->lr() / 2);
    });
    const auto momentum = [&] { return opt->momentum(); };
    check_reads(read(momentum), momentum, [&](int i) {
      if (i == 20 || i == 40) opt->set_momentum(opt->momentum() / 2);
    });
    const auto initial = [&] { return opt->initial_lr(); };
    check_reads(read(initial), initial, [&](int i) {
      if (i == 20 || i == 40) opt->set_initial_lr(opt->initial_lr() / 2);
    });
    StateDict loaded = opt->state_dict();
    loaded.set("param_groups.0.lr", full({}, 0.25, {.dtype = kFloat64}));
    check_reads(read(lr), lr, [&](int i) {
      if (i == 20) opt->load_state_dict(loaded);
    });
    CHECK(opt->lr() == 0.25);
  }
}

TEST_CASE("a schedule between the calls costs no program where nothing reads the rate") {
  for (const Kind& kind : kinds()) {
    INFO(kind.name);
    Tensor w = ones({2}).requires_grad_();
    const auto opt = kind.make({w}, "nearest");
    optim::ExponentialLR schedule(*opt, 0.9);
    auto f = compile([&](const Tensor& x) {
      opt->zero_grad();
      const Tensor loss = sum(w * x);
      loss.backward();
      opt->step();
      return loss;
    });
    for (int i = 0; i < 50; ++i) {
      f(ones({2}));
      schedule.step();
      CHECK(opt->lr() == schedule.get_last_lr()[0]);
    }
    INFO(f.explain());
    CHECK(f.programs() == 1);
    CHECK(replays_of(f) >= 46);
  }
}

TEST_CASE("refused: counts of steps and epochs, and states, that the host reads, and rates that it sets") {
  Tensor w = ones({2}).requires_grad_();
  optim::Adam opt({w}, {.lr = 0.1});
  optim::LBFGS lbfgs({w});
  optim::StepLR schedule(opt, 2);
  for (const std::function<void()>& use : std::vector<std::function<void()>>{
           [&] { (void)opt.steps(); }, [&] { opt.set_initial_lr(0.5); }, [&] { (void)schedule.last_epoch(); },
           [&] { (void)schedule.state_dict(); }, [&] { (void)opt.state_dict(); }, [&] { (void)lbfgs.state_dict(); }}) {
    auto f = compile([&] { use(); });
    for (int i = 0; i < 2; ++i) CHECK(contains(message_of<ValueError>([&] { f(); }), "outside of compile()"));
    CHECK_NOTHROW(use());
  }
}

TEST_CASE("float32 copies of half precision parameters: steps are replayed, with eager code's bits") {
  for (const Kind& kind : kinds())
    for (const DType dtype : {kBFloat16, kFloat16}) {
      INFO(kind.name << " " << dtype);
      const auto train = [&](bool enabled) {
        manual_seed(3);
        nn::Sequential net(nn::Linear(8, 8), nn::ReLU(), nn::Linear(8, 4));
        net.to(dtype);
        const auto opt = kind.make(net.parameters(), "master");
        opt->set_lr(1e-3);
        auto step = compile(
            [&](const Tensor& x) {
              opt->zero_grad();
              const Tensor loss = mean(square(net(x)));
              loss.backward();
              opt->step();
              return loss;
            },
            {.enabled = enabled, .rows = false});
        std::vector<Tensor> out;
        const auto keep = [&] {
          for (const auto& [name, t] : opt->state_dict()) out.push_back(t.clone());
          for (const Tensor& p : net.parameters()) out.push_back(p.detach().clone());
        };
        for (int i = 0; i < 60; ++i) {
          out.push_back(step(wave({3, 8}, 0.1 + i).to(dtype)).detach());
          if (i == 20 || i == 50) {  // written to by hand
            NoGrad guard;
            net.parameters()[0].mul_(0.5);
          }
          if (i == 30) opt->load_state_dict(opt->state_dict());
          if (i == 40) {  // a step that is not compiled
            sum(square(net(wave({3, 8}, 0.5).to(dtype)))).backward();
            opt->step();
          }
          if (i % 10 == 9) keep();
        }
        INFO(step.explain());
        if (enabled) CHECK(step.programs() == 1);
        if (enabled) CHECK(replays_of(step) >= 50);
        return out;
      };
      const std::vector<Tensor> want = train(false), got = train(true);
      REQUIRE(got.size() == want.size());
      for (size_t i = 0; i < got.size(); ++i) {
        INFO("tensor " << i);
        CHECK(same_bits(got[i], want[i]));
      }
    }
}

TEST_CASE("an optimizer that asks for gradients in another order does nothing else") {
  for (const Kind& kind : kinds()) {
    INFO(kind.name);
    std::vector<Tensor> w;
    for (int i = 0; i < 3; ++i) w.push_back(ones({2}).requires_grad_());
    const auto opt = kind.make(w, "nearest");
    const auto step_alone = [&](int i) {
      w[size_t(i)].set_grad(ones({2}));
      opt->step();
      opt->zero_grad();
    };
    auto f = compile([&](const Tensor& x) {
      opt->step();
      opt->zero_grad();
      return x * 2;
    });
    const std::string warnings = stderr_of([&] {
      step_alone(2);  // those that have a state are asked first
      for (int i = 0; i < 60; ++i) {
        if (i == 10 || i == 20) step_alone(i == 10 ? 1 : 0);
        CHECK(same_bits(f(ones({2})), full({2}, 2.)));
      }
    });
    CHECK(warnings.empty());
    CHECK(replays_of(f) >= 50);
  }
}

TEST_CASE("gradients in another order are the same ones, other gradients are not") {
  std::vector<Tensor> w;
  for (int i = 0; i < 3; ++i) w.push_back(ones({2}).requires_grad_());
  for (const bool exchanged : {false, true}) {
    for (Tensor& t : w) t.set_grad({});
    bool odd = false;
    auto f = compile([&](const Tensor& x) {
      const Tensor y = x * 2, a = x * 3, b = x * 5;
      const std::pair<size_t, Tensor> all[] = {{0, exchanged && odd ? b : a}, {1, exchanged && odd ? a : b}};
      for (const auto& [i, g] : {all[odd], all[!odd]}) w[i].set_grad(g);
      return y;
    });
    const std::string warnings = stderr_of([&] {
      for (int i = 0; i < 60; ++i) {
        odd = i >= 10;
        f(ones({2}));
        if (exchanged) continue;
        CHECK(same_bits(w[0].grad(), full({2}, 3.)));
        CHECK(same_bits(w[1].grad(), full({2}, 5.)));
      }
    });
    INFO(warnings);
    CHECK(contains(warnings, kVaries) == exchanged);
  }
}
