// Gradients of narrow(), split() and select() by parts: Note [Gradients of parts] in autograd/engine.cpp.
#include <tapir/compile/record/record.h>
#include <tapir/tapir.h>

#include "../catch.h"
#include "../same_bits.h"

using namespace tapir;
using tapir_tests::same_bits;

namespace {
using Loss = Tensor (*)(const Tensor& x);
/// x (4, 6), through a node that is no view and as a leaf; the gradient equals that of a recorded pass, which adds up padded tensors.
void check_parts(Loss loss) {
  manual_seed(5);
  for (const bool leaf : {false, true}) {
    const Tensor x = randn({4, 6}).requires_grad_();
    const auto y = [&] { return loss(leaf ? x : mul(x, 1.0)); };
    const Tensor expected = grad({y()}, {x}, {}, {.create_graph = true})[0];
    CHECK(allclose(grad({y()}, {x})[0], expected));
    backward(std::array{y()});
    CHECK(allclose(x.grad(), expected));
  }
}
}  // namespace

TEST_CASE("gradients of parts: covered, in part, twice, along two dimensions, in steps, with the whole") {
  check_parts([](const Tensor& x) {
    const std::vector<Tensor> part = chunk(x, 3, 1);
    return sum(part[0] * part[1] * exp(part[2]));
  });
  check_parts([](const Tensor& x) { return sum(exp(narrow(x, 1, 2, 3))); });
  check_parts([](const Tensor& x) { return sum(exp(narrow(x, 1, 0, 4)) * sin(narrow(x, 1, 2, 4))); });
  check_parts([](const Tensor& x) { return sum(exp(narrow(x, 0, 1, 2))) + sum(sin(narrow(x, 1, 1, 2))); });
  check_parts([](const Tensor& x) { return sum(exp(slice(x, 1, 0, 6, 2))) + sum(sin(slice(x, 1, 1, 6, 3))); });
  check_parts([](const Tensor& x) { return sum(exp(select(x, 0, 3)) * select(x, 0, 0)) + sum(x * x); });
  check_parts([](const Tensor& x) { return sum(x * x) + sum(exp(select(x, 1, -1))); });
  check_parts([](const Tensor& x) { return sum(expand(narrow(x, 0, 1, 1), {5, 6})) + sum(narrow(x, 0, 0, 0)); });
  check_parts([](const Tensor& x) {
    Tensor y = sum(x);
    for (const Tensor& row : unbind(x, 0))
      for (const Tensor& one : unbind(row, 0)) y = y * cos(one);
    return y;
  });
  check_parts([](const Tensor& x) {  // gradients that a part shares with others
    const Tensor part = narrow(x, 0, 0, 4);
    return sum(part + x) + sum(select(part, 0, 1));
  });
}

TEST_CASE("gradients of parts: hooks and wanted inner tensors see the whole, a written view keeps its history") {
  const Tensor x = randn({4, 6}).requires_grad_(), h = mul(x, 2.0);
  Tensor seen;
  h.register_hook([&](const Tensor& g) { seen = g.clone(); });
  const Tensor loss = sum(narrow(h, 0, 1, 2) * 3.0);
  Tensor expected = zeros({4, 6});
  narrow(expected, 0, 1, 2).fill_(3);
  CHECK(same_bits(grad({loss}, {h}, {}, {.retain_graph = true})[0], expected));
  backward(std::array{loss});
  CHECK(same_bits(seen, expected));
  CHECK(same_bits(x.grad(), expected * 2.0));

  const Tensor z = randn({3, 4}).requires_grad_(), y = mul(z, 1.0);
  select(y, 0, 1).mul_(5.0);
  backward(std::array{sum(select(y, 0, 1)) + sum(select(y, 0, 0))});
  Tensor by_hand = zeros({3, 4});
  select(by_hand, 0, 1).fill_(5), select(by_hand, 0, 0).fill_(1);
  CHECK(same_bits(z.grad(), by_hand));
}

TEST_CASE("gradients of parts: many gaps; an input whose shape was changed is refused") {
  const Tensor x = randn({200, 3}).requires_grad_();
  Tensor y = zeros({3}), expected = zeros({200, 3});
  for (int64_t t = 0; t < 200; t += 2) y = y + select(x, 0, t), select(expected, 0, t).fill_(1);
  CHECK(same_bits(grad({sum(y)}, {x})[0], expected));

  Tensor p = randn({4, 6}).requires_grad_();
  const Tensor loss = sum(narrow(p, 0, 3, 1) * 2.0);
  {
    const NoGrad off;
    t_(p);
  }
  CHECK_THROWS_AS(backward(std::array{loss}), ValueError);
}

TEST_CASE("gradients of parts: no call on the whole for each part") {
  const int64_t steps = 50;
  const Tensor x = randn({steps, 64}).requires_grad_();
  ir::Recording recording;
  const Tensor h = mul(x, 1.0);
  Tensor y = zeros({64});
  for (int64_t t = 0; t < steps; ++t) y = y + select(h, 0, t);
  const Tensor g = grad({sum(y)}, {x})[0];
  const ir::Program p = recording.finish(std::array{g});
  CHECK(std::count_if(p.calls.begin(), p.calls.end(), [&](const ir::Call& call) {
          return numel_of(call.result().shape) == x.numel();
        }) == 2);  // h, and its gradient times 1
  CHECK(same_bits(g, ones({steps, 64})));
}
