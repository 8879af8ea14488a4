// compile(): what is replayed, what is noticed, what is refused.
#include <thread>

#include "../core/messages.h"
#include "steps.h"
#include "training.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

auto mlp_batch = [](int i) {
  const Tensor all = reshape(sin(arange(0., 8. * 6 * 10, 1., {.dtype = kFloat32})), {10, 6, 8});
  return std::pair(all.select(0, i % 10), remainder(arange(6) + i, 4).to(kInt64));
};
/// Two steps that warm up and confirm, and one that is replayed.
template <class C, class... A> void warm(C& step, const A&... a) {
  for (int i = 0; i < 3; ++i) step(a...);
}

}  // namespace

TEST_CASE("compiled training steps with dropout are eager's: AdamW, SGD, clipping, accumulation") {
  const auto with = [](auto make_step) { check_compiled([] { return DropNet(); }, make_step, mlp_batch); };
  with([](DropNet& net) {
    return [&net, opt = optim::AdamW(net.parameters(), {.lr = 1e-2})](const Tensor& x, const Tensor& y) mutable {
      opt.zero_grad();
      Tensor loss = cross_entropy(net(x), y);
      loss.backward();
      opt.step();
      return loss;
    };
  });
  with([](DropNet& net) {
    return [&net, opt = optim::SGD(net.parameters(), {.lr = 1e-2, .momentum = 0.9})](const Tensor& x,
                                                                                     const Tensor& y) mutable {
      Tensor loss = cross_entropy(net(x), y);
      loss.backward();
      optim::clip_grad_norm_(net.parameters(), 0.1);
      opt.step();
      opt.zero_grad(false);
      return loss;
    };
  });
  with([](DropNet& net) {  // gradients are dropped outside
    return [&net, opt = optim::SGD(net.parameters(), {.lr = 1e-2})](const Tensor& x, const Tensor& y) mutable {
      Tensor loss = cross_entropy(net(x), y);
      loss.backward();
      opt.step();
      opt.zero_grad();
      return loss;
    };
  });
}

TEST_CASE("a compiled step of a net with batch norm is eager's") {
  const auto batch = [](int i) {
    return std::pair(reshape(cos(arange(0., 4 * 3 * 64, 1., {.dtype = kFloat32}) * (i + 1)), {4, 3, 8, 8}),
                     remainder(arange(4) + i, 5).to(kInt64));
  };
  check_compiled([] { return PoolNet(); },
                 [](PoolNet& net) {
                   return [&net, opt = optim::Adam(net.parameters(), {.lr = 1e-2})](const Tensor& x,
                                                                                    const Tensor& y) mutable {
                     opt.zero_grad();
                     Tensor loss = cross_entropy(net(x), y);
                     loss.backward();
                     opt.step();
                     return loss.detach();
                   };
                 },
                 batch);
}

TEST_CASE("backward alone is compiled, with and without gradients that are there") {
  manual_seed(1);
  DropNet net;
  net.eval();
  auto micro = compile([&](const Tensor& x, const Tensor& y) { cross_entropy(net(x), y).backward(); });
  for (int step = 0; step < 6; ++step) {
    net.zero_grad();
    std::vector<Tensor> want;
    for (int k = 0; k < 3; ++k) {
      const auto [x, y] = mlp_batch(step * 3 + k);
      const auto fresh = grad({cross_entropy(net(x), y)}, net.parameters());
      for (size_t i = 0; i < fresh.size(); ++i)
        if (k == 0) want.push_back(fresh[i].clone());
        else want[i] = want[i] + fresh[i];
      micro(x, y);
      for (size_t i = 0; i < want.size(); ++i) CHECK(same_values(net.parameters()[i].grad(), want[i]));
    }
  }
  INFO(micro.explain());
  CHECK(micro.programs() == 2);
}

TEST_CASE("results and gradients that are kept are not overwritten, and replays are bitwise equal") {
  Tensor w = full({3}, 2.0).requires_grad_();
  auto f = compile([&](const Tensor& x) {
    w.set_grad({});
    const Tensor y = w * x;
    sum(y).backward();
    return std::pair(y.detach(), sum(y.detach()));
  });
  std::vector<Tensor> results, grads;
  for (int i = 0; i < 8; ++i) {
    results.push_back(f(full({3}, double(i))).first);
    grads.push_back(w.grad());
  }
  CHECK(f.programs() == 1);
  for (int i = 0; i < 8; ++i) {
    CHECK(same_bits(results[size_t(i)], full({3}, 2.0 * i)));
    CHECK(same_bits(grads[size_t(i)], full({3}, double(i))));
  }
  const Tensor x = full({3}, 0.3);
  const Tensor once = f(x).second.clone();
  for (int i = 0; i < 4; ++i) CHECK(same_bits(f(x).second, once));
}

TEST_CASE("arguments: numbers, lists, tuples and aggregates select programs; results keep their structure") {
  struct Batch {
    Tensor x, y;
  };
  auto f = compile([](const Batch& b, double k, const std::vector<Tensor>& more, bool on) {
    std::vector<Tensor> out = {on ? b.x * k : b.x + k};
    for (const Tensor& t : more) out.push_back(t + b.y);
    return std::tuple(out, Batch{b.x, b.x.narrow(0, 1, 1)});
  });
  const Tensor x = tensor({1., 2.}), y = tensor({5.});
  for (int i = 0; i < 4; ++i) {
    for (double k : {2., 3.}) {
      const auto [out, batch] = f(Batch{x, y}, k, std::vector{x, y}, true);
      REQUIRE(out.size() == 3);
      CHECK(same_bits(out[0], tensor({k, 2 * k})));
      CHECK(same_bits(out[1], tensor({6., 7.})));
      CHECK(same_bits(out[2], tensor({10.})));
      CHECK(same_bits(batch.x, x));
      CHECK(same_bits(batch.y, tensor({2.})));
    }
    CHECK(same_bits(std::get<0>(f(Batch{x, y}, 2., std::vector{x}, false))[0], tensor({3., 4.})));
  }
  CHECK(f.programs() == 3);
}

TEST_CASE("an argument may lie anywhere: views of one tensor, other strides, memory that the function captured too") {
  const Tensor all = arange(0., 40., 1., {.dtype = kFloat32}).reshape({10, 4});
  auto f = compile([&](const Tensor& row) { return row * 2 + all.select(0, 1); });
  for (int i = 0; i < 10; ++i) CHECK(same_bits(f(all.select(0, i)), all.select(0, i) * 2 + all.select(0, 1)));
  CHECK(f.programs() == 1);
  for (int i = 0; i < 3; ++i)
    CHECK(same_bits(f(t(all).narrow(1, 0, 4).select(0, 1)), tensor({1.f, 5.f, 9.f, 13.f}) * 2 + all.select(0, 1)));
  CHECK(f.programs() == 2);
  auto g = compile([](const Tensor& a, const Tensor& b) { return a - b; });
  for (int i = 0; i < 4; ++i) {
    CHECK(same_bits(g(all.select(0, 2), all.select(0, 1)), full({4}, 4.)));
    CHECK(same_bits(g(all, all), zeros({10, 4})));
  }
}

TEST_CASE("arguments that are written in place, and that share memory with what is written") {
  Tensor total = zeros({3});
  auto f = compile([&](const Tensor& x) {
    Tensor(x).add_(1);
    total.add_(x);
  });
  for (int i = 0; i < 5; ++i) {
    const Tensor x = full({3}, double(i));
    const uint32_t before = x.version();
    f(x);
    CHECK(same_bits(x, full({3}, i + 1.)));
    CHECK(x.version() > before);
  }
  CHECK(same_bits(total, full({3}, 15.)));
  f(total);  // of its own signature: the same memory twice
  CHECK(same_bits(total, full({3}, 32.)));
  const uint32_t before = total.version();
  f(zeros({3}));
  CHECK(total.version() > before);
}

TEST_CASE("random numbers follow the generator: dropout masks, seeds, other calls between") {
  const Tensor x = ones({50});
  auto f = compile([](const Tensor& x) { return dropout(x, 0.5) + rand({50}); });
  const auto eager = [&] { return dropout(x, 0.5) + rand({50}); };
  std::vector<Tensor> want, got;
  for (bool compiled : {false, true}) {
    manual_seed(3);
    for (int i = 0; i < 6; ++i) {
      (compiled ? got : want).push_back(compiled ? f(x) : eager());
      if (i == 4) manual_seed(99);
      rand({3});
    }
  }
  for (size_t i = 0; i < want.size(); ++i) CHECK(same_bits(want[i], got[i]));
  CHECK(f.programs() == 1);
}

TEST_CASE("a guard notices replaced storage, flags and exchanged state") {
  manual_seed(2);
  DropNet net;
  const auto [x, y] = mlp_batch(0);
  auto f = compile([&](const Tensor& x) {
    NoGrad guard;
    return net(x);
  });
  const auto same = [&](const Tensor& x) {
    for (int i = 0; i < 4; ++i) {
      const uint64_t at = default_generator().offset();
      const Tensor got = f(x);
      default_generator().set_state(default_generator().seed(), at);
      NoGrad guard;
      CHECK(same_values(got, net(x), 1e-6));
    }
  };
  same(x);
  net.eval();
  same(x);
  net.drop.training = true;
  same(x);
  net.train();
  same(x);
  const StateDict kept = net.state_dict();  // keeps the old memory alive
  net.to(kFloat64);
  same(x.to(kFloat64));
  net.to(kFloat32);
  same(x);
  const StateDict held = net.state_dict();
  net = DropNet();
  same(x);
  net.b = nn::Linear(16, 4);
  same(x);
  StateDict state;
  for (auto& [name, t] : net.state_dict()) state.set(name, full(t.shape(), 0.5));
  net.load_state_dict(state);
  same(x);
}

TEST_CASE("frozen and thawed parameters select programs") {
  Tensor a = ones({2}).requires_grad_(), b = ones({2}).requires_grad_();
  auto f = compile([&](const Tensor& x) {
    a.set_grad({}), b.set_grad({});
    sum(a * x + b * b * x).backward();
  });
  for (int round = 0; round < 4; ++round)
    for (bool on : {true, false}) {
      b.requires_grad_(on);
      for (int i = 0; i < 3; ++i) {
        f(full({2}, 3.));
        CHECK(same_bits(a.grad(), full({2}, 3.)));
        CHECK(b.grad().defined() == on);
        if (on) CHECK(same_bits(b.grad(), full({2}, 6.)));
      }
    }
  CHECK(f.programs() == 2);
}

TEST_CASE("learning rates that a schedule changes need no new program; schedules inside are refused") {
  Tensor w = ones({2}).requires_grad_();
  optim::SGD opt({w}, {.lr = 1});
  optim::StepLR schedule(opt, 1, {.gamma = 0.5});
  auto f = compile([&] {
    opt.zero_grad();
    sum(w).backward();
    opt.step();
  });
  double want = 1, lr = 1;
  for (int i = 0; i < 8; ++i) {
    f();
    want -= lr, lr /= 2;
    schedule.step();
    CHECK(w.to_vector<float>()[0] == Approx(want));
  }
  CHECK(f.programs() == 1);
  auto inside = compile([&] { schedule.step(); });
  CHECK(contains(message_of<ValueError>([&] { inside(); }), "outside of compile()"));
}

TEST_CASE("versions: a graph made before a replay that writes its weights is refused") {
  Tensor w = ones({3}).requires_grad_();
  const Tensor x = ones({3});
  auto update = compile([&] {
    NoGrad guard;
    w.mul_(2);
  });
  warm(update);
  const Tensor y = sum(w * w);
  update();
  CHECK_THROWS_AS(y.backward(), ValueError);
  CHECK(same_bits(w.detach(), full({3}, 16.)));
}

TEST_CASE("what cannot be replayed runs as it is: changing numbers, tensors that are exchanged") {
  int count = 0;
  auto counting = compile([&](const Tensor& x) { return x + (++count); });
  for (int i = 1; i < 12; ++i) CHECK(same_bits(counting(zeros({2})), full({2}, double(i))));
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // which stand around backtrace(), in the first frame
  CHECK(contains(counting.explain(), "compile_test.cpp"));
#endif
  CHECK(contains(counting.explain(), "an argument or a tensor"));

  Tensor state = zeros({2});
  auto carried = compile([&](const Tensor& x) { state = state + x; });
  for (int i = 1; i < 12; ++i) {
    carried(ones({2}));
    CHECK(same_bits(state, full({2}, double(i))));
  }
  CHECK(contains(carried.explain(), "kept outside"));

  Tensor leaf = ones({2}).requires_grad_();
  auto of_leaf = compile([&](const Tensor& x) { sum(x * 3).backward(); });
  for (int i = 1; i < 4; ++i) {
    of_leaf(leaf);
    CHECK(same_bits(leaf.grad(), full({2}, 3. * i)));
  }
}

TEST_CASE("what code outside of the kernels computes is not replayed; tensor() inside is a constant") {
  auto twice = compile([](const Tensor& x) {
    const Tensor y = empty({2});
    for (int i = 0; i < 2; ++i) y.data<float>()[i] = 2 * x.data<float>()[i];
    return y + 1;
  });
  for (int i = 0; i < 9; ++i) CHECK(same_bits(twice(full({2}, i < 5 ? 1. : i)), full({2}, i < 5 ? 3. : 2. * i + 1)));
  CHECK(twice.programs() == 0);
  CHECK(contains(twice.explain(), "which no kernel wrote"));
  Tensor counter = zeros({1});
  const auto replays_nothing = [](auto f) {
    auto fast = compile(f);
    for (int i = 1; i < 7; ++i) CHECK(same_bits(fast(full({2}, double(i))), f(full({2}, double(i)))));
    CHECK(fast.programs() == 0);
    CHECK(contains(fast.explain(), "data<T>()"));
  };
  replays_nothing([](const Tensor& x) {  // an argument is read
    return x * double(x.data<float>()[1]);
  });
  replays_nothing([](const Tensor& x) {  // a kernel's result is changed
    Tensor m = zeros({2});
    m.data<float>()[1] = 1;
    return x + m;
  });
  replays_nothing([&](const Tensor& x) {  // the world outside is read
    counter.data<float>()[0] = 2;
    return x + double(counter.data<float>()[0]);
  });
  auto with_numbers = compile([](const Tensor& x) { return (x + tensor({1., 2.})).mul_(tensor({2, 3})); });
  for (int i = 0; i < 5; ++i) CHECK(same_bits(with_numbers(full({2}, double(i))), tensor({2. * i + 2, 3. * i + 6})));
  CHECK(with_numbers.programs() == 1);
}

TEST_CASE("host reads and shapes that depend on values are errors with a place; afterwards everything goes on") {
  const Tensor x = ones({3});
  bool bad = true;
  auto f = compile([&](const Tensor& x) {
    if (bad) return x * sum(x).item();
    return x * 3;
  });
  for (int i = 0; i < 2; ++i) {
    const std::string message = message_of<ValueError>([&] { f(x); });
    CHECK(contains(message, "[item] expected nothing that the host must read"));
    CHECK(contains(message, "compile_test.cpp:"));
  }
  CHECK(sum(x).item() == 3);
  bad = false;
  for (int i = 0; i < 4; ++i) CHECK(same_bits(f(x), full({3}, 3.)));
  CHECK(f.programs() == 1);
  auto g = compile([](const Tensor& x) { return nonzero(x); });
  CHECK(contains(message_of<ValueError>([&] { g(x); }), "where()"));
}

TEST_CASE("an exception in the middle of a replay: a label out of range") {
  Tensor w = ones({3, 4}).requires_grad_();
  auto f = compile([&](const Tensor& labels) {
    w.set_grad({});
    const Tensor loss = cross_entropy(w * 1, labels);
    loss.backward();
    return loss.detach();
  });
  const Tensor good = tensor({0, 1, 2}), bad = tensor({0, 1, 9});
  warm(f, good);
  const Tensor want = f(good);
  for (int i = 0; i < 3; ++i) {
    CHECK_THROWS_AS(f(bad), ValueError);
    CHECK(same_bits(f(good), want));
  }
  CHECK(f.programs() == 1);
}

TEST_CASE("an argument that the function captured too, or keeps, is an argument") {
  const Tensor a = full({4}, 1.), b = full({4}, 10.);
  auto captured = compile([&](const Tensor& x) { return x + a * 2; });
  for (int i = 0; i < 4; ++i) CHECK(same_bits(captured(a), full({4}, 3.)));
  CHECK(captured.programs() == 1);
  CHECK(same_bits(captured(b), full({4}, 12.)));
  auto difference = compile([a](const Tensor& x) { return x - a; });
  for (const Tensor& x : {a, a, a, b, a, b}) CHECK(same_bits(difference(x), x - a));

  NoGrad guard;
  const Parameter online(full({2}, 8.)), target(full({2}, 1.));
  auto soft = compile([&](const Tensor& t) { t.detach().mul_(0.5).add_(online); });
  for (int i = 0; i < 4; ++i) soft(online);  // half of it, added to itself
  soft(target);
  CHECK(same_bits(online, full({2}, 8.)));
  CHECK(same_bits(target, full({2}, 8.5)));
  soft.reset();
  for (int i = 0; i < 4; ++i) soft(online.detach());
  soft(target.detach());
  CHECK(same_bits(online, full({2}, 8.)));
  CHECK(same_bits(target, full({2}, 12.25)));
  auto descend = compile([](const Tensor& p) { Tensor(p).sub_(p.grad()); });
  for (int i = 0; i < 5; ++i) {
    const Tensor p = full({2}, 3.);
    p.set_grad(full({2}, double(i)));
    descend(p);
    CHECK(same_bits(p, full({2}, 3. - i)));
  }

  Tensor last, row;
  auto keeping = compile([&](const Tensor& x) {
    last = x;
    return x * 2;
  });
  auto keeping_view = compile([&](const Tensor& x) { row = x.narrow(0, 1, 1); });
  for (int i = 0; i < 9; ++i) {
    keeping(full({2}, double(i))), keeping_view(full({2}, double(i)));
    CHECK(same_bits(last, full({2}, double(i))));
    CHECK(same_bits(row, full({1}, double(i))));
  }
  CHECK(contains(keeping.explain(), "an argument is kept outside"));
  CHECK(contains(keeping_view.explain(), "an argument is kept outside"));
}

TEST_CASE("results that are arguments are the same tensors, recorded and replayed; writes raise the version") {
  auto add = compile([](const Tensor& x, const Tensor& y) { return std::pair(Tensor(x).add_(y), x.narrow(0, 1, 2)); });
  for (int i = 0; i < 5; ++i) {
    const Tensor x = full({3}, double(i));
    const uint32_t before = x.version();
    auto [y, part] = add(x, ones({3}));
    CHECK(y.is_same(x));
    CHECK(x.version() > before);
    part.fill_(7);
    CHECK(part.version() == x.version());
    CHECK(same_bits(x, tensor({i + 1.f, 7.f, 7.f})));
  }
  CHECK(add.programs() == 1);
  auto bad = compile([](const Tensor& x) {
    Tensor(x).add_(1);
    throw ValueError("stop");
  });
  const Tensor x = zeros({2});
  CHECK_THROWS_AS(bad(x), ValueError);
  CHECK(x.version() == 1);
}

TEST_CASE("an argument that is the gradient which a replay writes") {
  nn::Linear a(3, 3), b = a.clone();
  const auto step = [](nn::Linear& net, const Tensor& x, const Tensor& g) {
    sum(square(net(x))).backward();
    return g * 2;
  };
  auto f = compile([&](const Tensor& x, const Tensor& g) { return step(a, x, g); });
  const Tensor x = ones({2, 3}), other = zeros({3, 3});
  for (int i = 0; i < 5; ++i) f(x, other), step(b, x, other);
  CHECK(f.programs() >= 1);
  CHECK(same_values(f(x, a.weight.grad().detach()), step(b, x, b.weight.grad().detach())));
  CHECK(same_values(f(x, a.weight.grad().narrow(0, 0, 3)), step(b, x, b.weight.grad().narrow(0, 0, 3))));
}

TEST_CASE("hooks, replaced modules and computed parameters are noticed after recording") {
  const Tensor x = ones({2, 8});
  nn::Linear net(8, 8);
  const optim::SGD keeps(net.parameters(), {.lr = 0.1});
  auto forward = compile([&](const Tensor& x) {
    NoGrad guard;
    return net(x);
  });
  const auto same = [&] {
    for (int i = 0; i < 4; ++i) {
      const Tensor got = forward(x);
      NoGrad guard;
      CHECK(same_values(got, net(x)));
    }
    CHECK(forward.programs() == 1);
  };
  same();
  const int64_t id = net.register_forward_hook(
      [](nn::Module&, std::vector<Tensor>&, std::vector<Tensor>& out) { out[0] = zeros_like(out[0]); });
  same();
  CHECK(sum(abs(forward(x))).item() == 0);
  net.remove_hook(id);
  same();
  CHECK(sum(abs(forward(x))).item() > 0);
  quant::quantize_dynamic_(net);
  for (int i = 0; i < 4; ++i) {
    const Tensor got = forward(x);
    NoGrad guard;
    CHECK(same_bits(got, net(x)));
  }

  Tensor w = ones({3}).requires_grad_();
  auto backward = compile([&](const Tensor& x) {
    w.set_grad({});
    sum(w * x).backward();
  });
  warm(backward, ones({3}));
  CHECK(backward.programs() == 1);
  const int64_t hook = w.register_hook([](const Tensor& g) { return g * 5; });
  for (int i = 0; i < 4; ++i) {
    backward(ones({3}));
    CHECK(same_bits(w.grad(), full({3}, 5.)));
  }
  CHECK(backward.programs() == 1);
  w.remove_hook(hook);
  backward(ones({3}));
  CHECK(same_bits(w.grad(), ones({3})));
}

TEST_CASE("accumulation with its condition as an argument is eager's; an exception in between leaves nothing behind") {
  manual_seed(5);
  nn::Linear a(3, 2), b = a.clone();
  const auto make = [](nn::Linear& net) {
    return
        [&net, opt = optim::SGD(net.parameters(), {.lr = 0.1})](const Tensor& x, const Tensor& at, bool last) mutable {
          const Tensor loss = sum(square(net(x)));
          loss.backward();
          const Tensor picked = gather(x, 0, at);
          if (last) opt.step(), opt.zero_grad();
          return std::pair(loss, picked);
        };
  };
  auto eager = make(a);
  auto fast = compile(make(b));
  const Tensor good = zeros({1, 3}, {.dtype = kInt64}), bad = full({1, 3}, 9, {.dtype = kInt64});
  const auto steps = [&] {
    for (int i = 0; i < 24; ++i) {
      const Tensor x = randn({4, 3});
      CHECK(same_values(eager(x, good, i % 4 == 3).first, fast(x, good, i % 4 == 3).first));
      CHECK(same_values(a.weight, b.weight));
    }
  };
  steps();
  CHECK(fast.programs() >= 2);
  CHECK_FALSE(fast(randn({4, 3}), good, false).first.requires_grad());
  CHECK_THROWS_AS(fast(randn({4, 3}), bad, false), ValueError);
  b.zero_grad();
  steps();
}

TEST_CASE("more signatures than max_programs in turn: results are right, and some are replayed") {
  auto f = compile([](const Tensor& x) { return x + 1; }, {.max_programs = 2});
  for (int round = 0; round < 4; ++round)
    for (int n = 1; n < 5; ++n) CHECK(same_bits(f(zeros({n})), ones({n})));
  CHECK(f.programs() == 2);
  f.reset();
  CHECK(f.programs() == 0);
  CHECK_THROWS_AS(compile([](const Tensor& x) { return x; }, {.max_programs = -1}), ValueError);
}

TEST_CASE("compiled functions within compiled functions, and in several threads") {
  auto inner = compile([](const Tensor& x) { return x * 2; });
  auto outer = compile([&](const Tensor& x) { return inner(x) + 1; });
  for (int i = 0; i < 4; ++i) CHECK(same_bits(outer(ones({2})), full({2}, 3.)));
  CHECK(outer.programs() == 1);
  CHECK(inner.programs() == 0);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int k = 0; k < 4; ++k)
    threads.emplace_back([&, k] {
      for (int i = 0; i < 50; ++i)
        if (!same_bits(outer(full({2}, double(k))), full({2}, 2. * k + 1))) ++wrong;
    });
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);

  int inside = 0, most = 0;  // calls that run as they are take turns too, and may call themselves
  std::function<Tensor(const Tensor&)> again;
  auto eager = compile(
      [&](const Tensor& x) {
        most = std::max(most, ++inside);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const Tensor y = x.numel() > 1 ? again(x.narrow(0, 1, x.numel() - 1)) : x + 1;
        --inside;
        return y;
      },
      {.max_programs = 0});
  again = [&](const Tensor& x) { return eager(x); };
  threads.clear();
  for (int k = 0; k < 3; ++k)
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i)
        if (!same_bits(eager(zeros({2})), ones({1}))) ++wrong;
    });
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(most == 2);
}

TEST_CASE("gradient scaling, autocast and a loss that skips steps") {
  check_compiled([] { return DropNet(); },
                 [](DropNet& net) {
                   return [&net, opt = optim::AdamW(net.parameters(), {.lr = 1e-2}),
                           scaler = amp::GradScaler({.init_scale = 1e38, .growth_interval = 3})](
                              const Tensor& x, const Tensor& y) mutable {
                     opt.zero_grad();
                     Tensor loss;
                     {
                       amp::Autocast autocast(kCPU, {.dtype = kBFloat16});
                       loss = cross_entropy(net(x), y);
                     }
                     scaler.scale(loss * 100).backward();
                     scaler.step(opt);
                     scaler.update();
                     return loss;
                   };
                 },
                 mlp_batch);
  DropNet net;  // a region around the call keeps casts of weights, which the program must not
  net.eval();
  const auto [x, y] = mlp_batch(0);
  auto f = compile([&](const Tensor& x) { return net(x); });
  NoGrad guard;
  amp::Autocast autocast(kCPU, {.dtype = kBFloat16});
  for (int i = 0; i < 5; ++i) {
    net.a.weight.mul_(1.5);
    CHECK(same_values(f(x), net(x), 1e-6));
  }
  CHECK(f.programs() == 1);
}

TEST_CASE(
    "a weight that a call uses twice under autocast is cast once, and its gradients are added as eager code adds "
    "them") {
  const Tensor w = wave({8, 8}, 0.3).requires_grad_(), x = wave({4, 8}, 0.2);
  const auto f = [&](const Tensor& x) { return matmul(matmul(x, w), w); };
  auto fast = compile(f, {.verify = 0});
  const auto gradient = [&](auto& forward) {
    const amp::Autocast autocast(kCPU, {.dtype = kBFloat16});
    return grad({forward(x).sum()}, {w})[0];
  };
  for (int i = 0; i < 6; ++i) CHECK(same_bits(gradient(fast), gradient(f)));
  CHECK(fast.programs() == 1);
}

TEST_CASE("explain() and dot() show the program") {
  auto f = compile([](const Tensor& x) { return sum(relu(x + 1) * zeros({3})); });
  CHECK(contains(f.explain(), "0 signatures"));
  f(ones({3}));
  CHECK(contains(f.explain(), "not replayed yet"));
  warm(f, ones({3}));
  const std::string text = f.explain();
  for (const char* word : {"kernel calls:", "recorded", "dead_code", "in one arena", "reduce(Sum)", "replayed 1 times",
                           "checked 1 times, which took"}) {
    INFO(word << " in\n" << text);
    CHECK(contains(text, word));
  }
  CHECK(contains(f.dot(), "digraph program"));
}

TEST_CASE("distributions take part in a compiled step: their parameters are not looked at while it is recorded") {
  const Tensor value = ones({3});
  const auto f = [&](const Tensor& x) { return distributions::Normal(x, exp(x)).log_prob(value); };
  auto fast = compile(f);
  for (int i = 0; i < 6; ++i) {
    const Tensor x = full({3}, 0.25 * i);
    CHECK(fast(x).to_vector<float>() == f(x).to_vector<float>());
  }
  CHECK(fast.explain().find("replayed 0 times") == std::string::npos);
}
