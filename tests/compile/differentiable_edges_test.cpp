// What could tell a compiled differentiable call from an eager one: shared memory, missing gradients, what hooks and f itself keep.
#include "../core/messages.h"
#include "steps.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

using Left = std::vector<Tensor>;

/// Two results behind one product.
struct Two {
  Tensor w = wave({3}, .3).requires_grad_(), v = wave({3}, .7).requires_grad_();
  std::vector<Tensor> operator()(const Tensor& x) const {
    const Tensor h = w * x;
    return {tanh(h), sqrt(v * relu(h))};
  }
  void clear() {
    for (const Tensor& p : {w, v}) p.set_grad({});
  }
};
struct Quadratic {
  Tensor w = tensor({1.f, 2.f, 3.f}).requires_grad_();
  Tensor operator()(const Tensor& x) const { return tanh(w * x) * x + square(w); }
};
struct NormNet : nn::Module {
  nn::Linear a{4, 4};
  nn::BatchNorm1d bn{4};
  nn::Dropout d{.5};
  Tensor forward(const Tensor& x) { return d(bn(a(x))); }
  TAPIR_FIELDS(a, bn, d)
};
struct Heads : nn::Module {
  nn::Linear body{4, 4}, a{4, 3}, b{4, 2};
  std::array<Tensor, 3> forward(const Tensor& x) {
    const Tensor h = tanh(body(x));
    return {a(h), b(h), h};
  }
  TAPIR_FIELDS(body, a, b)
};
/// A function that the same tensors, two handles to the same memory, or different ones are passed to, in turn.
template <class Second> void check_sharing(Second second) {
  check_like_eager([&](const CompileOptions& options) {
    Left left;
    Tensor v = wave({3, 3}, .7).requires_grad_(), u = wave({3, 3}, .2).requires_grad_();
    auto fast = compile([](const Tensor& a, const Tensor& b) { return sum(a * b * b); }, options);
    for (int i = 0; i < 24; ++i) {
      for (const Tensor& p : {v, u}) p.set_grad({});
      const Tensor h = v * 2. + i, k = u * 3.;
      const Tensor y = fast(h, second(h, (i / 4) % 2 ? k : h));
      y.backward();
      for (const Tensor& t : {y, v.grad(), u.grad()}) left.push_back(copy_of(t));
    }
    return left;
  });
}

}  // namespace

TEST_CASE("differentiable calls: arguments with a history that share memory, and others that do not") {
  check_sharing([](const Tensor&, const Tensor& x) { return x; });
  check_sharing([](const Tensor&, const Tensor& x) { return x.t(); });
  check_sharing([](const Tensor&, const Tensor& x) { return x.detach(); });
  check_sharing([](const Tensor&, const Tensor& x) { return x.view({3, 3}); });
  check_like_eager([](const CompileOptions& options) {  // rows of one tensor
    Left left;
    Tensor e = wave({4, 3}, .7).requires_grad_();
    auto fast = compile([](const Tensor& a, const Tensor& b) { return sum(a * b * b); }, options);
    for (int i = 0; i < 20; ++i) {
      e.set_grad({});
      const Tensor h = e * 2.;
      const Tensor y = fast(h[i % 4], h[(i / 3) % 4]);
      y.backward();
      left.push_back(copy_of(y)), left.push_back(copy_of(e.grad()));
    }
    return left;
  });
  check_like_eager([](const CompileOptions& options) {  // and of captured tensors
    Left left;
    Tensor v = wave({3}, .7).requires_grad_(), kept;
    auto fast = compile([&](const Tensor& a) { return sum(a * kept); }, options);
    for (int i = 0; i < 12; ++i) {
      v.set_grad({});
      const Tensor h = v * (1. + i);
      kept = h.detach();
      fast(h).backward();
      left.push_back(copy_of(v.grad()));
    }
    return left;
  });
}

TEST_CASE("differentiable calls: gradients of results that are missing, and that are new") {
  Tensor w = wave({3}, .3).requires_grad_();
  const auto f = [&](const Tensor& x) {
    const Tensor h = w * x;
    return std::pair(sum(tanh(h)), sum(sqrt(h + 1.)));
  };
  const auto gradient = [&](auto&& call, bool both) {
    w.set_grad({});
    const auto [a, b] = call(ones({3}));
    (both ? a + b : a).backward();
    return w.grad().clone();
  };
  auto first = compile(f, {.verify = 0}), both = compile(f, {.verify = 0});
  for (int i = 0; i < 6; ++i) {
    CHECK(same_values(gradient(first, false), gradient(f, false)));
    CHECK(same_values(gradient(both, true), gradient(f, true)));
  }
  REQUIRE(first.programs() + both.programs() == 2);
  CHECK(same_values(gradient(both, false), gradient(f, false)));  // zeros for b
  {
    NoGrad guard;
    w.fill_(-1.);
  }
  CHECK(contains(message_of<ValueError>([&] { gradient(both, false); }), "zeros in its place give NaN, other than"));
  CHECK(same_values(gradient(both, false), gradient(f, false)));  // runs as it is
  CHECK(contains(message_of<ValueError>([&] { gradient(first, true); }), "result 1 has a gradient, other than"));
}

TEST_CASE(
    "differentiable calls: the last state of a recurrent cell, and a head that is no longer used, have no gradient") {
  struct Cell {
    Tensor w = wave({3, 3}, .3).requires_grad_(), u = wave({3, 3}, .7).requires_grad_(),
           v = wave({3, 3}, .2).requires_grad_();
    std::vector<Tensor> operator()(const Tensor& x, const Tensor& h) const {
      const Tensor next = tanh(matmul(x, w) + matmul(h, u));
      return {matmul(next, v), next};
    }
  };
  check_like_eager([](const CompileOptions& options) {
    Left left;
    Cell cell;
    auto fast = compile([&](const Tensor& x, const Tensor& h) { return cell(x, h); }, options);
    for (int epoch = 0; epoch < 6; ++epoch) {
      for (const Tensor& p : {cell.w, cell.u, cell.v}) p.set_grad({});
      Tensor h = zeros({2, 3}), loss = zeros({});
      for (int t = 0; t < 5; ++t) {
        const std::vector<Tensor> out = fast(wave({2, 3}, .1 * (epoch + t + 1)), h);
        loss = loss + sum(square(out[0])), h = out[1];
      }
      loss.backward();
      for (const Tensor& p : {cell.w, cell.u, cell.v}) left.push_back(copy_of(p.grad()));
    }
    INFO(fast.explain());
    if (options.enabled && options.verify == 0) CHECK(replays_of(fast) >= 20);
    if (options.enabled) CHECK(!contains(fast.explain(), "var"));
    return left;
  });
  check_like_eager([](const CompileOptions& options) {
    Left left;
    nn::Linear t{4, 4}, p{4, 2}, q{4, 2};
    auto fast = compile(
        [&](const Tensor& x) {
          const Tensor h = tanh(t(x));
          return std::pair(p(h), q(h));
        },
        options);
    for (int i = 0; i < 24; ++i) {
      t.zero_grad(), p.zero_grad(), q.zero_grad();
      const auto [a, b] = fast(wave({5, 4}, .2 + i));
      (i < 8 ? sum(square(a)) + sum(square(b)) : sum(square(a))).backward();
      for (const Tensor& w : {t.weight, p.weight, q.weight}) left.push_back(copy_of(w.grad()));
    }
    return left;
  });
}

TEST_CASE("differentiable calls: results that are differentiated one after the other run as they are") {
  check_like_eager([](const CompileOptions& options) {
    Left left;
    Two m;
    auto fast = compile([&](const Tensor& x) { return m(x); }, options);
    for (int i = 0; i < 8; ++i) {
      m.clear();
      const std::vector<Tensor> y = fast(ones({3}) * (1. + i));
      sum(y[0]).backward({}, true);
      left.push_back(copy_of(m.w.grad()));
      sum(y[1]).backward();
      for (const Tensor& p : {m.w, m.v}) left.push_back(copy_of(p.grad()));
    }
    if (options.enabled) CHECK(contains(fast.explain(), "results are differentiated one after the other"));
    return left;
  });
  check_like_eager([](const CompileOptions& options) {  // graphs that have nothing in common
    Left left;
    nn::Linear p{4, 2}, q{4, 2};
    auto fast = compile([&](const Tensor& x) { return std::vector<Tensor>{p(x), q(x)}; }, options);
    for (int i = 0; i < 8; ++i) {
      p.zero_grad(), q.zero_grad();
      const std::vector<Tensor> y = fast(wave({5, 4}, .2 + i));
      sum(square(y[0])).backward();
      sum(square(y[1])).backward();
      left.push_back(copy_of(p.weight.grad())), left.push_back(copy_of(q.weight.grad()));
    }
    return left;
  });
}

TEST_CASE("differentiable calls are checked where the backward that they get is another one, or none") {
  for (const bool differentiated : {true, false}) {
    Tensor w = wave({3}, .3).requires_grad_(), v = wave({3}, .3).requires_grad_();
    double k = 1;
    auto fast = compile([&](const Tensor& x) { return tanh(w * x) * v * k; }, {.verify = .3});
    int wrong = 0;
    for (int i = 0; i < 300; ++i) {
      if (i == 100) k = 5;
      const Tensor y = fast(ones({3})), want = tanh(w * 1.) * v * k;
      wrong += !same_values(y.detach(), want.detach());
      if (i < 4) sum(y).backward();
      else if (differentiated) grad({sum(y)}, {w});
    }
    INFO(fast.explain());
    CHECK(wrong < 30);
    CHECK(contains(fast.explain(), "var"));
  }
}

TEST_CASE("differentiable calls: what hooks keep, read and write") {
  check_like_eager([](const CompileOptions& options) {  // a result's gradient, and one inside
    Left left;
    Two m;
    Tensor outer, inner, stat = zeros({3}), scale = ones({3});
    auto fast = compile(
        [&](const Tensor& x) {
          const Tensor h = m.w * x, y = tanh(h);
          h.register_hook([&](const Tensor& g) { return inner = g, stat.add_(g), g * scale; });
          y.register_hook([&](const Tensor& g) { outer = g; });
          return y;
        },
        options);
    for (int i = 0; i < 40; ++i) {
      m.clear();
      const Tensor y = fast(ones({3}) * (1. + i));
      scale.fill_(i + 1.);
      sum(y * (i + 1.)).backward();
      for (const Tensor& t : {outer, inner, stat, m.w.grad()}) left.push_back(copy_of(t));
    }
    return left;
  });
  check_like_eager(
      [](const CompileOptions& options) {  // state of a hook, in two calls of one backward: this is a program
        Left left;
        Two m;
        Tensor stat = zeros({3});
        auto fast = compile(
            [&](const Tensor& x) {
              const Tensor h = tanh(m.w * x);
              h.register_hook([&](const Tensor& g) { stat.add_(g); });
              return sum(h * x);
            },
            options);
        for (int i = 0; i < 12; ++i) {
          m.clear();
          (fast(ones({3}) * (1. + i)) + fast(ones({3}) * .5)).backward();
          left.push_back(copy_of(stat)), left.push_back(copy_of(m.w.grad()));
        }
        if (options.enabled) CHECK(replays_of(fast) >= 15);
        return left;
      });
  check_like_eager([](const CompileOptions& options) {  // retain_grad()
    Left left;
    Two m;
    auto fast = compile(
        [&](const Tensor& x) {
          const Tensor h = tanh(m.w * x);
          h.retain_grad();
          return h;
        },
        options);
    for (int i = 0; i < 8; ++i) {
      const Tensor y = fast(ones({3}) * (1. + i));
      sum(y * (i + 1.)).backward();
      left.push_back(copy_of(y.grad()));
    }
    return left;
  });
}

TEST_CASE("differentiable calls: arguments that f keeps, writes or returns") {
  check_like_eager([](const CompileOptions& options) {
    Left left;
    Tensor v = wave({3}, .7).requires_grad_(), kept;
    auto fast = compile([&](const Tensor& a) { return kept = a, sum(a * a); }, options);
    for (int i = 0; i < 8; ++i) {
      v.set_grad({});
      fast(v * (1. + i)).backward();
      left.push_back(copy_of(kept)), left.push_back(copy_of(v.grad()));
    }
    return left;
  });
  check_like_eager([](const CompileOptions& options) {
    Left left;
    Two m;
    auto fast = compile(
        [&](const Tensor& x) {
          {
            NoGrad guard;
            x.add_(1.);
          }
          return std::vector<Tensor>{tanh(m.w * x), x};
        },
        options);
    for (int i = 0; i < 12; ++i) {
      m.clear();
      const Tensor x = wave({3}, .1 * i);
      const std::vector<Tensor> y = fast(x);
      CHECK(y[1].is_same(x));
      sum(y[0]).backward();
      left.push_back(copy_of(x)), left.push_back(copy_of(m.w.grad()));
    }
    if (options.enabled) CHECK(replays_of(fast) >= 6);
    return left;
  });
  check_like_eager([](const CompileOptions& options) {  // an argument's history goes on in place
    Left left;
    Tensor v = wave({3}, .7).requires_grad_(), u = wave({3}, .2).requires_grad_();
    auto fast = compile([&](const Tensor& a) { a.mul_(u); }, options);
    for (int i = 0; i < 8; ++i) {
      for (const Tensor& p : {v, u}) p.set_grad({});
      const Tensor h = v * (1. + i);
      fast(h);
      sum(square(h)).backward();
      for (const Tensor& p : {v, u}) left.push_back(copy_of(p.grad()));
    }
    return left;
  });
}

TEST_CASE("differentiable calls: forwards of both modes before one backward, and batches without rows") {
  check_like_eager([](const CompileOptions& options) {
    Left left;
    NormNet net;
    auto fast = compile(net, options);
    for (int i = 0; i < 16; ++i) {
      net.zero_grad();
      const Tensor x = wave({6, 4}, .3 + i);
      net.train();
      Tensor loss = sum(square(fast(x))) + sum(fast(x * 2));
      net.eval();
      loss = loss + sum(square(fast(x))) + sum(fast(x * 3));
      loss.backward();
      for (const Tensor& t : left_by(net)) left.push_back(t);
    }
    INFO(fast.explain());
    if (options.enabled) CHECK(!contains(fast.explain(), "var"));
    return left;
  });
  check_like_eager([](const CompileOptions& options) {
    Left left;
    nn::Linear net{4, 3};
    auto fast = compile(net, options);
    for (int i = 0; i < 8; ++i) {
      net.zero_grad();
      sum(fast(zeros({0, 4}))).backward();
      left.push_back(copy_of(net.weight.grad()));
    }
    return left;
  });
}

TEST_CASE("differentiable calls: one gradient for two results, and a leaf as a gradient") {
  check_like_eager([](const CompileOptions& options) {
    Left left;
    Tensor w = wave({3}, .3).requires_grad_(), u = wave({3}, .7).requires_grad_();
    auto fast = compile([&](const Tensor& x) { return std::pair(tanh(w * x), sin(u * x)); }, options);
    for (int i = 0; i < 20; ++i) {
      for (const Tensor& p : {w, u}) p.set_grad({});
      const auto [a, b] = fast(ones({3}) * (1. + i));
      sum(square(i < 6 ? a + b : a - b)).backward();
      for (const Tensor& p : {w, u}) left.push_back(copy_of(p.grad()));
      for (const Tensor& p : {w, u}) p.set_grad({});
      fast(ones({3})).first.backward(i < 6 ? w : u);
      left.push_back(copy_of(w.grad()));
    }
    return left;
  });
}

TEST_CASE("differentiable calls: what f does to its arguments: hooks, histories, views") {
  for (const int what : {0, 1, 2, 3, 4})
    check_like_eager([what](const CompileOptions& options) {
      Left left;
      Tensor w = wave({3}, .3).requires_grad_(), v = wave({2, 3}, .7).requires_grad_();
      auto fast = compile(
          [&](const Tensor& x) {
            if (what == 0) x.register_hook([](const Tensor& g) { return -g; });
            if (what == 1) x.retain_grad();
            if (what == 2) Tensor(x).mul_(w);
            if (what == 3) Tensor(x).requires_grad_();
            return what == 4 ? x.view({3}) : tanh(x * w);
          },
          options);
      for (int i = 0; i < 8; ++i) {
        for (const Tensor& p : {w, v}) p.set_grad({});
        const Tensor base = what == 3 ? wave({3}, i + 1.) : what == 2 ? wave({2, 3}, i + 1.) : v * (1. + i);
        const Tensor x = what == 3 ? base : base.select(0, 0);
        Tensor y = fast(x);
        if (what == 4) y.mul_(3.);
        (sum(square(y)) + sum(x)).backward();
        for (const Tensor& t : {w.grad(), v.grad(), what == 1 || what == 3 ? x.grad() : Tensor(), base})
          left.push_back(copy_of(t));
      }
      return left;
    });
}

TEST_CASE("differentiable calls: an argument that is written before backward, and a graph that was freed before") {
  Tensor w = wave({3}, .3).requires_grad_();
  auto fast = compile([&](const Tensor& x) { return tanh(x * w); }, {.verify = .5});
  for (int i = 0; i < 12; ++i) {
    Tensor x = ones({3});
    const Tensor y = sum(fast(x));
    if (i % 2) x.mul_(2);
    if (i % 2) CHECK(contains(message_of<ValueError>([&] { y.backward(); }), "modified by an inplace operation"));
    else y.backward();
  }
  const Tensor v = ones({3}).requires_grad_();
  auto onward = compile([&](const Tensor& h) { return sum(h * w); });
  for (int i = 0; i < 8; ++i) {
    const Tensor h = square(v);
    sum(h).backward();
    const Tensor loss = onward(h) + sum(w);
    CHECK(contains(message_of<ValueError>([&] { loss.backward(); }), "a second time"));
  }
  CHECK(same_values(grad({onward(square(v))}, {w})[0], ones({3})));
}

TEST_CASE("differentiable calls: a history that comes and goes, and a gradient penalty outside") {
  for (const bool begins : {false, true}) {
    Tensor w = wave({3}, .3).requires_grad_();
    bool frozen = begins;
    auto fast = compile([&](const Tensor& x) { return frozen ? tanh(x * w).detach() : tanh(x * w); }, {.verify = .2});
    int wrong = 0;
    for (int i = 0; i < 200; ++i) {
      if (i == 40) frozen = !frozen;
      const Tensor y = fast(ones({3}));
      wrong += y.requires_grad() == frozen;
      if (y.requires_grad()) sum(y).backward();
    }
    CHECK(wrong < 30);
  }
  check_like_eager([](const CompileOptions& options) {
    Left left;
    Quadratic f;
    auto fast = compile([&](const Tensor& x) { return f(x); }, options);
    for (int i = 0; i < 8; ++i) {
      f.w.set_grad({});
      const Tensor x = wave({3}, i + 1).requires_grad_(), y = fast(x);
      const Tensor g = grad({sum(y)}, {x}, {}, {.create_graph = true})[0];
      (sum(square(y)) + sum(square(g))).backward();
      left.push_back(copy_of(f.w.grad())), left.push_back(copy_of(x.grad()));
    }
    return left;
  });
}

TEST_CASE("differentiable calls: a result that the graph of another one keeps, which nobody differentiates") {
  for (const size_t used : {size_t(0), size_t(1), size_t(2)})
    check_like_eager([&](const CompileOptions& options) {
      Left left;
      Heads net;
      auto fast = compile(net, options);
      for (int i = 0; i < 12; ++i) {
        net.zero_grad();
        const auto results = fast(wave({3, 4}, 0.1 * (i + 1)));
        sum(square(results[used])).backward();
        for (const Tensor& y : results) left.push_back(copy_of(y));
        for (const Tensor& t : left_by(net)) left.push_back(t);
      }
      INFO(fast.explain());
      if (options.enabled) CHECK(replays_of(fast) >= 8);
      return left;
    });
  Heads net;
  Tensor last;
  auto keeps = compile([&](const Tensor& x) { return last = net.forward(x)[0]; });
  for (int i = 0; i < 10; ++i) {
    sum(keeps(wave({3, 4}, 0.1 * (i + 1)))).backward();
    CHECK(same_bits(last.detach(), net.forward(wave({3, 4}, 0.1 * (i + 1)))[0].detach()));
  }
  CHECK(keeps.programs() == 0);
  CHECK(contains(keeps.explain(), "a result is kept outside too"));
}

TEST_CASE("differentiable calls: gradients of results in other layouts are no other program") {
  check_like_eager([](const CompileOptions& options) {
    Left left;
    Tensor w = wave({4, 3}, .3).requires_grad_();
    auto fast = compile([&](const Tensor& x) { return tanh(matmul(x, w)); }, options);
    for (int i = 0; i < 24; ++i) {
      w.set_grad({});
      const Tensor y = fast(wave({5, 4}, .1 * (i + 1))), z = wave({5, 3}, .2);
      Tensor loss;
      if (i % 3 == 0) loss = sum(square(y) * z);
      else if (i % 3 == 1) loss = sum(square(cat({y, z}, 1)));
      else loss = sum(square(y.t().contiguous()) * z.t().contiguous());
      loss.backward();
      left.push_back(copy_of(w.grad()));
    }
    INFO(fast.explain());
    CHECK(!contains(fast.explain(), "varie"));
    if (options.enabled) CHECK(replays_of(fast) >= 20);
    return left;
  });
}

TEST_CASE("differentiable calls: of calls before one backward, some have gradients of more results than others") {
  for (const std::string uses : {"10", "01", "001", "100", "010", "0010"})  // of the state that each call gives
    check_like_eager([&](const CompileOptions& options) {
      Left left;
      Two f;
      auto fast = compile(
          [&](const Tensor& x) {
            const Tensor h = tanh(f.w * x);
            return std::pair(h * f.v, h + 1);
          },
          options);
      for (int i = 0; i < 12; ++i) {
        f.clear();
        Tensor loss = zeros({});
        for (size_t k = 0; k < uses.size(); ++k) {
          const auto [y, state] = fast(wave({3}, 0.1 * (i + 1) + double(k)));
          loss = loss + sum(square(y)) + (uses[k] == '1' ? sum(state * y) : zeros({}));
        }
        loss.backward();
        for (const Tensor& t : {loss, f.w.grad(), f.v.grad()}) left.push_back(copy_of(t));
      }
      INFO(uses << ": " << fast.explain());
      if (options.enabled) CHECK(replays_of(fast) >= 6);
      return left;
    });
}
