// Gradients that lie in a program's arena: Note [Gradients in the arena].
#include "steps.h"

#include <optional>

using namespace tapir_tests;

namespace {

struct Net : nn::Module {
  nn::Linear first{16, 64}, second{64, 64}, third{64, 3};
  Tensor forward(const Tensor& x) { return third(tanh(second(tanh(first(x))))); }
  TAPIR_FIELDS(first, second, third)
};

/// A net, its optimizer and a compiled step.
struct Training {
  Net net;
  optim::SGD opt{net.parameters(), {.lr = 0.1, .momentum = 0.9}};
  std::function<Tensor(const Tensor&, const Tensor&)> step;
  std::function<int64_t()> programs;
  explicit Training(const CompileOptions& options) {
    auto f = std::make_shared<Compiled<std::function<Tensor(const Tensor&, const Tensor&)>>>(
        compile(std::function<Tensor(const Tensor&, const Tensor&)>([this](const Tensor& x, const Tensor& y) {
                  opt.zero_grad();
                  const Tensor loss = cross_entropy(net(x), y);
                  loss.backward();
                  opt.step();
                  return loss;
                }),
                options));
    step = [f](const Tensor& x, const Tensor& y) { return (*f)(x, y); };
    programs = [f] { return f->programs(); };
  }
  /// x and labels of a step.
  static std::pair<Tensor, Tensor> batch(int i, int64_t rows = 6) {
    return {wave({rows, 16}, 0.1 + i), (arange(0, rows) + i) % 3};
  }
  void run(int i, int64_t rows = 6) {
    const auto [x, y] = batch(i, rows);
    step(x, y);
  }
};

}  // namespace

TEST_CASE("gradients in the arena: those that somebody keeps stay as they were") {
  check_like_eager([](const CompileOptions& options) {
    Training t(options);
    std::vector<Tensor> kept;
    for (int i = 0; i < 30; ++i) {
      t.run(i);
      if (i % 7 == 5) kept.push_back(t.net.first.weight.grad());                // the tensor
      if (i % 7 == 6) kept.push_back(t.net.second.bias.grad().slice(0, 2, 9));  // a view
    }
    for (const Tensor& w : left_by(t.net)) kept.push_back(w);
    return kept;
  });
}

TEST_CASE("gradients in the arena: other programs, eager code, changed and exchanged gradients") {
  check_like_eager([](const CompileOptions& options) {
    Training t(options);
    std::vector<Tensor> out;
    auto clip = compile([&] { return optim::clip_grad_norm_(t.net.parameters(), 0.1); }, options);
    for (int i = 0; i < 40; ++i) {
      t.run(i, i % 3 == 2 ? 4 : 6);  // two programs for one set of gradients
      const Tensor a = t.net.first.bias, b = t.net.second.bias;
      if (i % 5 == 1) out.push_back(clip());
      if (i % 6 == 2) {
        const Tensor g = a.grad();
        a.set_grad(b.grad()), b.set_grad(g);
      }
      if (i % 6 == 4) t.net.zero_grad();
      if (i % 8 == 7) {  // eager code adds to them
        const auto [x, y] = Training::batch(i);
        cross_entropy(t.net(x), y).backward();
      }
      for (const Tensor& p : t.net.parameters()) out.push_back(copy_of(p.grad()));
    }
    for (const Tensor& w : left_by(t.net)) out.push_back(w);
    return out;
  });
}

TEST_CASE("gradients in the arena: they outlive the program") {
  Training eager({.enabled = false});
  std::optional<Training> t(std::in_place, CompileOptions{.verify = 0});
  t->net.load_state_dict(eager.net.state_dict());
  for (int i = 0; i < 12; ++i) t->run(i), eager.run(i);
  CHECK(t->programs() == 1);
  const Tensor g = t->net.second.weight.grad();
  t.reset();
  CHECK(same_values(g, eager.net.second.weight.grad()));
}

TEST_CASE("gradients in the arena: after an exception there are none of that call") {
  Training t({.verify = 0});
  for (int i = 0; i < 8; ++i) t.run(i);
  REQUIRE(t.programs() == 1);
  const auto [x, y] = Training::batch(8);
  CHECK_THROWS_AS(t.step(x, y + 7), ValueError);
  for (const Tensor& p : t.net.parameters()) CHECK_FALSE(p.grad().defined());
  Training eager({.enabled = false});
  eager.net.load_state_dict(t.net.state_dict());
  eager.opt.load_state_dict(t.opt.state_dict());
  for (int i = 9; i < 14; ++i) t.run(i), eager.run(i);
  const auto got = left_by(t.net), want = left_by(eager.net);
  for (size_t i = 0; i < got.size(); ++i) CHECK(same_values(got[i], want[i]));
}

TEST_CASE("gradients in the arena: after an exception there are none either where they lie apart") {
  check_like_eager([](const CompileOptions& options) {
    Training t(options);
    Tensor kept;
    std::vector<Tensor> out;
    for (int i = 0; i < 24; ++i) {
      const auto [x, y] = Training::batch(i);
      if (i == 12) kept = t.net.first.weight.grad();
      try {
        t.step(x, i % 5 == 4 ? y + 7 : y);
      } catch (const ValueError&) {
        t.net.zero_grad(); /* which eager code did as it began */
      }
      for (const Tensor& p : t.net.parameters()) out.push_back(copy_of(p.grad()));
    }
    out.push_back(kept);
    return out;
  });
  Training t({.verify = 0});
  for (int i = 0; i < 8; ++i) t.run(i);
  const Tensor kept = t.net.first.weight.grad();
  t.run(8);
  const auto [x, y] = Training::batch(9);
  CHECK_THROWS_AS(t.step(x, y + 7), ValueError);
  for (const Tensor& p : t.net.parameters()) CHECK_FALSE(p.grad().defined());
}

TEST_CASE("gradients in the arena: one whose shape or history was changed is not handed out again") {
  check_like_eager([](const CompileOptions& options) {
    const Tensor w = wave({4, 8}, 0.3).requires_grad_();
    auto step = compile(
        [&](const Tensor& x) {
          w.set_grad({});
          const Tensor loss = sum(square(w * x));
          loss.backward();
          return loss;
        },
        options);
    std::vector<Tensor> out;
    for (int i = 0; i < 40; ++i) {
      out.push_back(step(wave({4, 8}, 0.1 + i)));
      out.push_back(full({}, double(w.grad().requires_grad())));
      Tensor g = w.grad();
      if (i % 10 == 7) transpose_(g, 0, 1);
      if (i % 10 == 9) g.requires_grad_();
      out.push_back(copy_of(g));
    }
    return out;
  });
}

TEST_CASE("gradients: one that was not there when a program was recorded") {
  const auto leaf = [] { return ones({2, 2}).requires_grad_(); };
  SECTION("is stepped") {
    check_like_eager([&](const CompileOptions& options) {
      const Tensor a = leaf(), b = leaf();
      optim::SGD opt(std::vector<Tensor>{a, b}, {.lr = 0.1});
      auto step = compile([&] { opt.step(); }, options);
      std::vector<Tensor> out;
      for (int i = 0; i < 40; ++i) {
        opt.zero_grad();
        (i < 10 ? sum(a * 2) : sum(a * 2 + b * 3)).backward();
        step();
        out.push_back(copy_of(a)), out.push_back(copy_of(b));
      }
      return out;
    });
  }
  SECTION("is stepped and dropped, heads in turn") {
    check_like_eager([&](const CompileOptions& options) {
      const Tensor a = leaf(), b = leaf();
      optim::SGD opt(std::vector<Tensor>{a, b}, {.lr = 0.1});
      auto step = compile(
          [&] {
            opt.step();
            opt.zero_grad();
          },
          options);
      std::vector<Tensor> out;
      for (int i = 0; i < 60; ++i) {
        (i % 3 == 2 ? sum(square(b)) : i % 3 == 1 ? sum(square(a)) : sum(square(a + b))).backward();
        step();
        for (const Tensor& x : {a, b}) out.push_back(copy_of(x)), out.push_back(copy_of(x.grad()));
      }
      return out;
    });
  }
  SECTION("is clipped") {
    check_like_eager([&](const CompileOptions& options) {
      const Tensor a = leaf(), b = leaf();
      auto clip = compile([&] { return optim::clip_grad_norm_(std::vector<Tensor>{a, b}, 0.1); }, options);
      std::vector<Tensor> out;
      for (int i = 0; i < 40; ++i) {
        a.set_grad({}), b.set_grad({});
        (i < 10 ? sum(a * 2) : sum(a * 2 + b * 3)).backward();
        out.push_back(clip());
        out.push_back(copy_of(a.grad())), out.push_back(copy_of(b.grad()));
      }
      return out;
    });
  }
}

TEST_CASE("gradients: a function may look at the last call's") {
  for (const bool copies : {false, true})
    check_like_eager([&](const CompileOptions& options) {
      const Tensor w = wave({8, 8}, 0.3).requires_grad_(), last = zeros({8, 8});
      auto step = compile(
          [&](const Tensor& x) {
            const double scale = w.grad().defined() ? 1 : 2;
            if (copies && w.grad().defined()) last.copy_(w.grad());
            w.set_grad({});
            const Tensor loss = sum(square(w * x)) * scale;
            loss.backward();
            return loss;
          },
          options);
      std::vector<Tensor> out;
      for (int i = 0; i < 60; ++i) {
        out.push_back(step(wave({8, 8}, 0.1 + i)));
        out.push_back(copy_of(last)), out.push_back(copy_of(w.grad()));
        if (i % 7 == 3) w.set_grad({});
      }
      return out;
    });
}

TEST_CASE("gradients in the arena: a replay needs no more memory than an eager step") {
  const auto peak_of = [](const CompileOptions& options) {
    const int64_t before = memory_stats().allocated;
    Training t(options);
    for (int i = 0; i < 10; ++i) t.run(i, 1024);
    const auto [x, y] = Training::batch(10, 1024);
    const int64_t inputs = x.numel() * 4 + y.numel() * 8;
    reset_peak_memory_stats();
    t.step(x, y);
    return memory_stats().max_allocated - before - inputs;
  };
  const int64_t eager = peak_of({.enabled = false});
  // Rows are so many that kernels' scratch memory, which comes on top of the whole arena, counts little in every build.
  CHECK(peak_of({.verify = 0}) <= eager);
}
