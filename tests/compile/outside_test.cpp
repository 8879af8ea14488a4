// What lies outside of a program is known by object and version: what happens to other objects disturbs no program, and what happens to its
// own is noticed.
#include <atomic>
#include <mutex>
#include <thread>

#include "../stderr_of.h"
#include "steps.h"
#include "training.h"

using namespace tapir;
using namespace tapir_tests;

namespace {

struct Norms : nn::Module {
  nn::Linear a{4, 4};
  nn::BatchNorm1d norm{4};
  nn::Dropout drop{0.5};
  Tensor forward(const Tensor& x) { return drop(norm(a(x))); }
  TAPIR_FIELDS(a, norm, drop)
};

struct Two : nn::Module {
  nn::Linear a{4, 4}, b{4, 4};
  TAPIR_FIELDS(a, b)
};

/// A compiled training step that is replayed, and how often it was recorded.
struct Step {
  Norms net;
  optim::SGD opt{net.parameters(), {.lr = 0.1, .momentum = 0.9}};
  Tensor operator()(const Tensor& x) {
    opt.zero_grad();
    const Tensor loss = sum(square(net(x)));
    loss.backward();
    opt.step();
    return loss;
  }
};
template <class F> void warm(F& f, const Tensor& x) {
  for (int i = 0; i < 5; ++i) (void)f(x);
}
template <class F> int64_t recordings_of(const Compiled<F>& f) {
  int64_t all = 0;
  const std::string text = f.explain(), word = "signature: recorded ";
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size())
    all += std::atoll(text.c_str() + at + word.size());
  return all;
}

}  // namespace

TEST_CASE("review 3: clones, snapshots in evaluation, other modules and optimizers leave programs alone") {
  manual_seed(3);
  Step step, other;
  const Tensor x = randn({8, 4});
  auto fast = compile([&](const Tensor& x) { return step(x); });
  warm(fast, x);
  REQUIRE(fast.programs() == 1);
  const int64_t before = recordings_of(fast);
  Norms best = step.net.clone();
  std::vector<Norms> snapshots;
  for (int i = 0; i < 40; ++i) {
    best = step.net.clone();
    snapshots.push_back(step.net.clone());
    snapshots.back().eval();
    other(x);
    other.opt.load_state_dict(other.opt.state_dict());
    other.net.train(i % 2);
    const int64_t id = other.net.register_forward_hook([](nn::Module&, auto&, auto&) {});
    other.net.remove_hook(id);
    other.net.a.weight.requires_grad_(i % 2);
    other.net.norm = nn::BatchNorm1d(4);
    (void)step.net.a.weight.detach().requires_grad_();  // in the program's own memory, and gone again
    (void)fast(x);
  }
  CHECK(recordings_of(fast) == before);
  CHECK(fast.programs() == 1);
  CHECK(replays_of(fast) >= 40);
}

TEST_CASE("training and evaluation in turn are two programs, which stay") {
  manual_seed(4);
  Norms net;
  const Tensor x = randn({8, 4});
  auto fast = compile([&](const Tensor& x) {
    NoGrad guard;
    return net(x);
  });
  for (int epoch = 0; epoch < 6; ++epoch)
    for (const bool training : {true, false}) {
      net.train(training);
      for (int i = 0; i < 3; ++i) {
        const Tensor y = fast(x);
        if (training) continue;
        NoGrad guard;
        CHECK(same_values(y, net(x)));
      }
    }
  CHECK(fast.programs() == 2);
  CHECK(recordings_of(fast) == 4);
}

TEST_CASE("a module that moves, a part of it that is exchanged, and one of another mode are noticed") {
  manual_seed(5);
  std::vector<Norms> nets(1);
  const Tensor x = randn({8, 4});
  const auto f = [&](const Tensor& x) {
    NoGrad guard;
    return nets[0](x);
  };
  auto fast = compile(f);
  nets[0].eval();
  const auto same = [&] {
    for (int i = 0; i < 4; ++i) CHECK(same_values(fast(x), f(x)));
  };
  same();
  for (int i = 0; i < 3; ++i) nets.emplace_back().eval();  // moves the first
  same();
  std::swap(nets[0], nets[1]);
  same();
  nn::Sequential list(nn::Linear(4, 4));
  auto of_list = compile([&](const Tensor& x) {
    NoGrad guard;
    return list(x);
  });
  warm(of_list, x);
  list.push_back(nn::ReLU());
  {
    NoGrad guard;
    CHECK(same_values(of_list(x), list(x)));
  }
  nets[0].norm.train();
  (void)f(x);
  nets[0].norm.eval();
  same();
  const Norms aside = std::move(nets[0]);
  nets[0] = Norms();
  nets[0].eval();
  same();
  quant::quantize_dynamic_(nets[0]);
  same();
}

TEST_CASE("the memory of a net that is gone is free at once, though a program knew it") {
  auto net = std::make_unique<nn::Linear>(256, 256);
  auto fast = compile([&](const Tensor& x) {
    NoGrad guard;
    return (*net)(x);
  });
  const Tensor x = ones({1, 256});
  warm(fast, x);
  REQUIRE(fast.programs() == 1);
  const auto in_use = [] { return memory_stats().allocated; };
  const int64_t before = in_use();
  net.reset();
  CHECK(in_use() <= before - 256 * 256 * 4);
  net = std::make_unique<nn::Linear>(256, 256);
  NoGrad guard;
  for (int i = 0; i < 4; ++i) CHECK(same_values(fast(x), (*net)(x)));
}

TEST_CASE("programs are kept by least recent use: what did not come for long gives way") {
  auto f = compile([](const Tensor& x) { return x + 1; }, {.max_programs = 2});
  const auto call = [&](int64_t n) { CHECK(same_bits(f(zeros({n})), ones({n}))); };
  const std::string told = stderr_of([&] {
    for (int i = 0; i < 4; ++i) call(1), call(2);
    REQUIRE(f.programs() == 2);
    for (int i = 0; i < 40; ++i) call(1 + i % 3);  // in turn: two are replayed
    CHECK(recordings_of(f) == 4);
    CHECK(replays_of(f) >= 30);
    for (int i = 0; i < 20; ++i) call(2), call(3);  // 1 did not come for 16 calls
  });
  CHECK(told.find("raise max_programs") != std::string::npos);
  CHECK(told.find("warning") == told.rfind("warning"));
  const int64_t before = replays_of(f);
  for (int i = 0; i < 5; ++i) call(2), call(3);
  CHECK(replays_of(f) == before + 10);
  for (int64_t n = 10; n < 50; ++n) call(n);  // each once
  for (int i = 0; i < 30; ++i) call(7);
  CHECK(replays_of(f) >= 5);
}

TEST_CASE("a signature that runs as it is says how to go on, and gets another chance when its objects change") {
  nn::Linear net(4, 2);
  bool made = true;
  auto f = compile([&](const Tensor& x) {
    const Tensor y = net(x).detach();
    return made ? y.requires_grad_() : y;
  });
  const Tensor x = ones({1, 4});
  const std::string told = stderr_of([&] {
    for (int i = 0; i < 3; ++i) (void)f(x);
  });
  CHECK(told.find("a leaf that is made inside") != std::string::npos);
  CHECK(told.find("reset()") != std::string::npos);
  CHECK(recordings_of(f) == 1);
  made = false;
  for (int i = 0; i < 3; ++i) (void)f(x);
  CHECK(f.programs() == 0);  // nobody can see that
  net = nn::Linear(4, 2);
  for (int i = 0; i < 3; ++i) (void)f(x);
  CHECK(f.programs() == 1);
}

TEST_CASE("settings of CUDA's libraries are part of a call's signature") {
  auto f = compile([](const Tensor& x) { return x + 1; });
  const bool was = backends::cuda::matmul_allow_tf32();
  for (int round = 0; round < 3; ++round)
    for (const bool on : {!was, was}) {
      backends::cuda::set_matmul_allow_tf32(on);
      for (int i = 0; i < 2; ++i) (void)f(ones({2}));
    }
  CHECK(f.programs() == 2);
  CHECK(recordings_of(f) == 4);
}

TEST_CASE("packed sequences, whose lengths the host reads, run as they are") {
  manual_seed(6);
  nn::LSTM lstm(3, 4);
  const nn::PackedSequence packed = nn::pack_padded_sequence(randn({5, 2, 3}), {5, 3});
  const auto f = [&](const Tensor& x) {
    NoGrad guard;
    const auto [y, state] = lstm(nn::PackedSequence{x, packed.batch_sizes});
    return y.data;
  };
  auto fast = compile(f);
  for (int i = 0; i < 4; ++i) CHECK(same_bits(fast(packed.data), f(packed.data)));
  CHECK(fast.programs() == 0);
  CHECK(fast.explain().find("data<T>()") != std::string::npos);
}

TEST_CASE("modules that nobody calls: their tensors know when they leave their place") {
  manual_seed(7);
  Two net;
  const Tensor x = randn({2, 4});
  const auto f = [&](const Tensor& x) {
    NoGrad guard;
    return relu(linear(x, net.a.weight, net.a.bias));
  };
  auto fast = compile(f);
  const auto same = [&] {
    for (int i = 0; i < 4; ++i) CHECK(same_bits(fast(x), f(x)));
    CHECK(fast.programs() == 1);
  };
  same();
  std::swap(net.a, net.b);
  same();
  nn::Linear old = std::move(net.a);
  net.a = nn::Linear(4, 4);
  same();
  old = std::exchange(net.a, nn::Linear(4, 4));
  same();
  std::swap(net.a.weight, net.b.weight);
  same();
  const int64_t before = recordings_of(fast);
  Two best = net.clone();
  best = net.clone();
  for (int i = 0; i < 4; ++i) (void)fast(x);
  CHECK(recordings_of(fast) == before);
}

TEST_CASE("lists of modules that grow are noticed, however they are walked") {
  manual_seed(8);
  nn::ModuleList list(nn::Linear(4, 4));
  nn::ModuleDict heads;
  heads.insert("a", nn::Linear(4, 4));
  const Tensor x = randn({2, 4});
  const auto by_number = [&](const Tensor& x) {
    NoGrad guard;
    Tensor y = x + 0;
    for (int64_t i = 0; i < list.size(); ++i) y = list.as<nn::Linear>(i)(y);
    return y;
  };
  const auto by_name = [&](const Tensor& x) {
    NoGrad guard;
    return heads.as<nn::Linear>(heads.contains("b") ? "b" : "a")(x);
  };
  auto numbers = compile(by_number);
  auto names = compile(by_name);
  const auto same = [&] {
    for (int i = 0; i < 4; ++i) CHECK(same_bits(numbers(x), by_number(x)));
    for (int i = 0; i < 4; ++i) CHECK(same_bits(names(x), by_name(x)));
  };
  same();
  list.push_back(nn::Linear(4, 4)), heads.insert("b", nn::Linear(4, 4));
  same();
  heads.erase("b");
  same();
}

TEST_CASE("the result of another program that is exchanged is noticed") {
  auto twice = compile([](const Tensor& x) { return x * 2; });
  const Tensor x = ones({3});
  for (int i = 0; i < 4; ++i) (void)twice(x);
  Tensor y = twice(x);
  auto next = compile([&](const Tensor& x) { return x + y; });
  for (int i = 0; i < 4; ++i) CHECK(same_bits(next(x), full({3}, 3.)));
  REQUIRE(next.programs() == 1);
  y = full({3}, 7.);
  for (int i = 0; i < 4; ++i) CHECK(same_bits(next(x), full({3}, 8.)));
  y = twice(x);
  twice.reset();  // the memory is the user's now
  for (int i = 0; i < 4; ++i) CHECK(same_bits(next(x), full({3}, 3.)));
  CHECK(next.programs() == 1);
}

TEST_CASE("what lets go of a tensor while it is recorded, or leaves a module in another mode, runs as it is") {
  Tensor w = ones({3});
  int calls = 0;
  auto drops = compile([&](const Tensor& x) {
    const Tensor y = w.defined() ? x + w : x + 1;
    if (++calls == 2) w = Tensor();
    return y;
  });
  for (int i = 0; i < 8; ++i) CHECK(same_bits(drops(ones({3})), full({3}, 2.)));

  nn::Dropout drop(0.5);
  auto leaves = compile([&](const Tensor& x) {
    drop.eval();
    const Tensor y = drop(x) + 1;
    drop.train();
    return y;
  });
  for (int i = 0; i < 8; ++i) {
    drop.eval();
    CHECK(same_bits(leaves(ones({3})), full({3}, 2.)));
    CHECK(drop.training);
  }
}

TEST_CASE("a tensor from outside that another thread exchanges is held for the time of a call") {
  std::mutex turn;
  Tensor table = full({1 << 14}, 1.);
  auto f = compile([&](const Tensor& x) {
    const std::lock_guard lock(turn);
    return x + table;
  });
  const Tensor x = zeros({1 << 14});
  std::atomic<bool> stop{false};
  std::thread other([&] {
    for (int i = 0; !stop; ++i) {
      Tensor fresh = full({1 << 14}, double(1 + i % 7));
      const std::lock_guard lock(turn);
      table = fresh;
    }
  });
  int wrong = 0;
  for (int i = 0; i < 300; ++i) {
    const Tensor y = f(x);
    wrong += y[0].item() < 1 || y[0].item() > 7 || !same_bits(y, full({1 << 14}, y[0].item()));
  }
  stop = true;
  other.join();
  CHECK(wrong == 0);
}

TEST_CASE("parameters that are frozen and thawed have counts of their own in Adam, compiled as eager") {
  std::vector<Tensor> left[2];
  for (const bool compiled : {false, true}) {
    manual_seed(9);
    nn::Linear a(2, 2), b(2, 1);
    std::vector<Tensor> all = a.parameters();
    for (const Tensor& p : b.parameters()) all.push_back(p);
    optim::Adam opt(all, {.lr = 0.1});
    auto step = compile(
        [&](const Tensor& x) {
          opt.zero_grad();
          const Tensor loss = sum(square(b(a(x)) - 1));
          loss.backward();
          opt.step();
          return loss;
        },
        {.enabled = compiled});
    for (int i = 0; i < 24; ++i) {
      if (i % 10 == 5) a.requires_grad_(false);
      if (i % 10 == 9) a.requires_grad_();
      (void)step(ones({1, 2}));
      for (const auto& [name, t] : opt.state_dict()) left[compiled].push_back(t.clone());
      for (const Tensor& p : all) left[compiled].push_back(p.detach().clone());
    }
  }
  REQUIRE(left[0].size() == left[1].size());
  for (size_t i = 0; i < left[0].size(); ++i) CHECK(same_values(left[0][i], left[1][i]));
}
