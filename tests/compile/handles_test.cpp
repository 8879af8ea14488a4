// compile(): arguments, gradients and leaves that lie elsewhere, or are something else, in a later call.
#include "../core/messages.h"
#include "steps.h"
#include "training.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

/// Compiled calls give the bits of eager ones, six times.
template <class F, class... A> auto check_calls(F f, const A&... a) {
  auto fast = compile(f);
  for (int i = 0; i < 6; ++i) CHECK(same_bits(fast(a...), f(a...)));
  return fast;
}

struct Net : nn::Module {
  Parameter w{ones({3})};
  Tensor forward(const Tensor& x) { return x * w; }
  TAPIR_FIELDS(w)
};

}  // namespace

TEST_CASE("x[i] is an argument, and a result, as the tensor that it is read as") {
  const Tensor x = arange(12.).reshape({3, 4});
  auto row = compile([](const Tensor& a, const Tensor& b) { return (a + b)[Slice(1, 3)]; });
  for (int i = 0; i < 6; ++i) CHECK(same_bits(row(x[i % 3], x[0]), (x[i % 3] + x[0])[Slice(1, 3)]));
  CHECK(row.programs() == 1);
}

TEST_CASE("tensor() that is written in part keeps the rest of its numbers") {
  const Tensor x = tensor({5., 6., 7., 8.});
  const auto marked = [](const Tensor& x) {
    Tensor t = tensor({1., 2., 3., 4.});
    t.narrow(0, 0, 1).fill_(9);
    return x + t;
  };
  CHECK(check_calls(marked, x).programs() == 1);
  const auto masked = [](const Tensor& x) {
    Tensor mask = tensor({1., 1., 0., 1.});
    mask.narrow(0, 2, 1).copy_(x.narrow(0, 0, 1));
    return x * mask;
  };
  CHECK(check_calls(masked, x).programs() == 1);
  const auto by_hand = [](const Tensor& x) {
    Tensor t = empty({4}, {.dtype = kFloat64});
    for (int i = 0; i < 4; ++i) t.data<double>()[i] = i;
    t.narrow(0, 0, 1).fill_(9);
    return x + t;
  };
  CHECK(check_calls(by_hand, x.to(kFloat64)).programs() == 0);
}

TEST_CASE("arguments of other types are other signatures") {
  auto scaled = compile([](const Tensor& x, auto k) { return x + k; });
  const Tensor x = tensor({1, 2});
  for (int i = 0; i < 4; ++i) {
    CHECK(scaled(x, int32_t(0)).dtype() == kInt64);
    CHECK(scaled(x, 0.0f).dtype() == kFloat32);
    CHECK(same_bits(scaled(x, 1.5f), x + 1.5f));
    CHECK(same_bits(scaled(x, 0x3fc00000), x + 0x3fc00000));
  }
  CHECK(scaled.programs() == 4);
  struct Two {
    Tensor a, b;
  };
  struct Overloads {
    Tensor operator()(const Tensor& a, const Tensor& b) const { return a - b; }
    std::pair<Tensor, Tensor> operator()(const Two& t) const { return {t.b, t.a + t.b}; }
  };
  auto either = compile(Overloads());
  const Tensor a = tensor({1., 2.}), b = tensor({5., 7.});
  for (int i = 0; i < 4; ++i) {
    CHECK(same_bits(either(a, b), a - b));
    CHECK(same_bits(either(Two{a, b}).second, a + b));
  }
  using Lists = std::pair<std::vector<Tensor>, std::vector<Tensor>>;  // three tensors either way
  auto first = compile([](const Lists& lists) { return lists.first.back() * double(lists.second.size()); });
  for (int i = 0; i < 4; ++i) CHECK(same_bits(first(Lists{{a}, {b, b}}), a * 2.));
  for (int i = 0; i < 4; ++i) CHECK(same_bits(first(Lists{{a, b}, {b}}), b));
  CHECK(first.programs() == 2);
  auto with_text = compile([](const Tensor& x, std::string_view text) { return x + (text == "a" ? 1 : 2); });
  for (int i = 0; i < 3; ++i) CHECK(same_bits(with_text(a, "a"), a + 1));
  CHECK(contains(message_of<ValueError>([&] { with_text(a, static_cast<const char*>(nullptr)); }), "null pointer"));
}

TEST_CASE("a parameter that is replaced is noticed, though another program watches the old one") {
  Net net;
  const Tensor x = ones({3});
  auto train = compile([&](const Tensor& x) {
    net.zero_grad();
    sum(net(x)).backward();
  });
  auto eval = compile([&](const Tensor& x) {
    NoGrad guard;
    return net(x);
  });
  for (int i = 0; i < 5; ++i) train(x), eval(x);
  CHECK(train.programs() + eval.programs() == 2);
  net.w = Parameter(full({3}, 9.));
  for (int i = 0; i < 4; ++i) CHECK(same_bits(eval(x), full({3}, 9.)));

  const StateDict old = net.state_dict();  // holds what is replaced now
  auto alone = compile([&](const Tensor& x) {
    NoGrad guard;
    return net(x) + 1;
  });
  for (int i = 0; i < 4; ++i) CHECK(same_bits(alone(x), full({3}, 10.)));
  net.w = Parameter(full({3}, 4.));
  CHECK(same_bits(alone(x), full({3}, 5.)));

  Tensor leaf = ones({2}).requires_grad_();
  auto itself = compile([&] {
    leaf.set_grad({});
    sum(leaf * 3).backward();
    return leaf;
  });
  for (int i = 0; i < 4; ++i) itself();
  leaf = full({2}, 5.).requires_grad_();
  for (int i = 0; i < 4; ++i) CHECK(itself().is_same(leaf));
}

TEST_CASE("gradients that are only read are found where they are") {
  Tensor w = ones({3}).requires_grad_();
  const auto norm = [&] {
    NoGrad guard;
    return sum(square(w.grad()));
  };
  auto fast = compile(norm);
  std::vector<Tensor> kept;
  for (int i = 0; i < 12; ++i) {
    w.set_grad({});
    sum(w * double(i + 1)).backward();
    CHECK(same_bits(fast(), norm()));
    if (i % 3 == 2) kept.push_back(w.grad());
  }
  CHECK(fast.programs() == 1);

  DropNet nets[2];
  nets[0].eval(), nets[1].eval();
  nets[1].load_state_dict(nets[0].state_dict());
  std::vector<std::unique_ptr<optim::Adam>> opts;
  for (DropNet& net : nets) opts.push_back(std::make_unique<optim::Adam>(net.parameters(), optim::AdamOptions{}));
  const auto gradients = [](DropNet& net, const Tensor& x) {
    net.zero_grad();
    sum(square(net(x))).backward();
  };
  auto fast_gradients = compile([&](const Tensor& x) { gradients(nets[0], x); });
  auto fast_update = compile([&] { opts[0]->step(); });
  for (int i = 0; i < 10; ++i) {
    const Tensor x = sin(arange(0., 48., 1., {.dtype = kFloat32}) + i).reshape({6, 8});
    fast_gradients(x), fast_update();
    gradients(nets[1], x), opts[1]->step();
    for (size_t k = 0; k < nets[0].parameters().size(); ++k)
      CHECK(same_values(nets[0].parameters()[k].detach(), nets[1].parameters()[k].detach()));
  }
  CHECK(fast_gradients.programs() == 1);
  CHECK(fast_update.programs() >= 1);
}

TEST_CASE("a result that is the gradient, and a captured tensor that was it") {
  Tensor w = ones({3}).requires_grad_();
  auto add = compile([&](const Tensor& x) {
    sum(w * x).backward();
    return w.grad();
  });
  const Tensor x = full({3}, 2.);
  for (int i = 0; i < 5; ++i) CHECK(same_bits(add(x), full({3}, 2. * (i + 1))));
  w.set_grad(full({3}, 100.));
  for (int i = 0; i < 5; ++i) {
    CHECK(same_bits(add(x), w.grad()));
    CHECK(same_bits(w.grad(), full({3}, 100. + 2 * (i + 1))));
  }
  w.set_grad(full({3}, 10.));
  const Tensor first = w.grad();
  auto both = compile([&](const Tensor& x) {
    sum(w * x).backward();
    return first * 1;
  });
  for (int i = 0; i < 4; ++i) CHECK(same_bits(both(x), full({3}, 10. + 2 * (i + 1))));
  w.set_grad(full({3}, 200.));
  for (int i = 0; i < 4; ++i) CHECK(same_bits(both(x), full({3}, 18.)));
}

TEST_CASE("two parameters that are given one gradient") {
  Tensor a = ones({2}).requires_grad_(), b = ones({2}).requires_grad_();
  auto add = compile([&](const Tensor& x) { sum(a * x + b * x).backward(); });
  const Tensor x = full({2}, 3.);
  for (int i = 0; i < 5; ++i) add(x);
  a.set_grad(full({2}, 1.));
  b.set_grad(a.grad());
  add(x);
  CHECK(same_bits(a.grad(), full({2}, 7.)));
  CHECK(a.grad().is_same(b.grad()));
}

TEST_CASE("what a function makes of an argument's own handle it makes of the argument") {
  auto leaf = compile([](Tensor t) {
    t.requires_grad_();
    sum(t * t).backward();
  });
  for (int i = 0; i < 3; ++i) {
    const Tensor x = full({2}, 3.);
    leaf(x);
    CHECK(x.requires_grad());
    CHECK(same_bits(x.grad(), full({2}, 6.)));
  }
  auto longer = compile([](Tensor t) { unsqueeze_(t, 0); });
  for (int i = 0; i < 3; ++i) {
    const Tensor x = ones({2});
    longer(x);
    CHECK(x.shape() == Shape{1, 2});
  }
  const Tensor all = tensor({0., 1., 2., 3.});
  check_calls([](const Tensor& x) { return as_strided(x, {2}, {1}, 0) * 1; }, all.narrow(0, 2, 2));
  auto place = compile([](const Tensor& x) { return x + double(x.storage_offset()); });
  CHECK(same_bits(place(all.narrow(0, 2, 2)), tensor({4., 5.})));
  Tensor written = ones({2});
  written.add_(1);
  const uint32_t before = written.version();
  auto grow = compile([](Tensor t) { t.add_(1); });
  grow(written);
  CHECK(written.version() == before + 1);
}

TEST_CASE("leaves made inside: of memory from outside, and as results") {
  Tensor w = ones({3}), x0 = full({3}, 2.);
  const auto slope = [&](const Tensor& k) {
    Tensor x = x0.detach().requires_grad_();
    sum(x * x * k).backward();
    return x.grad();
  };
  auto fast = compile(slope);
  for (int i = 1; i < 6; ++i) CHECK(same_bits(fast(full({3}, double(i))), full({3}, 4. * i)));
  CHECK(fast.programs() == 1);
  auto made = compile([](const Tensor& x) { return (x * 2).detach().requires_grad_(); });
  for (int i = 0; i < 4; ++i) CHECK(made(w).requires_grad());
}

namespace {

struct Critic : nn::Module {
  nn::Linear a{6, 8}, b{8, 1};
  Tensor forward(const Tensor& x) { return b(tanh(a(x))); }
  TAPIR_FIELDS(a, b)
};

}  // namespace

TEST_CASE("review 7: a step with a gradient penalty, which makes a leaf inside and returns the loss, is replayed") {
  for (const bool mixed : {true, false}) {  // or a leaf in the argument's memory
    std::vector<Tensor> left[2];
    for (int compiled : {0, 1}) {
      manual_seed(5);
      Critic critic;
      optim::AdamW opt(critic.parameters(), {.lr = 1e-2, .betas = {0, 0.9}});
      auto step = compile(
          [&](const Tensor& real, const Tensor& fake) {
            opt.zero_grad();
            const Tensor part = rand({real.size(0), 1});
            const Tensor x = (mixed ? part * real + (1 - part) * fake : real).detach().requires_grad_();
            const Tensor slope = grad({sum(critic(x))}, {x}, {}, {.create_graph = true})[0];
            const Tensor penalty = mean(square(linalg::vector_norm(slope, 2, 1) - 1));
            const Tensor loss = mean(critic(fake)) - mean(critic(real)) + 10 * penalty;
            loss.backward();
            opt.step();
            return std::tuple{loss, penalty};
          },
          {.enabled = bool(compiled)});
      for (int i = 0; i < 8; ++i) {
        const Tensor x = sin(arange(0., 24., 1., {.dtype = kFloat32}) * (0.1 * (i + 1))).reshape({4, 6});
        const auto [loss, penalty] = step(x, cos(x));
        if (compiled) CHECK_FALSE(loss.requires_grad());
        left[compiled].push_back(loss.detach().clone()), left[compiled].push_back(penalty.detach().clone());
        for (const Tensor& t : left_by(critic)) left[compiled].push_back(t);
      }
      INFO(step.explain().substr(0, 600));
      if (compiled) CHECK(replays_of(step) == 5);
    }
    REQUIRE(left[0].size() == left[1].size());
    for (size_t i = 0; i < left[0].size(); ++i) CHECK(same_bits(left[0][i], left[1][i]));
  }
}

TEST_CASE("a result that is not differentiated keeps its history") {
  Tensor w = ones({3}).requires_grad_();
  const auto with_rest = [&](const Tensor& x, bool detached) {
    Tensor loss = sum(w * x), rest = w * 2;
    w.set_grad({});
    loss.backward();
    return std::pair{loss, detached ? rest.detach() : rest};
  };
  auto kept = compile(with_rest);
  for (int i = 0; i < 6; ++i) CHECK(kept(full({3}, double(i)), false).second.requires_grad());
  CHECK(contains(kept.explain(), "its results have a history, and no backward went through all of it yet"));
  for (int i = 0; i < 6; ++i) CHECK(same_bits(kept(full({3}, double(i)), true).first, full({}, 3. * i)));
  CHECK(replays_of(kept) == 4);
}

TEST_CASE("memory that may not be written is refused in replays too") {
  auto grow = compile([](Tensor t) { t.add_(1); });
  for (int i = 0; i < 4; ++i) grow(ones({2}));
  Tensor fixed(ones({2}));
  fixed.impl().storage->read_only = true;
  CHECK_THROWS(grow(fixed));
  CHECK(same_bits(fixed, ones({2})));
}
