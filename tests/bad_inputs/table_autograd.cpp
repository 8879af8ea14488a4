// The tape, functions of the user's, compile(), ONNX, quantization.
#include <functional>
#include <thread>

#include "table.h"

using namespace bad_inputs;

namespace {
using Tensors = std::vector<Tensor>;
Tensor row() { return tensor({1., 2., 3.}).requires_grad_(); }
Tensor one() { return tensor({1.}, {.dtype = kFloat64}).requires_grad_(); }
/// The identity, whose backward is a function's.
struct Identity {
  std::function<Grads(FunctionContext&, const Tensor&)> f;
  Tensor forward(FunctionContext& ctx, const Tensor& x) {
    ctx.save(x);
    return x.clone();
  }
  Grads backward(FunctionContext& ctx, const Tensor& g) { return f(ctx, g); }
};
void backward_of(std::function<Grads(FunctionContext&, const Tensor&)> f, const char* name = "identity") {
  sum(apply_function(name, Identity{std::move(f)}, row())).backward();
}
/// Backward passes inside one another.
struct Nest {
  int levels;
  Tensor forward(FunctionContext& ctx, const Tensor& x) {
    ctx.save(x);
    return x.clone();
  }
  Grads backward(FunctionContext& ctx, const Tensor& g) {
    if (levels == 0) return Grads{g * 2};
    EnableGrad guard;
    const Tensor x = ctx.saved(0).detach().requires_grad_();
    sum(apply_function("nest", Nest{levels - 1}, x)).backward();
    return Grads{x.grad() * g};
  }
};
Tensor nested(int levels) {
  const Tensor x = row();
  sum(apply_function("nest", Nest{levels}, x)).backward();
  return x.grad();
}
std::function<Tensor(const Tensor&)> model_function;
struct Model : nn::Module {
  Tensor forward(const Tensor& x) { return model_function(x); }
  TAPIR_FIELDS()
};
void export_to_onnx(std::function<Tensor(const Tensor&)> f, const Tensor& x, const onnx::Options& options = {}) {
  model_function = std::move(f);
  Model model;
  onnx::save(model, x, temporary("m.onnx"), options);
}
Tensor twice(const Tensor& x) { return x * 2; }
struct Two : nn::Module {
  nn::Linear a{4, 4}, b{4, 4};
  Tensor forward(const Tensor& x) { return b(a(x)); }
  TAPIR_FIELDS(a, b)
};
using Calls = std::function<Tensor(const Tensor&)>;
}  // namespace

V(970, ("backward", "100 backward passes"), const Tensor x = row(); Tensor y;
  x.register_hook([&](const Tensor&) { y.backward({}, true); }); y = sum(x * x); y.backward({}, true))
V(
    971, ("backward", "100 backward passes"), const Tensor x = row(); std::function<void()> go =
                                                                          [&] {
                                                                            EnableGrad on;
                                                                            sum(x * x).backward();
                                                                          };
    x.register_hook([&](const Tensor&) { go(); }); go())
V(972, ("backward", "100 backward passes"), nested(200))
FINE(973, expect(values(nested(90)) == Values{2, 2, 2}))
FINE(974, const Tensor x = row(); bool in = false; x.register_hook([&](const Tensor&) {
  if (!std::exchange(in, true)) {
    EnableGrad on;
    sum(x * x).backward();
  }
});
     sum(x * x).backward(); expect(values(x.grad()) == Values{4, 8, 12}))
FINE(
    975, const Tensor x = row(); int caught = 0;
    const int64_t id = x.register_hook([](const Tensor&) -> Tensor { throw 5; });
    try { sum(x * x).backward(); } catch (int i) { caught = i; } x.remove_hook(id);
    expect(caught == 5 && !x.grad().defined(), "the hook's own exception"); sum(x).backward();
    expect(values(x.grad()) == Values{1, 1, 1}))
V(976, ("hook", "float32 (3,)", "float64 (3,)"), const Tensor x = row();
  x.register_hook([](const Tensor&) { return ones({3}, {.dtype = kFloat64}); }); sum(x).backward())
V(977, ("apply_function", "null pointer"),
  backward_of([](FunctionContext&, const Tensor& g) { return Grads{g}; }, nullptr))
V(978, ("identity", "below 1", "-1"), backward_of([](FunctionContext& c, const Tensor& g) {
    c.needs_input_grad(-1);
    return Grads{g};
  }))
V(979, ("identity", "below 1", "1073741824"), backward_of([](FunctionContext& c, const Tensor& g) {
    c.needs_input_grad(1 << 30);
    return Grads{g};
  }))
V(980, ("identity", "saved tensor below 1", "-9223372036854775808"),
  backward_of([](FunctionContext& c, const Tensor&) { return Grads{c.saved(kLeast)}; }))
V(981, ("identity", "0 gradients, expected 1"), backward_of([](FunctionContext&, const Tensor&) { return Grads{}; }))
V(982, ("identity", "int64 (3,)", "float32"),
  backward_of([](FunctionContext&, const Tensor& g) { return Grads{g.to(kInt64)}; }))
FINE(
    983, int caught = 0; try { backward_of([](FunctionContext&, const Tensor&) -> Grads { throw 5; }); } catch (int i) {
      caught = i;
    } expect(caught == 5, "the function's own exception"))
V(984, ("function of tensors", "2, got 1"), gradcheck([](const Tensor& x, const Tensor& y) { return x * y; }, {one()}))
V(985, ("function of tensors", "1, got 2"),
  vjp([](const Tensor& x) { return x * 2; }, Tensors{one(), one()}, Tensors{ones({1}, {.dtype = kFloat64})}))
V(986, ("function of tensors", "2, got 1"),
  hessian([](const Tensor& x, const Tensor&) { return sum(x * x); }, Tensors{one()}))
V(987, ("gradcheck", "floating point", "none"), gradcheck([](const Tensor&) { return Tensors{}; }, {one()}))
V(988, ("gradcheck", "floating point", "none"), gradcheck([](const Tensor&) { return Tensor(); }, {one()}))
V(989, ("gradcheck", "eps above 0", "0"), gradcheck(twice, {one()}, {.eps = 0}))
V(990, ("gradcheck", "atol", "nan"), gradcheck(twice, {one()}, {.atol = kNan}))
V(
    991, ("saved_tensor_hooks", "float32 (3,)", "undefined"), const Tensor x = row(); Tensor y; {
      const auto hooks = saved_tensors_hooks([](const Tensor&) { return Tensor(); }, [](const Tensor& t) { return t; });
      y = sum((x * 2) * (x * 3));
    } y.backward())
V(992, ("checkpoint", "same both times"), int n = 0;
  const Tensor y = checkpoint([&n](const Tensor& x) { return n++ ? x : exp(x); }, row() * 1); sum(y).backward())
FINE(
    993, int n = 0, caught = 0; const Tensor x = row(); const Tensor y = checkpoint(
                                                            [&n](const Tensor& x) -> Tensor {
                                                              if (n++) throw 5;
                                                              return exp(x);
                                                            },
                                                            x * 1);
    try { sum(y).backward(); } catch (int i) {
      caught = i;
    } sum(checkpoint([](const Tensor& x) { return x * 2; }, x * 1))
        .backward();
    expect(caught == 5 && values(x.grad()) == Values{2, 2, 2}))
FINE(994, Tensor x = row(), y = x * 1; for (int i = 0; i < 200000; ++i) y = y.view({3}); sum(y).backward();
     expect(values(x.grad()) == Values{1, 1, 1}))
FINE(995, Tensor y = row(); for (int i = 0; i < 300000; ++i) y = y + 1;
     std::thread([y = std::move(y)]() mutable { y.reset(); }).join())
FINE(996, const Tensor x = row(); std::vector<std::thread> all; for (int i = 0; i < 4; ++i) all.emplace_back([&] {
  for (int k = 0; k < 50; ++k) sum(x * x).backward();
});
     for (auto& t
          : all) t.join();
     expect(values(x.grad()) == Values{400, 800, 1200}))
FINE(997, std::vector<std::thread> all; for (int i = 0; i < 4; ++i) all.emplace_back([] {
  for (int k = 0; k < 50; ++k) randn({100});
});
     for (auto& t
          : all) t.join())

V(1000, ("compile", "moved from"), auto f = compile(twice); auto taken = std::move(f); f(ones({1})))
V(1001, ("compile", "reset()", "inside"), Compiled<Calls>* self = nullptr; auto f = compile(Calls([&](const Tensor& x) {
                                                                             self->reset();
                                                                             return x * 2;
                                                                           }));
  self = &f; f(ones({1})))
V(1002, ("compile", "memory_budget", "nan"), compile(twice, {.memory_budget = kNan}))
V(1003, ("compile", "verify", "nan"), compile(twice, {.verify = kNan}))
FINE(1004, auto f = compile(twice); for (int n = 0; n < 30; ++n) expect(f(ones({n})).sum().item() == 2 * n))
FINE(1005, auto f = compile([](const Tensor& x, double a) { return x / a; }); for (int i = 0; i < 6; ++i)
         expect(f(ones({1}), i % 2 ? 0. : -0.).item() == (i % 2 ? kInf : -kInf), "the sign of zero"))
FINE(1006, auto f = compile([](const Tensor& x, const Tensor& y) {
             x.add_(1);
             return y * 1;
           });
     Tensor a = zeros({1}), b = zeros({1}); for (int i = 0; i < 4; ++i) expect(f(a, b).item() == 0);
     for (int i = 5; i < 9; ++i) expect(f(a, a).item() == i, "an argument that is given twice"))
FINE(
    1007, int n = 0; auto f = compile([&](const Tensor& x) {
                       if (++n == 3) throw 5;
                       return x * 2;
                     });
    for (int i = 0; i < 8; ++i) try { expect(f(full({1}, i)).item() == 2 * i); } catch (int){})
FINE(1008, auto f = compile([](const Tensors& v) {
             Tensor s = zeros({1});
             for (const Tensor& t : v) s = s + t;
             return s;
           });
     for (int round = 0; round < 3; ++round) for (int n = 0; n < 12; ++n)
         expect(f(Tensors(size_t(n), ones({1}))).item() == n))
V(1009, ("custom_call", "null pointer"), custom_call(nullptr, {ones({1})}, {ones({1})}, [](auto&, auto&) {}))
V(1010, ("fill", "places of their own", "strides (0,)"),
  custom_call("fill", {}, {ones({1}).expand({3})}, [](auto&, auto&) {}))

V(1020, ("onnx::save", "UTF-8", "\\xff"), export_to_onnx(twice, ones({1}), {.input_names = {"\xff"}}))
V(1021, ("onnx::save", "without NUL", "a\\x00b"),
  export_to_onnx(twice, ones({1}), {.input_names = {std::string("a\0b", 3)}}))
V(1022, ("onnx::save", "not empty"), export_to_onnx(twice, ones({1}), {.output_names = {""}}))
V(1023, ("onnx::save", "opset", "9223372036854775807"), export_to_onnx(twice, ones({1}), {.opset = kMost}))
V(1024, ("onnx::save", "got none"), export_to_onnx([](const Tensor&) { return Tensor(); }, ones({1})))
V(1025, ("onnx::save", "undefined"), export_to_onnx(twice, Tensor()))
FINE(
    1026, int caught = 0; try {
      export_to_onnx(
          [](const Tensor& x) {
            if (x.defined()) throw 5;
            return x;
          },
          ones({1}));
    } catch (int i) { caught = i; } export_to_onnx(twice, ones({1}));
    expect(caught == 5, "the model's own exception"))
V(1030, ("quantize_weights", "8 or 4 bits", "9223372036854775807"), Two net;
  quant::quantize_weights_(net, {.bits = kMost}))
V(1031, ("quantize_weights", "divides", "-1"), Two net; quant::quantize_weights_(net, {.bits = 4, .group = -1}))
V(1032, ("finite weights"), Two net; net.a.weight.detach().fill_(kNan); quant::quantize_dynamic_(net))
V(1033, ("module a", "no data"), Two net; quant::prepare_(net); quant::convert_(net))
FINE(1034, Two net; quant::quantize_dynamic_(net);
     expect(std::isnan(net(full({4}, kNan)).max().item()), "NaN that stays NaN"))
