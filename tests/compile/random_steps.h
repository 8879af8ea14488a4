#pragma once
// Random functions, of random operations, shapes, dtypes, views and writes in place: the same one for one seed.
#include <array>
#include <random>

#include <tapir/compile/record/record.h>

#include "steps.h"

namespace tapir_tests {

struct Draw {
  std::mt19937 engine;
  explicit Draw(uint32_t seed) : engine(seed) {}
  int64_t operator()(int64_t n) { return int64_t(engine() % uint32_t(n)); }
};

/// A random function of x, weights and states, the same one for one seed.
struct RandomProgram {
  uint32_t seed;
  std::vector<Tensor> weights, states;
  bool trains;

  explicit RandomProgram(uint32_t seed) : seed(seed), trains(seed % 3 != 0) {
    Draw draw(seed);
    const int64_t n = 2 + draw(4), m = 1 + draw(5) + (seed % 4 == 3 ? 32 : 0);  // long rows are fused with sums
    for (int i = 0; i < 3; ++i) {
      weights.push_back((sin(arange(0., double(n * m), 1., {.dtype = kFloat32}) + i) * 0.5).reshape({n, m}).detach());
      if (trains) weights.back().requires_grad_();
      const DType dtype = i == 0 ? kFloat32 : i == 1 ? kFloat64 : kInt64;
      states.push_back(i == 2 ? (arange(n * m) + 1).reshape({n, m}) : ones({n, m}, {.dtype = dtype}));
    }
  }
  Tensor input(int i) const {
    return cos(arange(0., double(weights[0].numel()), 1., {.dtype = kFloat32}) * (i + 1)).reshape(weights[0].shape());
  }

  static Tensor pointwise(Draw& draw, const Tensor& a, const Tensor& b) {
    switch (draw(16)) {
      case 0: return a + b;
      case 1: return a * b;
      case 2: return a - 0.5 * b;
      case 3: return a / (abs(b) + 1);
      case 4: return tanh(a);
      case 5: return relu(a) + 0.1;
      case 6: return sigmoid(a) * b;
      case 7: return gelu(a);
      case 8: return where(gt(a, b), a, b * 0.5);
      case 9: return maximum(a, b);
      case 10: return exp(-abs(a));
      case 11: return clamp(a, -1, 1);
      case 12: return dropout(a, 0.25);
      case 13: return a + zeros_like(b) + ones({1}) * 2;
      case 14: return leaky_relu(a, 0.1) * full({}, 1.5);
      default: return square(a) * 0.3;
    }
  }
  static Tensor shaped(Draw& draw, const Tensor& a, const Tensor& b) {  // (n, m) -> (n, m)
    const int64_t n = a.size(0), m = a.size(1);
    switch (draw(22)) {
      case 0: return a - sum(a, {1}, {.keepdim = true}) / double(m);
      case 1: return softmax(a, draw(2));
      case 2: return t(t(a) * t(b));
      case 3: return matmul(matmul(a, t(b)), a) * 0.1;
      case 4: return cat({a.narrow(0, 1, n - 1), b.narrow(0, 0, 1)}, 0);
      case 5: return a.flatten().view({m, n}).t();
      case 6: return flip(a, {0}) + b;
      case 7: return cumsum(a, 0) * 0.2;
      case 8: return layer_norm(a, {m});
      case 9: return a.to(kBFloat16).to(kFloat32) + b;
      case 10: return (a.to(kFloat64) * b.to(kFloat64)).to(kFloat32);
      case 11: return index_select(a, 0, remainder(arange(n) * 3 + 1, n));
      case 12: return amax(a, {0}, {.keepdim = true}) - a;
      case 13: return a * mean(b, {1}, {.keepdim = true});
      case 14: return amax(a, {1}, {.keepdim = true}) - a;
      case 15: return log_softmax(a * 0.5, 1) * 0.1 + b;
      case 16: return rms_norm(a + b, {m}) * 0.5;
      case 17: return dropout(softmax(a * 0.3 + b, 1), 0.1);
      case 18: return layer_norm(a + b, {m}, a.select(0, 0), b.select(0, 0)) + a;
      case 19: return tril(a, int64_t(draw(5)) - 2) + b;
      case 20: return triu(t(a), int64_t(draw(5)) - 2).t() * b;
      default: return expand(mean(a, {0}, {.keepdim = true}), {n, m}).clone() + a;
    }
  }
  void in_place(Draw& draw, const Tensor& a) {
    NoGrad guard;
    switch (draw(9)) {
      case 0: states[0].add_(a.detach()); break;
      case 1: states[1].mul_(0.9).add_(a.detach()); break;
      case 2: states[2].add_(1); break;
      case 3: states[0].select(0, 0).copy_(a.detach().select(0, 1)); break;
      case 4: states[0].narrow(1, 0, 1).zero_(); break;
      case 5: states[0].copy_(rand(a.shape())); break;
      case 6: t(states[1]).copy_(t(a.detach()) * 2); break;
      case 7: states[2].copy_(remainder(states[2] * 2, 97)); break;
      default: states[0].clamp_(-2, 2); break;
    }
  }
  std::pair<Tensor, Tensor> run(const Tensor& x) {
    Draw draw(seed * 7919 + 1);
    std::vector<Tensor> values = {x, weights[0], weights[1] * 1, weights[2].t().contiguous().t()};
    const auto any = [&] { return values[size_t(draw(int64_t(values.size())))]; };
    if (trains && draw(2))
      for (Tensor& w : weights) w.set_grad({});
    for (int64_t i = 4 + draw(12); i > 0; --i) {
      const Tensor a = any(), b = any();
      const int64_t kind = draw(10);
      if (kind < 5) values.push_back(pointwise(draw, a, b));
      else if (kind < 8) values.push_back(shaped(draw, a, b));
      else if (kind == 8) in_place(draw, a);
      else {
        Tensor fresh = a.detach().clone();
        fresh.narrow(0, 0, 1).mul_(2);
        values.push_back(fresh + states[0] * 0.1);
      }
    }
    Tensor loss = mean(square(values.back()));
    for (const Tensor& w : weights) loss = loss + mean(values[size_t(draw(int64_t(values.size())))] * w) * 0.1;
    if (trains) {
      loss.backward();
      NoGrad guard;
      for (Tensor& w : weights)
        if (w.grad().defined()) w.sub_(w.grad(), 0.01);
    }
    return {loss.detach(), values.back().detach()};
  }
  std::vector<Tensor> left() const {
    std::vector<Tensor> out;
    for (const Tensor& w : weights)
      out.push_back(w.detach().clone()), out.push_back(w.grad().defined() ? w.grad().clone() : Tensor());
    for (const Tensor& s : states) out.push_back(s.clone());
    return out;
  }
};

/// Such a function's program.
inline ir::Program recorded_program(uint32_t seed) {
  manual_seed(seed);
  RandomProgram source(seed);
  const Tensor x = source.input(0);
  ir::Recording recording(std::array{x});
  const auto [loss, last] = source.run(x);
  return recording.finish(std::array{loss, last});
}

struct Trace {
  std::vector<std::vector<Tensor>> left;
  uint64_t offset = 0;
  int64_t programs = 0;
};
inline Trace ten_steps(uint32_t seed, bool compiled, const CompileOptions& options = {}) {
  manual_seed(seed);
  RandomProgram program(seed);
  auto step = compile([&](const Tensor& x) { return program.run(x); }, options);
  Trace out;
  for (int i = 0; i < 10; ++i) {
    const Tensor x = program.input(i);
    const auto [loss, last] = compiled ? step(x) : program.run(x);
    out.left.push_back(program.left());
    out.left.back().push_back(loss), out.left.back().push_back(last.clone());
  }
  out.offset = default_generator().offset(), out.programs = step.programs();
  return out;
}

}  // namespace tapir_tests
