// Every case that docs/compile.md refuses or runs as it is ends as stated, and eager and compiled calls go on working afterwards.
#include <atomic>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "../core/messages.h"
#include "steps.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

/// Eager code, a compiled function that was there before and a new one, gradients and random numbers, in this thread.
class Bystanders {
 public:
  Bystanders() : old_(compile(step_of(w_))) {
    for (int i = 0; i < 4; ++i) (void)old_(ones({3}));
    REQUIRE(old_.programs() == 1);
  }
  void check_all() {
    EnableGrad guard;
    const Tensor x = full({3}, 2.);
    CHECK(sum(x * 2).item() == 12);
    Tensor w = ones({3}).requires_grad_();
    sum(square(w)).backward();
    CHECK(same_bits(w.grad(), full({3}, 2.)));
    const Tensor want = step_of(w_)(x);                           // eager; the step leaves w_ as it is
    for (int i = 0; i < 4; ++i) CHECK(same_bits(old_(x), want));  // recorded anew where an optimizer's options changed
    CHECK(old_.programs() == 1);
    auto fresh = compile(step_of(w_));
    for (int i = 0; i < 4; ++i) CHECK(same_bits(fresh(x), want));
    CHECK(fresh.programs() == 1);
    manual_seed(5);
    const Tensor a = rand({4});
    manual_seed(5);
    CHECK(same_bits(a, rand({4})));
  }

 private:
  static std::function<Tensor(const Tensor&)> step_of(Tensor& w) {
    return [&w](const Tensor& x) {
      w.set_grad({});
      Tensor loss = sum(square(w * x));
      loss.backward();
      return w.grad() + loss.detach();
    };
  }
  Tensor w_ = tensor({1.f, 2.f, 3.f}).requires_grad_();
  Compiled<std::function<Tensor(const Tensor&)>> old_;
};

/// A function that is refused while `bad`: the message names `op` and this file; then the same function works.
void check_refused(const char* op, const std::function<Tensor(const Tensor&)>& refused) {
  INFO(op);
  Bystanders others;
  bool bad = true;
  int calls = 0;
  auto f = compile([&](const Tensor& x) {
    ++calls;
    const Tensor y = x * 3;
    return bad ? refused(y) : y + 1;
  });
  const Tensor x = tensor({1.f, 0.f, 2.f});
  for (int i = 0; i < 3; ++i) {
    const std::string message = message_of<ValueError>([&] { (void)f(x); });
    INFO(message);
    CHECK(contains(message, op));
    CHECK(contains(message, "expected nothing that the host must read"));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their own frame stands first there
    CHECK(contains(message, "refused_test.cpp:"));
#endif
    others.check_all();
  }
  CHECK(calls == 3);
  CHECK(f.programs() == 0);
  (void)refused(x);  // eager code may
  bad = false;
  for (int i = 0; i < 4; ++i) CHECK(same_bits(f(x), x * 3 + 1));
  CHECK(f.programs() == 1);
  others.check_all();
}

/// A function that runs as it is: every call is eager's, explain() says why, nothing else is touched.
void check_eager(
    const char* why, const std::function<Tensor(const Tensor&)>& f, const std::function<void()>& reset = [] {}) {
  INFO(why);
  Bystanders others;
  std::vector<Tensor> want;
  reset();
  manual_seed(1);
  for (int i = 0; i < 10; ++i) want.push_back(f(full({3}, double(i))).detach().clone());
  reset();
  manual_seed(1);
  auto fast = compile(f);
  for (int i = 0; i < 10; ++i) CHECK(same_bits(fast(full({3}, double(i))).detach(), want[size_t(i)]));
  CHECK(fast.programs() == 0);
  INFO(fast.explain());
  CHECK(contains(fast.explain(), why));
  others.check_all();
}

}  // namespace

TEST_CASE("refused: values that the host reads") {
  check_refused("item", [](const Tensor& x) { return x * sum(x).item(); });
  check_refused("to_vector", [](const Tensor& x) { return x * double(x.to_vector<float>()[0]); });
  check_refused("to_vector", [](const Tensor& x) { return x * double(x.str().size()); });
  check_refused("expected nothing that the host must read", [](const Tensor& x) {
    std::ostringstream text;
    text << x;
    return x * double(text.str().size());
  });
}

TEST_CASE("refused: shapes that depend on values") {
  check_refused("nonzero", [](const Tensor& x) { return nonzero(x); });
  check_refused("depends on values", [](const Tensor& x) { return unique(x).values; });
  check_refused("depends on values", [](const Tensor& x) { return masked_select(x, gt(x, 0)); });
}

TEST_CASE("refused: rates and momentum that are set inside") {
  Tensor w = ones({3}).requires_grad_();
  optim::SGD opt({w}, {.lr = 1, .momentum = 0.5});
  optim::StepLR schedule(opt, 1, {.gamma = 0.5});
  Bystanders others;
  for (const std::function<void()>& change : std::vector<std::function<void()>>{
           [&] { opt.set_lr(0.5); }, [&] { opt.set_momentum(0.25); }, [&] { schedule.step(); }}) {
    auto f = compile([&] { change(); });
    for (int i = 0; i < 2; ++i) CHECK(contains(message_of<ValueError>([&] { f(); }), "outside of compile()"));
    change();
    others.check_all();
  }
}

TEST_CASE("runs as it is: what compile() notices") {
  check_eager("do not follow the generator's state", [](const Tensor& x) {
    manual_seed(7);
    return x + rand({3});
  });
  check_eager("manual_seed()", [](const Tensor& x) {
    manual_seed(7);
    return x + 1;
  });
  int counter = 0;
  check_eager(
      "a number that changes", [&](const Tensor& x) { return x + double(++counter); }, [&] { counter = 0; });
  Tensor kept = zeros({3});
  check_eager(
      "kept outside",
      [&](const Tensor& x) {
        kept = kept + x;
        return kept * 2;
      },
      [&] { kept = zeros({3}); });
  Tensor last;
  check_eager("an argument is kept outside", [&](const Tensor& x) { return (last = x) * 2; });

  Bystanders others;  // an argument that has a gradient and requires none
  auto f = compile([](const Tensor& x) {
    NoGrad guard;
    return x * 2;
  });
  for (bool requires_grad : {true, false}) {
    Tensor x = ones({3}).requires_grad_();
    if (!requires_grad) {
      sum(x).backward();
      x.requires_grad_(false);
    }
    for (int i = 0; i < 5; ++i) CHECK(same_bits(f(x), full({3}, 2.)));
    CHECK(f.programs() == (requires_grad ? 1 : 0));
    CHECK(contains(f.explain(), "an argument has a gradient") == !requires_grad);
    f.reset();
  }
  others.check_all();
}

TEST_CASE("runs as it is: saved-tensor hooks and anomaly mode") {
  Bystanders others;
  Tensor w = ones({3}).requires_grad_();
  auto f = compile([&](const Tensor& x) {
    w.set_grad({});
    sum(square(w * x)).backward();
    return w.grad() + 0;
  });
  const Tensor x = full({3}, 2.), want = full({3}, 8.);
  int packed = 0;
  for (int i = 0; i < 5; ++i) {
    auto hooks = saved_tensors_hooks(
        [&](const Tensor& t) {
          ++packed;
          return t;
        },
        [](const Tensor& t) { return t; });
    CHECK(same_bits(f(x), want));
  }
  CHECK(packed >= 5);
  {
    AnomalyMode mode(true);
    for (int i = 0; i < 5; ++i) CHECK(same_bits(f(x), want));
  }
  CHECK(f.programs() == 0);
  for (int i = 0; i < 5; ++i) CHECK(same_bits(f(x), want));
  CHECK(f.programs() == 1);
  others.check_all();
}

TEST_CASE("a changed storage: recorded anew, and right in every call") {
  Bystanders others;
  nn::Linear net(3, 2);
  NoGrad guard;
  auto f = compile([&](const Tensor& x) { return net(x); });
  const Tensor x = ones({4, 3});
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4; ++i) CHECK(same_bits(f(x), net(x)));
    CHECK(f.programs() == 1);
    if (round == 0) net = nn::Linear(3, 2);
    else net.to(kFloat64), net.to(kFloat32);
    others.check_all();
  }
}

TEST_CASE("too many signatures, compiled functions within others: as stated, and others go on") {
  Bystanders others;
  auto inner = compile([](const Tensor& x) { return x * 2; });
  for (int i = 0; i < 4; ++i) (void)inner(ones({2}));  // has a program of its own
  auto outer = compile([&](const Tensor& x) { return inner(x) + 1; }, {.max_programs = 2});
  for (int round = 0; round < 5; ++round)
    for (int n = 1; n <= 4; ++n) CHECK(same_bits(outer(ones({n})), full({n}, 3.)));
  CHECK(outer.programs() == 2);
  CHECK(inner.programs() >= 1);
  CHECK(same_bits(inner(ones({2})), full({2}, 2.)));
  others.check_all();
}

TEST_CASE("exceptions: of the function while it is recorded, of a kernel in a replay; the next call is right") {
  Bystanders others;
  Tensor w = ones({3, 4}).requires_grad_(), state = zeros({3});
  bool bad = false;
  auto step = [&](const Tensor& labels) {
    w.set_grad({});
    state.add_(1);
    Tensor loss = cross_entropy(w * 2, labels);
    loss.backward();
    if (bad) throw std::runtime_error("of the function");
    return loss.detach() + 0 * sum(state);
  };
  auto f = compile(step);
  const Tensor good = tensor({0, 1, 2}), wrong = tensor({0, 1, 9});
  const Tensor want = step(good), gradient = w.grad().clone();
  bad = true;
  for (int i = 0; i < 3; ++i) {
    CHECK_THROWS_AS(f(good), std::runtime_error);
    others.check_all();
  }
  bad = false;
  for (int i = 0; i < 4; ++i) CHECK(same_bits(f(good), want));
  REQUIRE(f.programs() == 1);
  for (int i = 0; i < 3; ++i) {
    const std::string message = message_of<ValueError>([&] { (void)f(wrong); });
    CHECK(contains(message, "cross_entropy"));
    others.check_all();
    CHECK(same_bits(f(good), want));
    CHECK(same_bits(w.grad(), gradient));
  }
  CHECK(f.programs() == 1);
  CHECK(same_bits(step(good), want));  // eager code on the same tensors
}

TEST_CASE("several threads: one function with good and bad calls, each thread gets its own result") {
  Bystanders others;
  Tensor w = ones({3, 4});
  auto f = compile([&](const Tensor& labels) {
    NoGrad guard;
    return cross_entropy(w * 2, labels, {.reduction = Reduction::None});
  });
  const Tensor good = tensor({0, 1, 2});
  for (int i = 0; i < 4; ++i) (void)f(good);
  REQUIRE(f.programs() == 1);
  const Tensor want = f(good);
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; ++k)
    threads.emplace_back([&, k] {
      for (int i = 0; i < 40; ++i) {
        const bool refused = (i + k) % 3 == 0;
        try {
          const Tensor y = f(refused ? tensor({0, 1, 9}) : good);
          failures += refused || !same_bits(y, want);
        } catch (const ValueError&) {
          failures += !refused;
        }
        failures += sum(full({3}, double(k))).item() != 3. * k;  // eager, meanwhile
      }
    });
  for (auto& t : threads) t.join();
  CHECK(failures == 0);
  CHECK(same_bits(f(good), want));
  others.check_all();
}
