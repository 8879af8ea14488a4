// What surrounds a call and is no part of it: the history of arguments, other tensors in their memory, the objects that leaves are.
#include <functional>

#include "steps.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

/// What calls did, with an f that is compiled and with one that is not.
template <class F, class Use> void check_like_eager(const F& f, const Use& use) {
  std::vector<Tensor> got, want;
  auto fast = compile(f);
  use(fast, got), use(f, want);
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO(i);
    REQUIRE(got[i].defined() == want[i].defined());
    if (want[i].defined()) CHECK(same_bits(got[i], want[i]));
  }
}

Tensor gradient_of(const Tensor& x) { return x.grad().defined() ? x.grad().clone() : Tensor(); }

}  // namespace

TEST_CASE("a step that differentiates through an argument's history runs as it is") {
  const auto f = [](const Tensor& x) { sum(square(x)).backward(); };
  const auto use = [](auto& step, std::vector<Tensor>& out) {
    Tensor a = full({2}, 1.5).requires_grad_(), b = full({2}, 2.5).requires_grad_();
    const auto call = [&](const Tensor& x) {
      a.set_grad({}), b.set_grad({});
      step(x);
      out.push_back(gradient_of(a)), out.push_back(gradient_of(b)), out.push_back(gradient_of(x));
    };
    for (int i = 0; i < 10; ++i) call(a * 2);
    call(b * 2), call(a * 3);
    Tensor hooked = a * 2, retained = a * 2, used = a * 2;
    hooked.register_hook([](const Tensor& g) { return g * 100; });
    retained.retain_grad();
    call(hooked), call(retained), call(used);
    CHECK_THROWS_AS(sum(used).backward(), ValueError);  // its graph was freed
  };
  check_like_eager(f, use);
  // So does one that reaches the history of a captured tensor.
  Tensor w = ones({2}).requires_grad_(), h;
  check_like_eager([&h](const Tensor& x) { sum(h * x).backward(); },
                   [&w, &h](auto& step, std::vector<Tensor>& out) {
                     for (int i = 0; i < 8; ++i) {
                       w.set_grad({}), h = w * (1 + i);
                       step(full({2}, 2.));
                       out.push_back(gradient_of(w));
                     }
                   });
  auto step = compile(f);
  Tensor a = ones({2}).requires_grad_();
  for (int i = 0; i < 8; ++i) step(a * 2);
  CHECK(step.programs() == 0);
  CHECK(step.explain().find("the history that a tensor had before the call") != std::string::npos);
  for (int i = 0; i < 8; ++i) step((a * 2).detach().requires_grad_());  // these have none
}

TEST_CASE("a leaf among the arguments is known as the object that it is, not by an address that another one may get") {
  const auto use = [](auto& f, std::vector<Tensor>& out) {
    const Tensor batch = arange(0., 8., 1., {.dtype = kFloat32}).reshape({4, 2});
    for (int i = 0; i < 4; ++i)
      for (int k = 0; k < 10; ++k) {
        Tensor x = batch[i].detach();  // likely at the address of the one before
        x.requires_grad_();
        out.push_back(f(x).clone());
      }
  };
  const Tensor w = full({2}, 3.);
  check_like_eager([&w](const Tensor& x) { return grad({sum(square(x) * w)}, {x})[0]; }, use);
  const NoGrad guard;
  check_like_eager([](const Tensor& x) { return x * 2; }, use);
}

TEST_CASE("arguments that share memory are as in eager code, in recorded calls too") {
  const auto overlapping = [](auto& f, std::vector<Tensor>& out) {
    for (int i = 0; i < 8; ++i) {
      const Tensor x = ones({6});
      f(x.narrow(0, 1, 5), x.narrow(0, 0, 5));
      out.push_back(x);
    }
  };
  check_like_eager([](const Tensor& x, const Tensor& y) { Tensor(x).add_(y); }, overlapping);
  check_like_eager([](const Tensor& x, const Tensor& y) { Tensor(y).add_(x); }, overlapping);

  Tensor a = ones({2}).requires_grad_();
  const auto views = [&a](auto& f, std::vector<Tensor>& out) {
    for (int i = 0; i < 8; ++i) {
      Tensor h = a * 1;
      a.set_grad({}), f(h, h.view({2})).backward();
      out.push_back(gradient_of(a));
    }
  };
  check_like_eager([](const Tensor& x, const Tensor& y) { return Tensor(x).mul_(3), sum(y); }, views);

  const auto saved = [&a](const Tensor& x, const Tensor& y) {
    const Tensor loss = sum(x * a);
    Tensor(y).add_(1);
    loss.backward();
  };
  auto fast = compile(saved);
  for (int i = 0; i < 4; ++i) {
    const Tensor x = ones({2});
    CHECK_THROWS_AS(fast(x, x.view({2})), ValueError);
  }
}

TEST_CASE("arguments that share memory which is only read are replayed") {
  auto f = compile([](const Tensor& q, const Tensor& k) { return q * k; });
  for (int i = 0; i < 8; ++i) {
    const Tensor both = rand({3, 8});
    const Tensor q = both.narrow(1, 0, 4), k = both.narrow(1, 4, 4);
    CHECK(same_bits(f(q, k), q * k));
  }
  CHECK(f.programs() == 1);
}

TEST_CASE("an argument in the memory of a captured tensor is as in eager code") {
  Tensor captured = ones({6});
  const auto use = [&](auto& f, std::vector<Tensor>& out) {
    for (int i = 0; i < 8; ++i) {
      captured.fill_(1);
      f(captured.narrow(0, 1, 5));
      out.push_back(captured.clone());
    }
  };
  check_like_eager([&](const Tensor& x) { Tensor(x).add_(captured.narrow(0, 0, 5)); }, use);
  check_like_eager([&](const Tensor& x) { captured.narrow(0, 0, 5).add_(x); }, use);
}

TEST_CASE("what is computed of memory that is the caller's own is computed in each call") {
  std::vector<float> memory(8, 1.f);
  const Tensor t = from_blob(memory.data(), {8});
  auto f = compile([&](const Tensor& x) { return x * sum(t); });
  for (int i = 0; i < 40; ++i) {
    memory[0] = float(i);
    CHECK(f(ones({2}))[0].item<float>() == float(7 + i));
  }
  CHECK(f.programs() == 1);
}

TEST_CASE("gradients in one memory, or in that of a captured tensor, are as in eager code") {
  Tensor a = ones({8}).requires_grad_(), b = ones({8}).requires_grad_(), buffer = zeros({8});
  const auto add = [](auto& f, std::vector<Tensor>& out, const std::function<void()>& begin,
                      const std::function<void()>& share) {
    for (int i = 0; i < 8; ++i) {
      i < 5 ? begin() : share();
      f(ones({8}), out);
    }
  };
  check_like_eager([&](const Tensor& x) { (sum(a * x) + sum(b * x * 2)).backward(); },
                   [&](auto& f, std::vector<Tensor>& out) {
                     const auto call = [&](const Tensor& x, std::vector<Tensor>& to) {
                       f(x);
                       to.push_back(gradient_of(a)), to.push_back(gradient_of(b));
                     };
                     add(
                         call, out, [&] { a.set_grad(zeros({8})), b.set_grad(zeros({8})); },
                         [&] {
                           const Tensor both = zeros({8});
                           a.set_grad(both.view({8})), b.set_grad(both.view({8}));
                         });
                   });
  check_like_eager(
      [&](const Tensor& x) {
        const Tensor before = buffer * 1;
        sum(a * x).backward();
        return std::pair(before, buffer * 2);
      },
      [&](auto& f, std::vector<Tensor>& out) {
        const auto call = [&](const Tensor& x, std::vector<Tensor>& to) {
          const auto [before, after] = f(x);
          to.push_back(before.clone()), to.push_back(after.clone());
        };
        add(
            call, out, [&] { buffer.zero_(), a.set_grad(zeros({8})); }, [&] { a.set_grad(buffer.zero_().view({8})); });
      });
}

TEST_CASE("whether there is a gradient is a fact that a program depends on, and one without elements is made too") {
  Tensor w = ones({2}).requires_grad_();
  check_like_eager([&w](const Tensor& x) { return w.grad().defined() ? x * 2 : x * 3; },
                   [&w](auto& f, std::vector<Tensor>& out) {
                     for (int i = 0; i < 40; ++i) {
                       w.set_grad(i / 10 % 2 == 0 ? ones({2}) : Tensor());
                       out.push_back(f(ones({2})));
                     }
                   });
  Tensor empty = zeros({0, 2}).requires_grad_();
  check_like_eager([&](const Tensor& x) { (sum(w * x) + sum(empty * x)).backward(); },
                   [&](auto& f, std::vector<Tensor>& out) {
                     for (int i = 0; i < 10; ++i) {
                       w.set_grad({});
                       if (i % 3 == 0) empty.set_grad({});
                       f(ones({2}));
                       out.push_back(gradient_of(w)), out.push_back(gradient_of(empty));
                     }
                   });
}

TEST_CASE("a gradient that is a view of the result's gradient is replayed") {
  const Tensor w = randn({3, 3}).requires_grad_();
  using F = std::function<Tensor(const Tensor&)>;
  for (const F& f : {F([&](const Tensor& x) { return x.t() + w; }), F([&](const Tensor& x) {
                       return cat({x, w}, 0);
                     }),
                     F([&](const Tensor& x) {
                       return cat({x, relu(w)}, 1);
                     }),
                     F([&](const Tensor& x) { return x.view({9}) + 1; })}) {
    auto fast = compile(f);
    for (int i = 0; i < 8; ++i) {
      const Tensor x = randn({3, 3}).requires_grad_(), other = x.detach().requires_grad_();
      sum(square(fast(x * 2))).backward(), sum(square(f(other * 2))).backward();
      CHECK(same_bits(x.grad(), other.grad()));
    }
    CHECK(fast.programs() == 1);
  }
}
