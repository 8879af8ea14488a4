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

TEST_CASE("checks: every phase of a period is met after as many checks") {
  const Tensor x = ones({3});
  for (const auto& [period, bound] : {std::pair(2, 64), {3, 200}, {4, 200}, {8, 400}, {16, 600}, {32, 1200}}) {
    int last = 0, all = 0, worst = 0;
    for (int phase = 0; phase < period; ++phase) {
      int i = 0, wrong = 0;
      auto fast = compile([&](const Tensor& x) { return i % period == phase ? x * 3 : x + 1; });
      const std::string text = stderr_of([&] {
        for (i = 0; i < 2 * bound; ++i)
          if (!same_bits(fast(x), i % period == phase ? x * 3 : x + 1)) ++wrong, last = std::max(last, i + 1);
      });
      CHECK((wrong == 0 || contains(text, "did not do what is replayed")));
      all += wrong, worst = std::max(worst, wrong);
    }
    INFO("period " << period << ": " << last);
    CHECK(last < bound);
    if (std::getenv("TAPIR_PRINT_CHECKS"))
      std::printf("| period %d, worst phase | %d (%.1f on average) | %d |\n", period, worst, double(all) / period,
                  last);
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
  check_noticed("`if (++count == 5) log(loss.item())`", "[item] expected nothing that the host must read", 3000,
                [&](int) { return same_bits(fast(x), x * 2); });
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
  CHECK(tenth < 1500);
  CHECK(few > 20);
  CHECK(few < 100);  // an addition of three elements takes a hundredth of a recorded one
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

TEST_CASE("checks: one odd call is no second variation") {
  int count = 0, runs = 0;
  auto fast = compile([&](const Tensor& x) { return ++runs, ++count == 5 ? x * 2 : x + 1; });
  const std::string text = stderr_of([&] {
    for (int i = 0; i < 200; ++i) fast(ones({3}));
  });
  CHECK(contains(text, "did not do what is replayed"));
  CHECK(fast.programs() == 1);
  CHECK(runs < 100);
}

TEST_CASE("checks: a variation is told for each time that replays were wrong, and what varies twice is eager") {
  double a = 2;
  auto fast = compile([&](const Tensor& x) { return x * a; });
  const auto told = [&](int calls) {
    int warnings = 0;
    const std::string text = stderr_of([&] {
      for (int i = 0; i < calls; ++i) fast(ones({1}));
    });
    for (size_t at = 0; (at = text.find("did not do what is replayed", at)) != std::string::npos; ++at) ++warnings;
    return warnings;
  };
  CHECK(told(100) == 0);
  a = 5;
  CHECK(told(2000) == 1);
  CHECK(fast.programs() == 1);
  a = 7;
  CHECK(told(2000) == 1);
  CHECK(fast.programs() == 0);
  a = 8;
  CHECK(fast(ones({1})).item() == 8);
  fast.reset();
  CHECK(told(10) == 0);
  CHECK(fast.programs() == 1);
}

TEST_CASE("checks: a gradient that somebody looks at is no variation") {
  Tensor w = ones({4}).requires_grad_(), held, v = ones({4}).requires_grad_();
  const Tensor x = full({4}, 0.5);
  auto fast = compile([&](const Tensor& x) { sum(w * x).backward(); });
  const std::string text = stderr_of([&] {
    for (int i = 0; i < 500; ++i) {
      if (i == 50) held = w.grad();
      fast(x), sum(v * x).backward();
    }
  });
  CHECK(text == "");
  CHECK(fast.programs() >= 1);
  CHECK(same_bits(w.grad(), v.grad()));
}

TEST_CASE("checks: a gradient in memory of others, or with a history, is not the program's to overwrite") {
  Tensor w = ones({4}).requires_grad_();
  optim::SGD opt({w}, {.lr = 0.1});
  auto fast = compile([&](const Tensor& x) {
    opt.zero_grad();
    Tensor loss = sum(w * x);
    loss.backward();
    opt.step();
    return loss.detach();
  });
  const Tensor x = full({4}, 5.);
  alignas(64) float buffer[4] = {7, 7, 7, 7};
  for (int i = 0; i < 40; ++i) {
    if (i % 3 == 0) w.set_grad(from_blob(buffer, {4}));
    if (i % 3 == 1) opt.zero_grad(), sum(w * w * w).backward({}, true, true);
    fast(x);
    CHECK(!w.grad().requires_grad());
    CHECK(same_bits(w.grad(), x));
    CHECK(buffer[0] == 7);
  }
  opt.zero_grad();
}

TEST_CASE("checks: results that are kept inside too run as they are") {
  const Tensor x = ones({3});
  Tensor last;
  std::vector<Tensor> list;
  nn::Linear net(3, 1);
  optim::SGD opt(net.parameters(), {.lr = 0.01});
  auto keeps = compile([&](const Tensor& x) { return last = x * 2; });
  auto lists = compile([&](const Tensor& x) {
    const Tensor y = x * 2;
    list.push_back(y);
    return y;
  });
  auto views = compile([&](const Tensor& x) {
    const Tensor y = x * 2;
    last = y.select(0, 0);
    return y;
  });
  auto step = compile([&](const Tensor& x) {
    opt.zero_grad();
    Tensor loss = mean(square(net(x) - 1));
    loss.backward();
    opt.step();
    last = loss.detach();
    return loss;
  });
  auto gradient = compile([&](const Tensor& x) {
    opt.zero_grad();
    mean(square(net(x) - 1)).backward();
    last = net.weight.grad();
    opt.step();
  });
  for (int i = 0; i < 20; ++i) {
    const Tensor z = full({3}, double(i));
    const Tensor y = keeps(z);
    CHECK(same_bits(y, last));
    lists(z);
    CHECK(same_bits(views(z)[0], last));
    const Tensor loss = step(z.unsqueeze(0));
    CHECK(same_bits(loss, last));
    gradient(z.unsqueeze(0));
    CHECK(last.data_ptr() == net.weight.grad().data_ptr());
  }
  CHECK(list.size() == 20);
  for (const int64_t programs :
       {keeps.programs(), lists.programs(), views.programs(), step.programs(), gradient.programs()})
    CHECK(programs == 0);
  CHECK(contains(keeps.explain(), "a result is kept outside too"));
}

TEST_CASE("compile: what uses things that change all the time says so") {
  NoGrad guard;
  nn::Linear net(8, 8);
  auto fast = compile([&](const Tensor& x) { return net(x); });
  const std::string text = stderr_of([&] {
    for (int i = 0; i < 1050; ++i) {
      if (i % 7 == 0) net = nn::Linear(8, 8);
      fast(ones({2, 8}));
    }
  });
  CHECK(contains(text, "what it uses changes so often"));
}
