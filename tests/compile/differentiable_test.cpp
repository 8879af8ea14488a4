// Compiled functions whose results are differentiated outside: forward and backward are programs, and everything else is as in eager code.
#include <tapir/models/gpt2.h>

#include "../core/messages.h"
#include "steps.h"
#include "training.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

const auto rows = [](int i) { return std::pair(wave({6, 8}, 0.1 * (i + 1)), remainder(arange(6) + i, 4).to(kInt64)); };
const auto pictures = [](int i) {
  return std::pair(wave({4, 3, 8, 8}, 0.1 * (i + 1)), remainder(arange(4) + i, 4).to(kInt64));
};

/// Ordinary loops over net(x) and compile(net)(x): the same after each of 12 steps. Most calls are replays.
template <class Net, class Batch, class Loss> void check_loop(
    Batch batch, Loss loss_of, std::function<Net()> make_net = [] { return Net(); }, int replays = 6) {
  std::vector<Tensor> left[2];
  uint64_t offset[2];
  for (const bool compiled : {false, true}) {
    manual_seed(7);
    Net net = make_net();
    optim::AdamW opt(net.parameters(), {.lr = 0.01});
    auto fast = compile(net, {.enabled = compiled});
    for (int i = 0; i < 12; ++i) {
      const auto [x, y] = batch(i);
      opt.zero_grad();
      Tensor loss = loss_of(fast.forward(x), y);
      loss.backward();
      opt.step();
      left[compiled].push_back(loss.detach().clone());
      for (const Tensor& t : left_by(net)) left[compiled].push_back(t);
    }
    offset[compiled] = default_generator().offset();
    if (!compiled) continue;
    INFO(fast.explain().substr(0, 3000));
    CHECK(fast.programs() == 1);
    CHECK(fast.stats().size() == 2);
    CHECK(replays_of(fast) >= replays);
  }
  CHECK(offset[0] == offset[1]);
  REQUIRE(left[0].size() == left[1].size());
  for (size_t i = 0; i < left[0].size(); ++i) {
    INFO("tensor " << i << " of " << left[0].size());
    CHECK(same_values(left[0][i], left[1][i]));
  }
}

struct Mlp : nn::Module {
  nn::Linear a{8, 16}, b{16, 4};
  Tensor forward(const Tensor& x) { return b(gelu(a(x))); }
  TAPIR_FIELDS(a, b)
};
/// A function of x whose gradient reads w.
struct Quadratic {
  Tensor w = tensor({1.f, 2.f, 3.f}).requires_grad_();
  Tensor operator()(const Tensor& x) const { return tanh(w * x) * x + square(w); }
};

}  // namespace

TEST_CASE("compiled modules in an ordinary loop") {
  check_loop<Mlp>(rows, [](const Tensor& y, const Tensor& t) { return cross_entropy(y, t); });
  check_loop<DropNet>(rows, [](const Tensor& y, const Tensor& t) { return cross_entropy(y, t); });
  check_loop<PoolNet>(pictures, [](const Tensor& y, const Tensor& t) { return cross_entropy(y.narrow(1, 0, 4), t); });
}

TEST_CASE("compiled modules in an ordinary loop: a language model") {
  const auto texts = [](int i) {
    const Tensor all = remainder(arange(4 * 9) * (2 * i + 3) + i, 17).reshape({4, 9});
    return std::pair(all.narrow(1, 0, 8), all.narrow(1, 1, 8));
  };
  check_loop<models::GPT2LMHeadModel>(
      texts, [](const Tensor& scores, const Tensor& y) { return cross_entropy(flatten(scores, 0, 1), flatten(y)); },
      [] {
        return models::GPT2LMHeadModel({.vocab_size = 17, .n_positions = 8, .n_embd = 16, .n_layer = 2, .n_head = 2});
      });
}

TEST_CASE("differentiable calls: hooks, accumulation, two calls before one backward") {
  check_like_eager([](const CompileOptions& options) {
    std::vector<Tensor> left;
    Quadratic f;
    int hooks = 0;
    f.w.register_hook([&](const Tensor& g) { return ++hooks, g * 2; });
    auto fast = compile([&](const Tensor& x) { return f(x); }, options);
    for (int i = 0; i < 12; ++i) {
      const Tensor x = wave({3}, i + 1);
      if (i % 4 == 0) f.w.set_grad({});
      Tensor loss = sum(square(fast(x)));
      if (i % 3 == 0) loss = loss + sum(fast(x * 2));
      loss.backward();
      left.push_back(copy_of(f.w.grad()));
    }
    CHECK(hooks == 12);
    if (options.enabled) CHECK(replays_of(fast) >= 10);
    return left;
  });
}

TEST_CASE("differentiable calls: arguments with a history, and leaves") {
  check_like_eager([](const CompileOptions& options) {
    std::vector<Tensor> left;
    Quadratic f;
    Tensor v = ones({3}).requires_grad_(), leaf = ones({3}).requires_grad_();
    auto fast = compile([&](const Tensor& x, const Tensor& bias) { return f(x) + bias * x; }, options);
    for (int i = 0; i < 10; ++i) {
      for (const Tensor& p : {f.w, v, leaf}) p.set_grad({});
      sum(fast(v * wave({3}, i + 1), leaf) * 3).backward();
      for (const Tensor& p : {f.w, v, leaf}) left.push_back(copy_of(p.grad()));
    }
    INFO(fast.explain());
    if (options.enabled) CHECK(replays_of(fast) >= 6);
    return left;
  });
}

TEST_CASE("differentiable calls: several results, of which some have no history") {
  check_like_eager([](const CompileOptions& options) {
    std::vector<Tensor> left;
    Quadratic f;
    auto fast = compile(
        [&](const Tensor& x) {
          const Tensor y = f(x);
          return std::tuple(y, argmax(y, 0), sum(y), y.detach() * 2);
        },
        options);
    for (int i = 0; i < 10; ++i) {
      f.w.set_grad({});
      auto [y, at, total, twice] = fast(wave({3}, i + 1));
      (total * 2 + sum(y)).backward();
      for (const Tensor& t : {y, at, total, twice, f.w.grad()}) left.push_back(copy_of(t));
      CHECK(!at.requires_grad());
      CHECK(!twice.requires_grad());
    }
    if (options.enabled) CHECK(replays_of(fast) >= 6);
    return left;
  });
}

TEST_CASE("differentiable calls: retain_graph, a second backward that is refused, writes to what is saved") {
  Quadratic f;
  auto fast = compile([&](const Tensor& x) { return f(x); }, {.verify = 0});
  const Tensor x = ones({3});
  for (int i = 0; i < 4; ++i) sum(fast(x)).backward();
  REQUIRE(replays_of(fast) >= 1);
  f.w.set_grad({});
  sum(f(x)).backward();
  const Tensor want = f.w.grad().clone();

  Tensor y = sum(fast(x));
  f.w.set_grad({});
  y.backward({}, true);
  CHECK(same_bits(f.w.grad(), want));
  f.w.set_grad({});
  y.backward();
  CHECK(same_bits(f.w.grad(), want));
  CHECK(contains(message_of<ValueError>([&] { y.backward(); }), "a second time"));

  y = sum(fast(x));
  {
    NoGrad guard;
    f.w.mul_(1);
  }
  CHECK(contains(message_of<ValueError>([&] { y.backward(); }), "modified by an inplace operation"));
  sum(fast(x)).backward();
}

TEST_CASE("differentiable calls: double backward runs as it is, or is refused in words") {
  Quadratic f, eager;
  auto twice = compile([&](const Tensor& x) { return f(x); });
  for (int i = 0; i < 8; ++i) {
    const auto second = [&](auto& call, Tensor& w) {
      const Tensor g = grad({sum(call(wave({3}, i + 1)))}, {w}, {}, {.create_graph = true})[0];
      return grad({sum(square(g))}, {w})[0];
    };
    CHECK(same_bits(second(twice, f.w), second(eager, eager.w)));
  }
  CHECK(twice.programs() == 0);
  CHECK(contains(twice.explain(), "differentiated twice"));

  auto once = compile([&](const Tensor& x) { return f(x); }, {.verify = 0});
  const Tensor x = ones({3});
  for (int i = 0; i < 5; ++i) sum(once(x)).backward();
  REQUIRE(once.programs() == 1);
  CHECK(contains(message_of<ValueError>([&] { grad({sum(once(x))}, {f.w}, {}, {.create_graph = true}); }),
                 "[compile] a result is differentiated twice (create_graph)"));
  CHECK_NOTHROW(grad({sum(once(x))}, {f.w}, {}, {.create_graph = true}));  // the next call runs as it is
}

TEST_CASE("differentiable calls: results that nobody differentiates, and differentiation that begins later") {
  Quadratic f;
  int runs = 0;
  auto fast = compile([&](const Tensor& x) { return ++runs, f(x); }, {.verify = 0});
  const Tensor x = ones({3});
  for (int i = 0; i < 300; ++i) CHECK(same_bits(fast(x).detach(), f(x).detach()));
  CHECK(contains(fast.explain(), "no backward went through all of it yet"));
  for (int i = 0; i < 300; ++i) sum(fast(x)).backward();
  CHECK(fast.programs() == 1);
  CHECK(replays_of(fast) > 100);
}

TEST_CASE("differentiable calls: what is kept outside, and a history from outside, run as they are") {
  Quadratic f;
  Tensor state;
  auto keeps = compile([&](const Tensor& x) {
    const Tensor h = f(x);
    state = h;
    return sum(h * h);
  });
  for (int i = 0; i < 10; ++i) {
    const Tensor x = wave({3}, i + 1);
    keeps(x).backward();
    CHECK(same_bits(state.detach(), f(x).detach()));
    state = Tensor();
  }
  auto returns = compile([&](const Tensor& x) { return state = f(x); });
  auto takes = compile([&](const Tensor& x) { return f(state = x); });
  for (int i = 0; i < 10; ++i) {
    const Tensor x = wave({3}, i + 1), y = returns(x);
    CHECK(same_bits(state.detach(), y.detach()));
    sum(y).backward();
    sum(takes(x)).backward();
    CHECK(same_bits(state, x));
  }
  Tensor v = ones({3}).requires_grad_(), hidden;
  auto reads = compile([&](const Tensor& x) { return sum(x * hidden); });
  for (int i = 0; i < 10; ++i) {
    v.set_grad({});
    hidden = v * double(i + 1);
    reads(ones({3})).backward();
    CHECK(same_bits(v.grad(), full({3}, double(i + 1))));
  }
  CHECK(reads.programs() == 0);
  CHECK(contains(reads.explain(), "has a history that is not the function's"));
}

TEST_CASE("differentiable calls: memory does not grow, and a compiled function may go before its graph") {
  Quadratic f;
  const Tensor x = ones({1000, 3});
  Tensor y;
  {
    auto fast = compile([&](const Tensor& x) { return f(x); });
    for (int i = 0; i < 20; ++i) sum(fast(x)).backward();
    const int64_t before = memory_stats().allocated;
    const int64_t nodes = Node::live_nodes();
    for (int i = 0; i < 200; ++i) sum(fast(x)).backward();
    CHECK(memory_stats().allocated <= before + 4096);
    CHECK(Node::live_nodes() == nodes);
    y = sum(fast(x));
  }
  f.w.set_grad({});
  y.backward();
  const Tensor got = f.w.grad().clone();
  f.w.set_grad({});
  sum(f(x)).backward();
  CHECK(same_values(got, f.w.grad(), 1e-4));
}

TEST_CASE("differentiable calls are checked as others are") {
  const Tensor x = ones({3});
  Quadratic f;
  double alpha = 2;
  auto fast = compile([&](const Tensor& x) { return f(x) * alpha; }, {.verify = 0.2});
  int wrong = 0;
  for (int i = 0; i < 200; ++i) {
    if (i == 50) alpha = 3;
    wrong += !same_values(fast(x).detach(), (f(x) * alpha).detach());
    f.w.set_grad({});
    sum(fast(x)).backward();
    const Tensor got = f.w.grad().clone();
    f.w.set_grad({});
    sum(f(x) * alpha).backward();
    if (i > 100) CHECK(same_values(got, f.w.grad()));
  }
  CHECK(wrong < 20);
}
