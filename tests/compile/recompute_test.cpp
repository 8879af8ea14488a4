#include <algorithm>
#include <cmath>
#include <limits>

#include <tapir/compile/passes/passes.h>
#include <tapir/compile/plan/min_cut.h>
#include <tapir/compile/plan/plan.h>
#include <tapir/compile/program/uses.h>

#include "../core/messages.h"
#include "program_bits.h"
#include "random_steps.h"

using namespace tapir;
using namespace tapir_tests;
using ir::Program;

namespace {

int64_t most_of(const Program& p) { return ir::most_live_bytes(p, ir::fixed_blocks(p)); }
template <class E> int64_t count(const Program& p) { return std::count_if(p.calls.begin(), p.calls.end(), ir::is<E>); }

/// Layers whose pointwise halves are cheap to make again.
struct Deep : nn::Module {
  nn::Sequential layers;
  explicit Deep(int n, double drop = 0) {
    for (int i = 0; i < n; ++i) {
      layers.push_back(nn::Linear(32, 32)), layers.push_back(nn::GELU());
      if (drop > 0) layers.push_back(nn::Dropout(drop));
    }
  }
  Tensor forward(const Tensor& x) { return layers(x); }
  TAPIR_FIELDS(layers)
};

auto train = [](Deep& net) {
  return [&net, opt = optim::SGD(net.parameters(), {.lr = 0.1})](const Tensor& x, const Tensor&) mutable {
    opt.zero_grad();
    Tensor loss = mean(square(net(x)));
    loss.backward();
    opt.step();
    return loss.detach();
  };
};
auto batch = [](int i) {
  return std::pair(cos(arange(0., 256. * 32, 1., {.dtype = kFloat32}) + i).reshape({256, 32}), Tensor());
};

/// Losses and parameters of ten compiled steps.
std::vector<Tensor> ten(int layers, double drop, const CompileOptions& options, CompileStats* stats = nullptr,
                        std::string* text = nullptr) {
  manual_seed(3);
  Deep net(layers, drop);
  auto step = compile(train(net), options);
  std::vector<Tensor> out;
  for (int i = 0; i < 10; ++i) {
    const auto [x, y] = batch(i);
    out.push_back(step(x, y));
  }
  for (Tensor& t : left_by(net)) out.push_back(t);
  REQUIRE(step.programs() == 1);
  if (stats) *stats = step.stats()[0];
  if (text) *text = step.explain();
  return out;
}
void check_equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK(same_bits(a[i], b[i]));
}

}  // namespace

TEST_CASE("the cheapest cut: a chain is cut where it is thinnest, what is free is not cut") {
  //  0 -> 1 -> 2, 0 -> 3;  2 and 3 are needed, 0 is given
  const auto cut =
      ir::cheapest_cut({{}, {0}, {1}, {0}}, {10, 3, 7, 2}, {true, false, false, false}, {false, false, true, true});
  CHECK(cut == std::vector<bool>{false, true, false, true});
  CHECK(ir::cheapest_cut({{}, {0}}, {0, 5}, {true, false}, {false, true}) == std::vector<bool>{true, false});
  CHECK(ir::cheapest_cut({{}}, {5}, {false}, {true}) == std::vector<bool>{false});  // made of nothing
}

TEST_CASE("activations of a deep network are computed again where the budget asks for it") {
  CompileStats all, less, none;
  const auto kept = ten(12, 0, {}, &all);
  std::string text;
  check_equal(kept, ten(12, 0, {.memory_budget = 0.7}, &less, &text));
  CHECK(less.peak() < all.peak() * 8 / 10);
  CHECK(less.calls > all.calls);
  CHECK(contains(text, "recompute"));
  CHECK(!contains(text, "not reached"));
  check_equal(kept, ten(12, 0, {.memory_budget = 1e9}, &none));  // bytes: more than enough
  CHECK(none.calls == all.calls);
}

TEST_CASE("a budget that cannot be reached: as little as can be, and explain() says so") {
  CompileStats all, least;
  std::string text;
  check_equal(ten(6, 0, {}, &all), ten(6, 0, {.memory_budget = 1000}, &least, &text));
  CHECK(least.peak() < all.peak());
  CHECK(contains(text, "memory_budget of 1000 B is not reached"));
}

TEST_CASE("a budget that cannot be reached has a price: an unrolled network never has more than twice its calls") {
  for (const int steps : {30, 60, 250}) {
    CompileStats stats[2];
    std::vector<Tensor> left[2];
    for (const bool lowers : {false, true}) {
      Tensor w = full({8, 8}, 0.1).requires_grad_();
      auto step = compile(
          [&](const Tensor& x) {
            w.set_grad({});
            Tensor h = x;
            for (int i = 0; i < steps; ++i) h = tanh(matmul(h, w) + x * 0.5);
            Tensor loss = sum(h);
            loss.backward();
            return loss.detach();
          },
          {.memory_budget = lowers ? 1000. : 0});
      for (int i = 0; i < 3; ++i) left[lowers].push_back(step(full({4, 8}, 0.1 * i)));
      left[lowers].push_back(w.grad());
      REQUIRE(step.programs() == 1);
      stats[lowers] = step.stats()[0];
    }
    INFO(steps << " steps: " << stats[0].calls << " calls became " << stats[1].calls);
    check_equal(left[0], left[1]);
    CHECK(stats[1].calls <= 2 * stats[0].calls);
    CHECK(stats[1].peak() < stats[0].peak());
  }
}

TEST_CASE("budgets that are no number of bytes") {
  constexpr double inf = std::numeric_limits<double>::infinity();
  CompileStats all;
  const auto kept = ten(4, 0, {}, &all);
  for (const double budget : {1e300, inf}) {
    CompileStats same;
    std::string text;
    check_equal(kept, ten(4, 0, {.memory_budget = budget}, &same, &text));
    CHECK(same.calls == all.calls);
    CHECK(!contains(text, "not reached"));
  }
  for (const double budget : {-1., -inf, std::nan("")})
    CHECK(contains(message_of<ValueError>([&] { compile([] {}, {.memory_budget = budget}); }), "memory_budget"));
}

TEST_CASE("dropout that is computed again has the same mask") {
  for (bool fuse : {true, false}) {
    CompileStats all, less;
    const auto kept = ten(8, 0.4, {.fuse = fuse}, &all);
    check_equal(kept, ten(8, 0.4, {.fuse = fuse, .memory_budget = 0.5}, &less));
    CHECK(less.peak() < all.peak());
    CHECK(less.calls > all.calls);
  }
}

TEST_CASE(
    "norms are computed again without touching their statistics; products are not, as long as the rest suffices") {
  manual_seed(1);
  nn::Sequential net;
  for (int i = 0; i < 6; ++i)
    net.push_back(nn::Conv2d(8, 8, 3, {.padding = 1})), net.push_back(nn::BatchNorm2d(8)), net.push_back(nn::ReLU());
  const Tensor x = randn({4, 8, 8, 8});
  ir::Recording recording(std::array{x});
  const Tensor loss = mean(square(net(x)));
  loss.backward();
  Program program = recording.finish(std::array{loss.detach()});
  for (bool fused : {false, true}) {
    if (fused) ir::fuse(program);
    Program less = program;
    const int64_t added = ir::recompute(less, most_of(program) * 8 / 10);
    CHECK(added > 0);
    CHECK(most_of(less) <= most_of(program) * 8 / 10);
    CHECK(count<entry::Conv>(less) == count<entry::Conv>(program));
    CHECK(count<entry::Norm>(less) > count<entry::Norm>(program));
    check_same_bits(program, less);
    Program least = program;
    ir::recompute(least, 0);
    CHECK(most_of(least) <= most_of(less));
    check_same_bits(program, least);
  }
}

TEST_CASE("random programs that compute again give the same bits") {
  int64_t added = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    INFO("program " << seed);
    Program program = recorded_program(seed);
    if (seed % 2) ir::fuse(program);
    Program less = program;
    added += ir::recompute(less, 0);
    CHECK(most_of(less) <= most_of(program));
    check_same_bits(program, less);
  }
  CHECK(added > 60);
}

TEST_CASE("compiled steps that compute again leave the same bits") {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    INFO("program " << seed);
    const Trace with = ten_steps(seed, true, {.memory_budget = 0.01}), without = ten_steps(seed, true);
    for (size_t i = 0; i < with.left.size(); ++i)
      for (size_t k = 0; k < with.left[i].size(); ++k) REQUIRE(same_bits(with.left[i][k], without.left[i][k]));
  }
}
