#include <tapir/tapir.h>

#include "../catch.h"
#include "../errors.h"
using namespace tapir;
using Tensors = std::vector<Tensor>;

namespace {
std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }

struct Pair : nn::Module {
  std::pair<Tensor, std::vector<Tensor>> forward(const Tensor& a, int times, const Tensor& b = {}) {
    return {a * times, {b.defined() ? a + b : a}};
  }
  TAPIR_FIELDS()
};
struct State {
  Tensor h, c;
};
struct Output {
  Tensor output;
  State state;
  int steps = 1;
};
struct Keeps : nn::Module {
  Tensor kept = ones(1);
  const Tensor& forward(const Tensor&) { return kept; }
  TAPIR_FIELDS(kept)
};
struct Several {  // a C array: tensors() says what it holds
  Tensor list[2];
  auto tensors() { return std::tie(list[0], list[1]); }
};
struct Doubles : nn::Module {
  Several forward(const Tensor& x) { return {{x, x * 2}}; }
  TAPIR_FIELDS()
};
struct Absent : nn::Module {
  std::pair<Tensor, Tensor> forward(const Tensor& x) { return {x, {}}; }
  TAPIR_FIELDS()
};
struct Cell : nn::Module {
  Output forward(const Tensor& x) { return {x, {x + 1, x + 2}}; }
  TAPIR_FIELDS()
};
}  // namespace

TEST_CASE("forward hooks see structs of tensors") {
  Cell cell;
  cell.register_forward_hook([](nn::Module&, const Tensors&, Tensors& out) {
    REQUIRE(out.size() == 3);
    out[2] = out[0];
  });
  Keeps keeps;
  keeps.register_forward_hook([](nn::Module&, const Tensors&, Tensors& out) { CHECK(out.empty()); });
  CHECK(keeps(ones(2)).is_same(keeps.kept));
  const Output out = cell(tensor({5.}));
  CHECK(values(out.state.h) == std::vector<double>{6});
  CHECK(values(out.state.c) == std::vector<double>{5});
  Doubles doubles;
  doubles.register_forward_hook([](nn::Module&, const Tensors&, Tensors& out) { std::swap(out.at(0), out.at(1)); });
  CHECK(values(doubles(tensor({3.})).list[0]) == std::vector<double>{6});
}

TEST_CASE("forward hooks see and replace inputs and outputs of any kind; others are left alone") {
  Pair m;
  std::string log;
  m.register_forward_pre_hook([&](nn::Module& module, Tensors& in) {
    log += tapir::format("{} inputs of {}; ", int64_t(in.size()), module.str());
    in[0] = in[0] + 1;
  });
  const int64_t id = m.register_forward_hook([&](nn::Module&, const Tensors& in, Tensors& out) {
    log += tapir::format("{} in, {} out; ", int64_t(in.size()), int64_t(out.size()));
    out[1] = out[1] * 10;
  });
  auto [y, list] = m(tensor({1., 2.}), 3, ones(2));
  CHECK(values(y) == std::vector<double>{6, 9});
  CHECK(values(list[0]) == std::vector<double>{30, 40});
  CHECK(log == "2 inputs of Pair(); 2 in, 2 out; ");
  m.remove_hook(id);
  CHECK(values(m(tensor({1.}), 1).second[0]) == std::vector<double>{2});
}

TEST_CASE("backward hooks see the gradients of the whole module and replace those of its inputs") {
  nn::Linear fc(2, 1, {.bias = false});
  fc.to(kFloat64);
  {
    NoGrad guard;
    fc.weight.copy_(tensor({{2., 3.}}, {.dtype = kFloat64}));
  }
  Tensors seen;
  fc.register_full_backward_pre_hook([](nn::Module&, Tensors& grad_outputs) { grad_outputs[0] = grad_outputs[0] * 2; });
  fc.register_full_backward_hook([&](nn::Module&, Tensors& grad_inputs, const Tensors& grad_outputs) {
    seen = {grad_inputs[0], grad_outputs[0]};
    grad_inputs[0] = grad_inputs[0] * 100;
  });
  Tensor x = tensor({{1., 1.}}, {.dtype = kFloat64}).requires_grad_();
  sum(fc(x * 1)).backward();
  CHECK(values(seen[0]) == std::vector<double>{4, 6});
  CHECK(values(seen[1]) == std::vector<double>{2});
  CHECK(values(x.grad()) == std::vector<double>{400, 600});
  CHECK(values(fc.weight.grad()) == std::vector<double>{2, 2});

  seen.clear();
  nn::Linear twin = fc.clone();  // hooks are not cloned
  sum(twin(x * 1)).backward();
  CHECK(seen.empty());
  nn::Linear moved = std::move(fc);  // but they move
  sum(moved(x * 1)).backward();
  CHECK(seen.size() == 2);
}

TEST_CASE("backward hooks without inputs that want gradients, and of a module that is gone") {
  int calls = 0;
  Tensor y;
  const Tensor x = ones({1, 2});
  {
    nn::Linear fc(2, 2);
    fc.register_full_backward_hook([&](nn::Module&, Tensors& in, const Tensors& out) {
      ++calls;
      CHECK(!in[0].defined());
      CHECK(out[0].shape() == Shape{1, 2});
    });
    sum(fc(x)).backward();
    y = fc(x);
    NoGrad guard;
    fc(x);
  }
  CHECK(calls == 1);
  sum(y).backward();
  CHECK(calls == 1);
}

TEST_CASE("gradients of gradients pass through hooks") {
  nn::Linear fc(1, 1, {.bias = false});
  fc.to(kFloat64);
  int calls = 0;
  fc.register_full_backward_hook([&](nn::Module&, Tensors&, const Tensors&) { ++calls; });
  const Tensor x = tensor({{3.}}, {.dtype = kFloat64}).requires_grad_();
  const Tensor y = fc(x * x), g = grad({sum(y * y)}, {x}, {}, {.create_graph = true})[0];  // 4 w^2 x^3
  const double w = fc.weight.item();
  CHECK(g.item() == Approx(4 * w * w * 27));
  CHECK(grad({sum(g)}, {x})[0].item() == Approx(12 * w * w * 9));
  CHECK(calls >= 1);
}

TEST_CASE("BI-202 hooks that throw, remove themselves, or change the number of tensors") {
  nn::ReLU m;
  int calls = 0;
  int64_t id = 0;
  id = m.register_forward_hook([&](nn::Module& self, const Tensors&, Tensors&) { ++calls, self.remove_hook(id); });
  m.register_forward_hook([&](nn::Module&, const Tensors&, Tensors&) { ++calls; });
  m(ones(1)), m(ones(1));
  CHECK(calls == 3);
  const int64_t bad = m.register_forward_pre_hook([](nn::Module&, Tensors&) { throw RuntimeError("the hook's own"); });
  CHECK_THROWS_AS(m(ones(1)), RuntimeError);
  m.remove_hook(bad);
  const int64_t fewer = m.register_forward_hook([](nn::Module&, const Tensors&, Tensors& out) { out.clear(); });
  CHECK(error_of([&] { m(ones(1)); }).find("expected 1 outputs, got 0") != std::string::npos);
  m.remove_hook(fewer), m.remove_hook(fewer);
  const int64_t none = m.register_forward_hook([](nn::Module&, const Tensors&, Tensors& out) { out[0] = Tensor(); });
  CHECK(error_of([&] { m(ones(1)); }).find("[forward hook] expected a tensor as output 0") == 0);
  m.remove_hook(none);
  Absent absent;  // what was undefined before may stay so
  absent.register_forward_hook([](nn::Module&, const Tensors&, Tensors&) {});
  CHECK(!absent(ones(1)).second.defined());
  CHECK(m(ones(1)).item() == 1);
}
