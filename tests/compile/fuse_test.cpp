#include <algorithm>
#include <cstring>
#include <random>

#include <tapir/compile/fuse.h>
#include <tapir/compile/record.h>
#include <tapir/tapir.h>

#include "../catch.h"
#include "../core/messages.h"
#include "../same_bits.h"
#include "training.h"

using namespace tapir;
using ir::Program;
using tapir_tests::contains;
using tapir_tests::ConvNet;
using tapir_tests::same_bits;
using tapir_tests::training_step;

namespace {

/// Interprets the program as it is and fused, from the same state: outputs and outside memory must be equal bit by bit.
ir::FuseReport check_fused(const Program& program) {
  Program fused = program;
  ir::join_pads(fused);
  ir::join_epilogues(fused);
  const ir::FuseReport report = ir::fuse(fused);
  INFO(to_string(program) << "\nfused\n" << to_string(fused));
  ir::Memory before = ir::copy_of_outside(program), after = ir::copy_of_outside(program);
  for (int step = 0; step < 2; ++step) {
    const std::vector<Tensor> expected = interpret(program, before), got = interpret(fused, after);
    for (size_t i = 0; i < expected.size(); ++i) CHECK(same_bits(expected[i], got[i]));
  }
  bool equal = true;
  for (size_t i = 0; i < program.blocks.size(); ++i)
    if (program.blocks[i].kind == ir::Block::Kind::Outside)
      equal &= std::memcmp(before[i]->data, after[i]->data, size_t(before[i]->bytes)) == 0;
  CHECK(equal);
  return report;
}

/// Draws a program: pointwise calls on tensors and views of tensors, in place or not, with other calls between them.
class RandomProgram {
 public:
  explicit RandomProgram(unsigned seed) : random_(seed) {}
  Program record() {
    NoGrad off;
    sizes_ = {int64_t(1 + below(40)), int64_t(1 + below(90))};
    for (int i = 0; i < 4; ++i) pool_.push_back(fresh());
    ir::Recording recording;
    for (int i = 0, n = 10 + below(50); i < n; ++i) step();
    std::vector<Tensor> outputs;
    for (int i = 0; i < 3; ++i) outputs.push_back(any());
    while (pool_.size() > 4) pool_.pop_back();
    return recording.finish(outputs);
  }

 private:
  int below(int n) { return int(random_() % unsigned(n)); }
  DType dtype() {
    constexpr DType types[] = {kFloat32, kFloat32, kFloat32, kFloat64, kBFloat16, kFloat16, kInt64, kInt32, kBool};
    return types[below(9)];
  }
  Tensor fresh() { return randn(sizes_).mul_(3).to(dtype()); }
  Tensor any() { return pool_[size_t(below(int(pool_.size())))]; }
  /// A tensor, a transposed copy, a column or row that broadcasts, or the same elements under another shape and back.
  Tensor operand() {
    Tensor x = any();
    switch (below(9)) {
      case 0: return x.narrow(0, below(int(x.size(0))), 1);
      case 1: return x.narrow(1, below(int(x.size(1))), 1);
      case 2: return x.select(0, 0);
      case 3: return x.t().contiguous().t();
      case 4: return sum(x.to(kFloat32), 1, {.keepdim = true});
      default: return x;
    }
  }
  Tensor floats() {
    Tensor x = any();
    return is_floating(x.dtype()) ? x : x.to(kFloat32);
  }
  void keep(Tensor x) {
    if (x.shape() == Shape(sizes_)) pool_.push_back(x);
    if (pool_.size() > 9) pool_.erase(pool_.begin() + 4 + below(int(pool_.size()) - 4));
  }
  void step() {
    switch (below(16)) {
      case 0: return keep(relu(floats()));
      case 1: return keep(gelu(floats()));
      case 2: return keep(sigmoid(floats()));
      case 3: return keep(any() + operand());
      case 4: return keep(any() * operand());
      case 5: return keep(any() > operand());
      case 6: return keep(where(any() > 0, floats(), floats()));
      case 7: return keep(any().to(dtype()));
      case 8: return keep(addcmul(any().to(kFloat32), floats().to(kFloat32), floats().to(kFloat32)));
      case 9: return keep(dropout(floats(), 0.3));
      case 10: return keep(view(exp(view(floats().contiguous(), {-1})), sizes_));
      case 11: return keep(fresh());
      case 12: any().zero_(); return;
      default: return in_place();
    }
  }
  void in_place() {
    Tensor x = any();
    if (x.dtype() == kBool) return;
    if (below(3) == 0) x = x.narrow(below(2), 0, 1);
    if (below(4) == 0) x = x.narrow(1, x.size(1) / 2, x.size(1) - x.size(1) / 2);
    switch (below(5)) {
      case 0: x.mul_(2); break;
      case 1: x.add_(x); break;
      case 2: x.fill_(3); break;
      case 3: x.sub_(1); break;
      default: {  // other elements of the same memory, read and written
        Tensor y = any();
        if (y.dtype() == x.dtype() && y.shape() == x.shape()) x.copy_(y);
        else x.add_(1);
      }
    }
  }
  std::mt19937 random_;
  Shape sizes_;
  std::vector<Tensor> pool_;
};

}  // namespace

TEST_CASE("random programs, fused, give the bits of the calls") {
  int64_t groups = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    manual_seed(seed);
    const Program program = RandomProgram(seed).record();
    groups += check_fused(program).groups;
  }
  CHECK(groups > 200);
}

TEST_CASE("a chain becomes one call that writes its end alone") {
  const Tensor x = randn({50, 70});
  ir::Recording recording(std::array{x});
  const Tensor y = tanh(relu(x * 2 + 1) * x);
  Program p = recording.finish(std::array{y});
  CHECK(check_fused(p).groups == 1);
  const ir::FuseReport report = ir::fuse(p);
  REQUIRE(p.calls.size() == 1);
  CHECK(std::string_view(p.calls[0].entry) == "fused");
  CHECK(contains(to_string(p.calls[0]), "fused(Mul Add Relu Mul Tanh): [%"));
  CHECK(p.calls[0].operands[0].views.size() == 1);
  CHECK(report.bytes_before == 11 * x.numel() * 4);
  CHECK(report.bytes_after == 2 * x.numel() * 4);
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
  const ir::FuseReport report = ir::fuse(p);
  CHECK(report.calls_before == 5000);
  CHECK(report.calls_after < 100);
}

TEST_CASE("columns of one matrix are updated by one call, rows that meet are not") {
  Tensor x = randn({8, 12});
  ir::Recording recording;
  Tensor left = x.narrow(1, 0, 4), right = x.narrow(1, 4, 4);
  left.mul_(2);
  right.add_(left);
  Program p = recording.finish();
  CHECK(check_fused(p).groups == 1);
  ir::Recording second;
  Tensor low = x.narrow(0, 0, 5), high = x.narrow(0, 3, 5);
  low.mul_(2);
  high.mul_(3);
  Program q = second.finish();
  CHECK(check_fused(q).groups == 0);
}

TEST_CASE("gradients of slices are written to their places") {
  Tensor w = randn({6, 12}).requires_grad_();
  const auto loss = [&](bool all) {
    w.set_grad({});
    const std::vector<Tensor> part = chunk(w * 1, 3, 1);
    Tensor y = sum(part[0] * part[1]);
    if (all) y = y + sum(exp(part[2]));
    y.backward();
    return w.grad();
  };
  for (const bool all : {true, false}) {
    ir::Recording recording;
    const Tensor g = loss(all);
    Program p = recording.finish(std::array{g});
    check_fused(p);
    const auto fills = [&] {
      int n = 0;
      for (const ir::Call& call : p.calls)
        n += std::string_view(call.entry) == "fill" && call.view(0).shape.size() == 2;
      return n;
    };
    const int before = fills();
    ir::join_pads(p);
    CHECK(before - fills() == (all ? 3 : 0));
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
  CHECK(check_fused(p).groups >= 2);
}
