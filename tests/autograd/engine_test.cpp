#include <tapir/autograd/final_callback.h>
#include <tapir/tapir.h>

#include <algorithm>
#include <thread>

#include "../catch.h"
#include "../errors.h"
#include "../stderr_of.h"
using namespace tapir;
using tapir_tests::stderr_of;

static Tensor leaf(std::vector<double> v) { return tensor(v).requires_grad_(); }
static std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }
using Values = std::vector<double>;

TEST_CASE("gradients flow to leaves and are summed over broadcast axes") {
  Tensor a = leaf({1, 2, 3}), b = tensor({10.0}, {.dtype = kFloat64}).requires_grad_();
  Tensor y = mul(add(a, b), a);  // (a + b) a
  sum(y).backward();
  CHECK(values(a.grad()) == Values{12, 14, 16});
  CHECK(values(b.grad()) == Values{6});
  CHECK(b.grad().shape() == Shape{1});
  CHECK(y.grad_fn() == "mul");
  CHECK(!y.is_leaf());
}

TEST_CASE("gradients accumulate in leaves, and zero_grad by set_grad") {
  Tensor a = leaf({1, 2});
  for (int i = 0; i < 3; ++i) sum(a * 2).backward();
  CHECK(values(a.grad()) == Values{6, 6});
  a.set_grad({});
  CHECK(!a.grad().defined());
  CHECK_THROWS_AS(a.set_grad(zeros({3}, {.dtype = kFloat64})), ValueError);  // BI-172
  CHECK_THROWS_AS(a.set_grad(zeros({2})), ValueError);
}

TEST_CASE("an input is asked for twice, and beside another output of the same node") {
  struct Both {
    std::pair<Tensor, Tensor> forward(FunctionContext&, const Tensor& x) { return {x * 2, x * 3}; }
    Grads backward(FunctionContext&, const Grads& g) { return Grads(g[0] * 2 + g[1] * 3); }
  };
  const Tensor x = leaf({1});
  const auto [p, q] = apply_function("both", Both{}, x);
  const auto g = grad({sum(p * 5 + q * 7)}, {q, x, p, x, q});
  const double want[] = {7, 31, 5, 31, 7};
  for (size_t i = 0; i < 5; ++i) CHECK(values(g[i]) == Values{want[i]});
}

TEST_CASE("BI-178 a chain of a million nodes runs backward and is freed, without recursion") {
  const int64_t before = Node::live_nodes();
  {
    Tensor x = leaf({1}), y = x;
    for (int i = 0; i < 1000000; ++i) y = y + 1;
    y.backward();
    CHECK(values(x.grad()) == Values{1});
    y = x * x;
    for (int i = 0; i < 1000000; ++i) y = y * x.detach();  // never run: freed through saved tensors and edges
  }
  CHECK(Node::live_nodes() == before);
}

TEST_CASE("BI-179 a diamond of depth 40 stays linear") {
  Tensor x = leaf({1}), y = x;
  for (int i = 0; i < 40; ++i) y = y + y;
  y.backward();
  CHECK(values(x.grad()) == Values{1099511627776.0});
}

TEST_CASE("BI-180 saved outputs make no cycle") {
  const int64_t before = Node::live_nodes();
  {
    Tensor x = leaf({1, 2});
    Tensor y = exp(x), z = relu_(y);
  }
  CHECK(Node::live_nodes() == before);
}

TEST_CASE("double backward goes through saved inputs and saved outputs") {
  Tensor x = leaf({0.5, 2});
  Tensor g = grad({sum(x * x * x)}, {x}, {}, {.create_graph = true})[0];  // 3 x^2
  CHECK(g.requires_grad());
  Tensor gg = grad({sum(g)}, {x})[0];
  CHECK(values(gg) == Values{3, 12});
  Tensor e = exp(x);                                                   // saves its output
  Tensor ge = grad({sum(e * e)}, {x}, {}, {.create_graph = true})[0];  // 2 e^2x
  const auto got = values(grad({sum(ge)}, {x})[0]);                    // 4 e^2x
  CHECK(got[0] == Approx(4 * std::exp(1.0)));
  CHECK(got[1] == Approx(4 * std::exp(4.0)));
}

static int ended = 0;
TEST_CASE("a callback at the end of backward: once, after all gradients, not in grad(), not where it throws") {
  const Tensor x = ones({2}).requires_grad_();
  bool backward_runs = false, throws = false;
  x.register_hook([&](const Tensor& g) -> Tensor {
    const auto count = [](void* leaf) { ended += static_cast<Tensor*>(leaf)->grad().defined() ? 1 : 100; };
    backward_runs =
        call_after_backward(count, const_cast<Tensor*>(&x)) && call_after_backward(count, const_cast<Tensor*>(&x));
    CHECK(ended == 0);
    if (throws) throw std::runtime_error("hook");
    return g;
  });
  sum(x * x).backward();
  CHECK((backward_runs && ended == 1));
  ended = 0;
  grad({sum(x * x)}, {x});
  CHECK((!backward_runs && ended == 0));
  throws = true;
  CHECK_THROWS_AS(sum(x * x).backward(), std::runtime_error);
  CHECK((backward_runs && ended == 0));
  CHECK(!call_after_backward([](void*) {}, nullptr));
}

TEST_CASE("BI-170 a second backward says what is gone; retain_graph keeps it") {
  Tensor x = leaf({1, 2});
  Tensor y = sum(x * x);
  y.backward({}, true);
  y.backward();
  CHECK(values(x.grad()) == Values{4, 8});
  const std::string text = error_of([&] { y.backward(); });
  CHECK(text.find("second time") != text.npos);
  CHECK(text.find("mul") != text.npos);
  CHECK(values(x.grad()) == Values{4, 8});
}

TEST_CASE("BI-168, BI-169, BI-171, BI-173 what backward and grad refuse") {
  Tensor x = leaf({1, 2});
  CHECK_THROWS_AS((x * 2).backward(), ValueError);
  CHECK_THROWS_AS(tensor({1.0}).backward(), ValueError);
  {
    NoGrad guard;
    Tensor y = x * 2;
    CHECK(error_of([&] { y.backward(); }).find("NoGrad") != std::string::npos);
  }
  CHECK_THROWS_AS((x * 2).backward(zeros({3}, {.dtype = kFloat64})), ValueError);
  CHECK_THROWS_AS((x * 2).backward(zeros({2})), ValueError);
  Tensor other = leaf({1});
  CHECK_THROWS_AS(grad({sum(x)}, {other}), ValueError);
  auto g = grad({sum(x)}, {other, x}, {}, {.allow_unused = true});
  CHECK(!g[0].defined());
  CHECK(values(g[1]) == Values{1, 1});
  CHECK(!x.grad().defined());  // grad() accumulates nothing
}

TEST_CASE("BI-160, BI-161, BI-164, BI-166 what in-place operations refuse") {
  Tensor x = leaf({1, 2, 3});
  CHECK_THROWS_AS(x.add_(1), ValueError);
  Tensor v = x.narrow(0, 0, 2);
  CHECK_THROWS_AS(v.add_(1), ValueError);
  {
    NoGrad guard;
    x.add_(1);
  }
  CHECK(values(x) == Values{2, 3, 4});
  Tensor wide = zeros({1}).expand({4});
  CHECK_THROWS_AS(wide.add_(1), ValueError);
  Tensor small = zeros({1, 3});
  CHECK_THROWS_AS(small.add_(ones({2, 3})), ValueError);
  Tensor ints = zeros({2}, {.dtype = kInt64});
  CHECK_THROWS_AS(ints.add_(1.5), ValueError);  // BI-080
}

TEST_CASE("BI-162, BI-163 a value that the tape saved was written to") {
  Tensor x = leaf({1, 2});
  Tensor a = x * 1, y = a * a;
  a.add_(1);
  const std::string text = error_of([&] { sum(y).backward(); });
  CHECK(text.find("modified by an inplace operation") != text.npos);
  CHECK(text.find("mul") != text.npos);
  Tensor b = x * 1, z = b * b;
  b.detach().add_(1);
  CHECK_THROWS_AS(sum(z).backward(), ValueError);
  Tensor c = x * 1, w = c * c;
  c.narrow(0, 0, 1).add_(1);
  CHECK_THROWS_AS(sum(w).backward(), ValueError);
}

TEST_CASE("in-place operations continue the history") {
  Tensor x = leaf({1, -2, 3});
  Tensor y = x * 2;
  y.add_(1);
  y.relu_();
  sum(y).backward();  // relu(2x + 1)
  CHECK(values(x.grad()) == Values{2, 0, 2});
  Tensor p = leaf({2, 3}), q = leaf({5, 7});
  Tensor z = p * 1;
  z.mul_(q);  // needs the old z for q's gradient
  sum(z).backward();
  CHECK(values(p.grad()) == Values{5, 7});
  CHECK(values(q.grad()) == Values{2, 3});
}

TEST_CASE("writes to views reach the base, and other views follow") {
  Tensor x = leaf({1, 2, 3, 4}), w = leaf({10, 20});
  Tensor base = x * 1;
  Tensor head = base.narrow(0, 0, 2), tail = base.narrow(0, 1, 3);
  head.mul_(w);  // base = (10, 40, 3, 4)
  CHECK(values(base) == Values{10, 40, 3, 4});
  CHECK(values(tail) == Values{40, 3, 4});
  sum(tail * tail).backward();  // 40^2 + 9 + 16: d/dx1 = 2*40*20, d/dw1 = 2*40*2
  CHECK(values(x.grad()) == Values{0, 1600, 6, 8});
  CHECK(values(w.grad()) == Values{0, 160});
}

TEST_CASE("a base without history gets one from a write to its view") {
  Tensor base = zeros({2, 3}, {.dtype = kFloat64}), w = leaf({1, 2, 3});
  Tensor other = base.select(0, 1);
  base[0] = w;
  base[{1, Slice(0, 2)}] = w.narrow(0, 1, 2) * 2;
  CHECK(base.requires_grad());
  CHECK(other.requires_grad());
  CHECK(values(base) == Values{1, 2, 3, 4, 6, 0});
  sum(base * base).backward();
  CHECK(values(w.grad()) == Values{2, 4 + 16, 6 + 24});
}

TEST_CASE("a transposed view is written") {
  Tensor x = leaf({1, 2, 3, 4, 5, 6});
  Tensor m = (x * 1).view({2, 3});
  Tensor t = m.t();
  t.mul_(2);
  sum(m * m).backward();
  CHECK(values(x.grad()) == Values{8, 16, 24, 32, 40, 48});
}

TEST_CASE("hooks see and replace gradients") {
  Tensor x = leaf({1, 2});
  int calls = 0;
  const int64_t id = x.register_hook([&](const Tensor& g) {
    ++calls;
    return g * 3;
  });
  Tensor y = x * 2;
  y.register_hook([&](const Tensor& g) {
    CHECK(values(g) == Values{1, 1});
    ++calls;
  });
  x.register_post_accumulate_grad_hook([&](const Tensor& leaf) {
    CHECK(values(leaf.grad()) == Values{6, 6});
    ++calls;
  });
  sum(y).backward();
  CHECK(calls == 3);
  x.remove_hook(id);
  x.set_grad({});
  CHECK_THROWS_AS((x * 1).register_post_accumulate_grad_hook([](const Tensor&) {}), ValueError);
  CHECK_THROWS_AS(tensor({1.0}).register_hook([](const Tensor&) {}), ValueError);
  Tensor z = leaf({1});
  z.register_hook([](const Tensor&) { return zeros({2}, {.dtype = kFloat64}); });
  CHECK_THROWS_AS((z * 2).backward(), ValueError);  // BI-174
}

TEST_CASE("BI-176 a hook may remove itself and call backward") {
  Tensor x = leaf({1}), other = leaf({2});
  int64_t id = 0;
  id = x.register_hook([&](const Tensor&) {
    x.remove_hook(id);
    EnableGrad on;  // hooks run unrecorded
    (other * 5).backward();
  });
  (x * 2).backward();
  (x * 2).backward();
  CHECK(values(x.grad()) == Values{4});
  CHECK(values(other.grad()) == Values{5});
}

TEST_CASE("retain_grad keeps the gradient of a result") {
  Tensor x = leaf({1, 2});
  Tensor y = x * 2;
  y.retain_grad();
  sum(y * y).backward();
  CHECK(values(y.grad()) == Values{4, 8});
}

TEST_CASE("modes") {
  Tensor x = leaf({1, 2});
  {
    NoGrad guard;
    CHECK(!(x * 2).requires_grad());
    EnableGrad on;
    CHECK((x * 2).requires_grad());
  }
  Tensor made;
  {
    InferenceMode guard;
    made = x * 2;
    CHECK(!made.requires_grad());
  }
  CHECK_THROWS_AS(made * x, ValueError);  // BI-167: x's gradient would need it
  CHECK_THROWS_AS(made.requires_grad_(), ValueError);
  CHECK_THROWS_AS(tensor({1}).requires_grad_(), ValueError);   // BI-081
  CHECK_THROWS_AS((x * 2).requires_grad_(false), ValueError);  // BI-188
  CHECK(!x.detach().requires_grad());
  Tensor y = sum(x * 2);
  {
    NoGrad guard;
    y.backward();  // BI-177
  }
  CHECK(values(x.grad()) == Values{2, 2});
}

TEST_CASE("BI-182 backward in several threads, through shared leaves") {
  Tensor w = leaf({1, 2, 3});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) sum(w * w).backward();
    });
  }
  for (auto& t : threads) t.join();
  CHECK(values(w.grad()) == Values{400, 800, 1200});
  Tensor y = sum(w * 2);
  w.set_grad({});
  std::thread([&] { y.backward(); }).join();
  CHECK(values(w.grad()) == Values{2, 2, 2});
}

TEST_CASE("BI-181 tensors may go before the graph does") {
  Tensor y;
  Tensor keep = leaf({3});
  {
    Tensor x = leaf({2});
    y = x * keep;
  }
  y.backward();
  CHECK(values(keep.grad()) == Values{2});
}

TEST_CASE("a gradient is laid out like its leaf") {
  Tensor w = zeros({2, 3, 4, 4}).contiguous(kChannelsLast).requires_grad_();
  sum(w * 2).backward();
  CHECK(w.grad().strides() == w.strides());
  Tensor x = leaf({1, 2, 3});
  sum(x).backward();  // an expanded gradient is written out
  CHECK(x.grad().is_contiguous());
  CHECK(values(x.grad()) == Values{1, 1, 1});
}

TEST_CASE("BI-184 anomaly mode names the operation") {
  Tensor x = tensor({-1.0}, {.dtype = kFloat64}).requires_grad_();
  AnomalyMode guard;
  try {
    sqrt(x).backward();
    FAIL("no error");
  } catch (const RuntimeError& e) {
    CHECK(std::string(e.what()).find("sqrt") != std::string::npos);
  }
}

TEST_CASE(
    "review 13: backward() with create_graph warns once of gradients that keep their leaf alive; grad() does not") {
  detail::warned_of_cycles = true;
  const auto said = [](auto f) {
    detail::warned_of_cycles = false;
    const std::string text = stderr_of(f);
    detail::warned_of_cycles = true;
    return text;
  };
  Tensor w = leaf({2, 3});
  const auto twice = [&] {
    for (int i = 0; i < 2; ++i) sum(w * w * w).backward({}, true, true);
  };
  const std::string text = said(twice);
  CHECK(text.find("tapir: warning: [backward] create_graph") == 0);
  CHECK(text.find("grad() ") != std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
  w.set_grad({});
  const int64_t before = Node::live_nodes();
  CHECK(said([&] { (void)grad({sum(w * w * w)}, {w}, {}, {.create_graph = true}); }) == "");
  CHECK(said([&] { sum(w * 2).backward({}, true, true); }) == "");  // a gradient without a history
  CHECK(Node::live_nodes() == before);
}
