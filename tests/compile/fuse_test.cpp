#include <algorithm>

#include <tapir/compile/passes/passes.h>
#include <tapir/compile/record/record.h>
#include <tapir/tapir.h>

#include "../catch.h"
#include "../core/messages.h"
#include "random_calls.h"
#include "training.h"

using namespace tapir;
using ir::Program;
using tapir_tests::check_fused;
using tapir_tests::contains;
using tapir_tests::ConvNet;
using tapir_tests::RandomCalls;
using tapir_tests::training_step;

TEST_CASE("random programs, fused, give the bits of the calls") {
  int64_t groups = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    manual_seed(seed);
    const Program program = RandomCalls(seed).record();
    groups += check_fused(program);
  }
  CHECK(groups > 200);
}

TEST_CASE("a chain becomes one call that writes its end alone") {
  const Tensor x = randn({50, 70});
  ir::Recording recording(std::array{x});
  const Tensor y = tanh(relu(x * 2 + 1) * x);
  Program p = recording.finish(std::array{y});
  CHECK(check_fused(p) == 1);
  ir::fuse(p);
  REQUIRE(p.calls.size() == 1);
  REQUIRE(ir::is<entry::Fused>(p.calls[0]));
  CHECK(contains(to_string(p.calls[0]), "fused(Mul Add Relu Mul Tanh): [%"));
  CHECK(p.calls[0][&entry::Fused::outs].size() == 1);
  CHECK(p.calls[0][&entry::Fused::ins].size() == 1);
}

TEST_CASE("a triangle that is asked for twice is made once") {
  const Tensor x = randn({50, 70});
  ir::Recording once(std::array{x});
  const Tensor y = tril(x);
  const Program one = once.finish(std::array{y});
  ir::Recording twice(std::array{x});
  const Tensor z = tril(x) * tril(x);
  Program p = twice.finish(std::array{z});
  ir::remove_common_calls(p);
  CHECK(p.calls.size() == one.calls.size() + 1);
}

TEST_CASE("a result that a later call needs is stored, and a hazard between calls stays one") {
  Tensor w = randn({6, 6});
  const Tensor x = randn({6, 6});
  ir::Recording recording;
  const Tensor a = relu(x) * 2;
  const Tensor b = matmul(a, w);  // needs a; then w changes
  w.add_(a);
  const Tensor c = sigmoid(b) + a;
  Tensor d = c * 1;
  d.select(0, 1).mul_(3);  // a part of what the chain writes
  const Tensor e = d + c;
  Program p = recording.finish(std::array{e});
  check_fused(p);
}

TEST_CASE("long programs are fused in parts") {
  Tensor x = randn({8, 9});
  const Tensor y = randn({8, 9});
  ir::Recording recording;
  NoGrad off;
  for (int i = 0; i < 2500; ++i) x.mul_(0.5).add_(y);
  Program p = recording.finish();
  check_fused(p);
  REQUIRE(p.calls.size() == 5000);
  ir::fuse(p);
  CHECK(p.calls.size() < 100);
}

TEST_CASE("columns of one matrix are updated by one call, rows that meet are not") {
  Tensor x = randn({8, 12});
  ir::Recording recording;
  Tensor left = x.narrow(1, 0, 4), right = x.narrow(1, 4, 4);
  left.mul_(2);
  right.add_(left);
  Program p = recording.finish();
  CHECK(check_fused(p) == 1);
  ir::Recording second;
  Tensor low = x.narrow(0, 0, 5), high = x.narrow(0, 3, 5);
  low.mul_(2);
  high.mul_(3);
  Program q = second.finish();
  CHECK(check_fused(q) == 0);
}

TEST_CASE("products write the parts of a gradient") {
  Tensor w = randn({6, 12}).requires_grad_();
  const Tensor b = randn({4, 5});
  const auto loss = [&](bool all) {
    w.set_grad({});
    const std::vector<Tensor> part = chunk(w * 1, 3, 1);
    Tensor y = sum(matmul(part[0], b)) + sum(matmul(part[1], b));
    if (all) y = y + sum(matmul(part[2], b));
    y.backward();
    return w.grad();
  };
  for (const bool all : {true, false}) {
    ir::Recording recording;
    const Tensor g = loss(all);
    Program p = recording.finish(std::array{g});
    const auto count = [&]<class E>() {
      return std::count_if(p.calls.begin(), p.calls.end(),
                           [](const ir::Call& call) { return ir::is<E>(call) && call.result().shape.size() == 2; });
    };
    CHECK(count.operator()<entry::Fill>() == (all ? 0 : 1));  // what no part covers
    const int64_t copies = count.operator()<entry::Copy>();
    ir::Memory before = ir::copy_of_outside(p);
    const std::vector<Tensor> expected = interpret(p, before);
    ir::fold_layouts(p);
    CHECK(copies - count.operator()<entry::Copy>() == (all ? 3 : 2));
    ir::Memory after = ir::copy_of_outside(p);
    CHECK(tapir_tests::same_bits(interpret(p, after)[0], expected[0]));
  }
}

TEST_CASE("a relu of a product is the product's finish, but where the product is wanted too") {
  const Tensor x = randn({2, 5, 8}), w = randn({8, 6}), b = randn({6});
  for (const int form : {0, 1, 2, 3}) {
    ir::Recording recording;
    NoGrad off;
    Tensor h = form == 3 ? matmul(x, w) : linear(x, t(w), b);
    Tensor y = form == 1 ? relu_(h) : relu(h);
    if (form == 2) y = y + h;
    h = {};
    Program p = recording.finish(std::array{y});
    check_fused(p);
    const size_t before = p.calls.size();
    ir::join_epilogues(p);
    CHECK(before - p.calls.size() == (form == 2 ? 0 : 1));
  }
}

TEST_CASE("training steps, fused, give the same bits") {
  manual_seed(3);
  ConvNet net;
  net.drop.p = 0.25;
  optim::AdamW opt(net.parameters(), {.lr = 1e-2});
  const Tensor x = randn({4, 3, 16, 16}), labels = randint(0, 5, {4});
  const auto step = [&] { return training_step(net, opt, x, labels); };
  step();
  ir::Recording recording(std::array{x, labels});
  const Tensor loss = step();
  const Program p = recording.finish(std::array{loss});
  CHECK(check_fused(p) >= 2);
}
