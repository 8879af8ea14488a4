// What lies outside of a program is known by object and version: what happens to other objects disturbs no program, and what happens to its
// own is noticed.
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

TEST_CASE("programs are kept by least recent use; a signature that comes once does not stop those that come again") {
  auto f = compile([](const Tensor& x) { return x + 1; }, {.max_programs = 2});
  const auto call = [&](int64_t n) { CHECK(same_bits(f(zeros({n})), ones({n}))); };
  const std::string told = stderr_of([&] {
    for (int i = 0; i < 4; ++i) call(1), call(2);
    REQUIRE(f.programs() == 2);
    for (int i = 0; i < 3; ++i) call(3);  // takes the place of 1
  });
  CHECK(told.find("raise max_programs") != std::string::npos);
  CHECK(told.find("warning") == told.rfind("warning"));
  const int64_t before = recordings_of(f);
  call(2), call(3);
  CHECK(recordings_of(f) == before);
  for (int i = 0; i < 3; ++i) call(1);
  call(3);
  CHECK(f.programs() == 2);
  const int64_t replays = replays_of(f);
  for (int64_t n = 10; n < 60; ++n) call(n), call(3);
  CHECK(replays_of(f) >= replays + 50 - 2);  // of 1 nothing is left
}

TEST_CASE("a signature that runs as it is says how to go on, and gets another chance when its objects change") {
  nn::Linear net(4, 2);
  bool detached = false;
  auto f = compile([&](const Tensor& x) { return detached ? net(x).detach() : net(x); });
  const Tensor x = ones({1, 4});
  const std::string told = stderr_of([&] {
    for (int i = 0; i < 3; ++i) (void)f(x);
  });
  CHECK(told.find("can still be differentiated") != std::string::npos);
  CHECK(told.find("reset()") != std::string::npos);
  CHECK(recordings_of(f) == 1);
  detached = true;
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
