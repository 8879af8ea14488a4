// Host code that varies after two recordings agreed: checked calls notice it and say so once; from then on every call is eager code's.
#include <cstdlib>

#include "../core/messages.h"
#include "../stderr_of.h"
#include "steps.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

/// Calls `right(i)` for each i below `calls`: did call i do what eager code does? All must have since the one warning, which names
/// `what` and where.
void check_noticed(const std::string& name, const std::string& what, int calls, const std::function<bool(int)>& right) {
  INFO(name);
  int wrong = 0, last_wrong = 0;
  std::string warnings;
  for (int i = 0; i < calls; ++i) {
    bool ok = false, before = warnings.empty();
    warnings += stderr_of([&] { ok = right(i); });
    if (!ok) ++wrong, last_wrong = i;
    if (!ok && !before) FAIL("call " << i << " is wrong, after the warning " << warnings);
  }
  INFO(warnings);
  const std::string head = "tapir: warning: [compile] ";
  CHECK(warnings.starts_with(head));
  CHECK(!contains(warnings.substr(head.size()), head));
  CHECK(contains(warnings, "a call that was checked did not do what is replayed: "));
  CHECK(contains(warnings, what));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their own frame stands first there
  CHECK(contains(warnings, "checks_test.cpp:"));
#endif
  if (std::getenv("TAPIR_PRINT_CHECKS")) std::printf("| %s | %d | %d |\n", name.c_str(), wrong, last_wrong + 1);
}

/// TAPIR_COMPILE_VERIFY for a scope; null: not set.
class Verify {
 public:
  explicit Verify(const char* value) : before_(std::getenv(kName) ? std::getenv(kName) : "") { set(value); }
  ~Verify() { set(before_.empty() ? nullptr : before_.c_str()); }
  void set(const char* value) { value ? setenv(kName, value, 1) : unsetenv(kName); }

 private:
  static constexpr const char* kName = "TAPIR_COMPILE_VERIFY";
  std::string before_;
};

/// A weight that SGD moves where it steps.
struct Learner {
  Tensor w = ones({4}).requires_grad_();
  optim::SGD opt{{w}, {.lr = 0.1}};
  Learner() { call(zeros({4}), true); }  // makes the state
  void call(const Tensor& x, bool steps) {
    sum(w * x).backward();
    if (steps) opt.step(), opt.zero_grad();
  }
  void become(const Learner& o) {
    NoGrad guard;
    w.copy_(o.w), w.set_grad(o.w.grad().defined() ? o.w.grad().clone() : Tensor());
  }
  bool equals(const Learner& o) const {
    return same_bits(w.detach(), o.w.detach()) && w.grad().defined() == o.w.grad().defined() &&
           (!w.grad().defined() || same_bits(w.grad(), o.w.grad()));
  }
};

}  // namespace

TEST_CASE("checks: gradient accumulation by the loop's counter") {
  const Tensor x = full({4}, 1 / 64.);
  for (const int period : {2, 4, 7, 100}) {  // the gradient tells both calls of period 2 apart: two programs
    Learner net, eager;
    int i = 0;
    auto fast = compile([&](const Tensor& x) { net.call(x, i % period == 0); });
    const auto right = [&](int call) {
      i = call + 1;
      eager.become(net), eager.call(x, i % period == 0);
      fast(x);
      return net.equals(eager);
    };
    const std::string name = "`if (i % " + std::to_string(period) + " == 0) opt.step()`, `i` the loop's";
    if (period > 2) check_noticed(name, "optimizer_step(Sgd)", period == 100 ? 80000 : 2000, right);
    else
      for (int call = 0; call < 100; ++call) CHECK(right(call));
    INFO(fast.explain());
    CHECK(fast.programs() == (period == 2 ? 2 : 0));
    CHECK(contains(fast.explain(), "runs as it is: it varies") == (period > 2));
  }
}

TEST_CASE("checks: gradient accumulation by a counter of the function's own") {
  const Tensor x = full({4}, 1 / 64.);
  for (const int period : {2, 4, 7, 100}) {
    Learner net;
    int count = 0;
    auto fast = compile([&](const Tensor& x) { net.call(x, ++count % period == 0); }, {.verify = 1. / 256});
    // A replay does not count, so there is no eager twin: the calls since the last step must be below the period.
    int since = 0;
    Tensor before = net.w.detach().clone();
    const auto right = [&](int) {
      fast(x);
      const bool stepped = !same_bits(before, net.w.detach());
      before = net.w.detach().clone(), since = stepped ? 0 : since + 1;
      return since < period;
    };
    const std::string name = "`if (++count % " + std::to_string(period) + " == 0) opt.step()`";
    if (period > 2) check_noticed(name, "optimizer_step(Sgd)", period == 100 ? 80000 : 2000, right);
    else
      for (int call = 0; call < 100; ++call) CHECK(right(call));
  }
}

TEST_CASE("checks: a captured number that changes once; its program comes back") {
  for (const int at : {5, 100, 3000}) {
    double alpha = 2;
    auto fast = compile([&](const Tensor& x) { return x * alpha; });
    const Tensor x = ones({3});
    check_noticed("`x * alpha`, changed in call " + std::to_string(at), "2 before, 3 now", at + 3000, [&](int call) {
      if (call == at) alpha = 3;
      return same_bits(fast(x), x * alpha);
    });
    CHECK(fast.programs() == 1);
    for (int i = 0; i < 10; ++i) CHECK(same_bits(fast(x), x * 3));
  }
}

TEST_CASE("checks: a number that goes on changing is eager from the second time on") {
  double alpha = 1;
  auto fast = compile([&](const Tensor& x) { return x * alpha; });
  const Tensor x = ones({3});
  check_noticed("`x * alpha`, changed in each 1000th call", "1 before, 2 now", 20000, [&](int call) {
    if (call % 1000 == 999 && alpha < 3) alpha += 1;
    return same_bits(fast(x), x * alpha);
  });
}

TEST_CASE("checks: a handle that names another tensor, whose old one lives on") {
  const Tensor a = full({3}, 2.), b = full({3}, 3.);
  Tensor weights = a;
  auto fast = compile([&](const Tensor& x) { return x * weights; });
  const Tensor x = ones({3});
  check_noticed("`x * weights`, another tensor since call 50", "another tensor than before", 3000, [&](int call) {
    if (call == 50) weights = b;
    return same_bits(fast(x), x * weights);
  });
  CHECK(fast.programs() == 1);
}

TEST_CASE("checks: an option of a module") {
  nn::Linear linear(3, 3, {.bias = false});
  nn::LayerNorm norm(Shape{3});
  auto fast = compile([&](const Tensor& x) {
    NoGrad guard;
    return norm(linear(x));
  });
  const Tensor x = tensor({{1.f, 2.f, 4.f}});
  const auto eager = [&] {
    NoGrad guard;
    return norm(linear(x));
  };
  check_noticed("an option of a module, changed in call 50", "eps", 3000, [&](int call) {
    if (call == 50) norm.options.eps = 0.5;
    return same_bits(fast(x), eager());
  });
  CHECK(fast.programs() == 1);
}

TEST_CASE("checks: a parameter that appears") {
  nn::Linear linear(3, 3, {.bias = false});
  auto fast = compile([&](const Tensor& x) {
    NoGrad guard;
    return linear(x);
  });
  const Tensor x = tensor({{1.f, 2.f, 4.f}});
  const auto eager = [&] {
    NoGrad guard;
    return linear(x);
  };
  check_noticed("a bias that appears in call 50", "before", 3000, [&](int call) {
    if (call == 50) linear.bias = Parameter(ones({3}));
    return same_bits(fast(x), eager());
  });
  CHECK(fast.programs() == 1);
}

TEST_CASE("checks: what a program cannot hold, in a checked call, is no error") {
  double seen = 0;
  int count = 0;
  auto fast = compile([&](const Tensor& x) {
    const Tensor y = x * 2;
    if (++count == 5) seen = sum(y).item();
    return y;
  });
  const Tensor x = ones({3});
  check_noticed("`if (++count == 5) log(loss.item())`", "[item] expected nothing that the host must read", 3000, [&](int) {
    return same_bits(fast(x), x * 2);
  });
  CHECK(seen == 6);
}

TEST_CASE("checks: how many calls are") {
  Verify variable(nullptr);
  const Tensor x = ones({3});
  int runs = 0;
  const auto count = [&](double verify, int calls) {
    auto fast = compile(
        [&](const Tensor& x) {
          ++runs;
          return x + 1;
        },
        {.verify = verify});
    runs = 0;
    for (int i = 0; i < calls; ++i) CHECK(same_bits(fast(x), x + 1));
    CHECK(fast.programs() == 1);
    return runs - 2;  // two recordings
  };
  CHECK(count(0, 1000) == 0);
  CHECK(count(1, 100) == 98);
  const int tenth = count(0.1, 10000), few = count(-1, 10000);
  CHECK(tenth > 900);
  CHECK(tenth < 1200);
  CHECK(few > 20);
  CHECK(few < 80);  // an addition of three elements takes a hundredth of a recorded one
  CHECK(count(-1, 10000) == few);
  CHECK(contains(message_of<ValueError>([] { compile([](const Tensor& x) { return x; }, {.verify = 2}); }),
                 "[compile] expected verify to be at most 1, got 2"));
  variable.set("1");
  CHECK(count(0, 20) == 18);
  variable.set("often");
  CHECK(contains(message_of<ValueError>([] { compile([](const Tensor& x) { return x; }); }),
                 "[compile] expected TAPIR_COMPILE_VERIFY to be 0 to 1, got often"));
}

TEST_CASE("checks: a checked call works in memory that the program gave back") {
  nn::Sequential net(nn::Linear(256, 1024), nn::ReLU(), nn::Linear(1024, 256));
  optim::SGD opt(net.parameters(), {.lr = 0.01});
  auto step = [&](const Tensor& x) {
    opt.zero_grad();
    Tensor loss = mean(square(net(x)));
    loss.backward();
    opt.step();
    return loss;
  };
  const auto peak = [&](auto& f) {
    for (int i = 0; i < 5; ++i) f(ones({512, 256}));
    reset_peak_memory_stats();
    for (int i = 0; i < 4; ++i) f(ones({512, 256}));
    return memory_stats().max_allocated;
  };
  const int64_t eager = peak(step);
  auto replayed = compile(step, {.verify = 0});
  const int64_t alone = peak(replayed);
  replayed.reset();
  auto checked = compile(step, {.verify = 0.5});
  CHECK(double(peak(checked)) < 1.05 * double(std::max(eager, alone)));
}
