// Programs for fuse(): drawn at random, and compared with what becomes of them.
#pragma once
#include <random>

#include <tapir/compile/passes/passes.h>
#include <tapir/compile/record/record.h>
#include <tapir/tapir.h>

#include "../catch.h"
#include "../same_bits.h"

namespace tapir_tests {
using namespace tapir;
using ir::Program;

inline Tensor on_host(const Tensor& t) { return t.defined() ? t.detach().cpu() : t; }

/// Interprets the program as it is and fused, from the same state: outputs and outside memory must be equal bit by bit.
/// `epilogues`: not where they are a library's, which rounds otherwise. How many fused calls there are.
inline int64_t check_fused(const Program& program, bool epilogues = true) {
  Program fused = program;
  if (epilogues) ir::join_epilogues(fused);
  ir::fuse(fused);
  INFO(to_string(program) << "\nfused\n" << to_string(fused));
  ir::Memory before = ir::copy_of_outside(program), after = ir::copy_of_outside(program);
  for (int step = 0; step < 2; ++step) {
    const std::vector<Tensor> expected = interpret(program, before), got = interpret(fused, after);
    for (size_t i = 0; i < expected.size(); ++i) CHECK(same_bits(on_host(expected[i]), on_host(got[i])));
  }
  bool equal = true;
  for (size_t i = 0; i < program.blocks.size(); ++i) {
    const ir::Block& b = program.blocks[i];
    if (b.kind != ir::Block::Kind::Outside) continue;
    const ir::View all{ir::View::Kind::Memory, kUInt8, b.device, int(i), 0, {b.bytes}, {1}, {}};
    equal &= same_bits(tensor_of(all, before).cpu(), tensor_of(all, after).cpu());
  }
  CHECK(equal);
  return std::count_if(fused.calls.begin(), fused.calls.end(), ir::is<entry::Fused>);
}

/// Draws a program: pointwise calls on tensors and views of tensors, in place or not, with other calls between them.
class RandomCalls {
 public:
  explicit RandomCalls(unsigned seed, Device device = kCPU) : random_(seed), device_(device) {}
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
  Tensor fresh() { return randn(sizes_, {.device = device_}).mul_(3).to(dtype()); }
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
  Device device_;
  Shape sizes_;
  std::vector<Tensor> pool_;
};

}  // namespace tapir_tests
