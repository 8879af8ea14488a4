// What gradients may share with others, what is kept for them, and which nodes run.
#include <tapir/autograd/saved_hooks.h>
#include <tapir/core/allocator.h>

#include "../ops/helpers.h"

TEST_CASE("create_graph: leaves, seeds and gradients share no memory") {
  Tensor a = leaf({1, 1, 1, 1}), b = leaf({1, 1, 1, 1}), seed = ones({4}, {.dtype = kFloat64});
  (a + b).backward(seed, false, true);
  sum(a * 2).backward();
  CHECK(values(a.grad()) == Values{3, 3, 3, 3});
  CHECK(values(b.grad()) == Values{1, 1, 1, 1});
  CHECK(values(seed) == Values{1, 1, 1, 1});
  Tensor c = leaf({1, 1, 1, 1});
  sum(c).backward({}, false, true);
  CHECK(c.grad().strides() == Strides{1});
  optim::clip_grad_norm_({c}, 1);
  CHECK(close(values(c.grad()), {0.5, 0.5, 0.5, 0.5}));
  Tensor d = leaf({3});
  (d * d * d).backward({}, false, true);
  const Tensor second = grad({d.grad()}, {d})[0];
  CHECK(second.item() == 18);
  d.set_grad({});  // a gradient with a graph that ends at its own leaf is a cycle
}

TEST_CASE("grad() neither runs nor frees what made the inputs") {
  const Tensor x = leaf({2});
  const Tensor h = x * x;
  const Tensor g = grad({sum(h * h)}, {h})[0];
  CHECK(g.item() == 8);
  h.backward(g);
  CHECK(x.grad().item() == 32);
}

TEST_CASE("only what a wanted gradient needs is saved") {
  const Tensor x = leaf({1, 2}), data = tensor({5.0, 6.0}, {.dtype = kFloat64});
  Tensor y = x * 1, z = y * 2;
  y.add_(1);  // z's gradient needs no y
  sum(z).backward();
  CHECK(values(x.grad()) == Values{2, 2});
  y = x * 1, z = y / 2;
  y.add_(1);
  sum(z).backward();
  CHECK(values(x.grad()) == Values{2.5, 2.5});
  Tensor w = leaf({3, 4}), m = leaf({1, 2, 3, 4}, {2, 2});
  z = sum(w * data) + sum(matmul(data, m));
  {
    NoGrad guard;
    w.zero_(), m.zero_();  // as an optimizer would
  }
  z.backward();
  CHECK(values(w.grad()) == Values{5, 6});
  CHECK(values(m.grad()) == Values{5, 5, 6, 6});

  const Tensor big = zeros({1 << 20}).requires_grad_();
  const auto held = [&](auto f) {
    const int64_t before = memory_stats().allocated;
    const Tensor y = f(big + 1);
    return (memory_stats().allocated - before) >> 22;  // in tensors of that size
  };
  CHECK(held([](const Tensor& h) { return h * 0.5; }) == 1);
  CHECK(held([](Tensor h) { return h.mul_(0.5); }) == 1);
  CHECK(held([](const Tensor& h) { return h * h; }) == 2);
}

TEST_CASE("a view made under NoGrad is not written where gradients are recorded") {
  const Tensor x = leaf({1, 2, 3, 4});
  Tensor y = x * 1, v, of_leaf;
  {
    NoGrad guard;
    v = y.view({2, 2});
    of_leaf = x.view({2, 2});
    of_leaf.mul_(1);
  }
  CHECK(mentions(error_of([&] { v.mul_(2); }), {"mul_", "NoGrad"}));
  CHECK(mentions(error_of([&] { of_leaf.mul_(2); }), {"mul_", "NoGrad"}));
  sum(y).backward();
  CHECK(values(x.grad()) == Values{1, 1, 1, 1});
}

TEST_CASE("retain_grad stays with a tensor that is written") {
  const Tensor x = leaf({1, 2});
  Tensor y = x * 2;
  y.retain_grad();
  y.mul_(5);
  sum(y * 3).backward();
  CHECK(values(y.grad()) == Values{3, 3});
  CHECK(values(x.grad()) == Values{30, 30});
}

TEST_CASE("BI-165 indexed writes from the tensor itself read what was there before") {
  const Tensor places = tensor({1, 2, 3, 4, 0});
  Tensor x = arange(0, 5, 1);
  x[places] = x;
  CHECK(values(x) == Values{4, 0, 1, 2, 3});
  x = arange(0, 6, 1);
  x[tensor({1, 2, 3})] = x.narrow(0, 0, 3);
  CHECK(values(x) == Values{0, 0, 1, 2, 4, 5});
  x = arange(0, 5, 1);
  scatter_add_(x, 0, places, x);
  CHECK(values(x) == Values{4, 1, 3, 5, 7});
  x = tensor({1, 2, 0});
  x[x] = tensor({7, 8, 9});
  CHECK(values(x) == Values{9, 7, 8});
}

TEST_CASE("an operand that is a view of what is written has the new history afterwards") {
  const auto gradient = [](auto f) {
    const Tensor x = tensor({1.0, 2.0, 4.0, 3.0}, {.dtype = kFloat64}).requires_grad_();
    return values(grad({sum(f(mul(x, 1)))}, {x})[0]);
  };
  CHECK(gradient([](Tensor h) {
          const Tensor top = h.narrow(0, 2, 1);
          h.div_(top);
          return top;
        }) == Values{0, 0, 0, 0});
  CHECK(gradient([](Tensor h) {  // v = (1, 2, 4) (2, 4, 3) in h, of which w is (8, 12, 3)
          Tensor v = h.narrow(0, 0, 3), w = h.narrow(0, 1, 3);
          v.mul_(w);
          return w;
        }) == Values{0, 4, 5, 5});
  CHECK(gradient([](Tensor h) {
          Tensor b = h.view({2, 2}), bt = b.t();
          b.add_(bt);
          return bt.select(0, 1);  // (2 + 4, 3 + 3)
        }) == Values{0, 1, 1, 2});
  CHECK(gradient([](Tensor h) {
          Tensor v = h.narrow(0, 0, 2), w = h.narrow(0, 0, 2);
          v.mul_(w);
          return w;
        }) == Values{2, 4, 0, 0});
}

/// Two views of one base, the second of which an operation in place has as an operand: nothing of them is left afterwards.
struct Views {
  Tensor base, written, other;
};
using Write = void (*)(Views&);
static const struct {
  const char* name;
  Write write;
  bool stale = false;  // writes to what an earlier operation saved: backward may refuse
} kWrites[] = {
    {"mul_", [](Views& v) { v.written.mul_(v.other); }},
    {"div_", [](Views& v) { v.written.div_(v.other); }},
    {"clamp_max_", [](Views& v) { clamp_max_(v.written, v.other); }},
    {"lerp_", [](Views& v) { lerp_(v.written, v.other, 0.75); }},
    {"addcmul_", [](Views& v) { addcmul_(v.written, v.other, v.other); }},
    {"copy_ of a product", [](Views& v) { v.written.copy_(v.other * v.other); }, true},
    {"scatter_",
     [](Views& v) {
       scatter_(v.written, 0, tensor({0, 0}), v.other, "multiply");
     },
     true},
    {"index_add_",
     [](Views& v) {
       index_add_(v.written, 0, tensor({1, 0}), v.other, 2);
     }},
    {"the base", [](Views& v) { v.base.mul_(v.other.narrow(0, 0, 1)); }},
    {"two writes", [](Views& v) { v.written.mul_(v.other), v.other.mul_(v.written); }, true},
    {"with hooks",
     [](Views& v) {
       v.other.retain_grad(), v.other.register_hook([](const Tensor& g) { return g * 1; });
       v.written.mul_(v.other);
     }},
};
static Views views_of(const Tensor& x, bool overlap) {
  const Tensor base = x * 1;
  return {base, as_strided(base, {2}, {1}, 0), as_strided(base, {2}, {1}, overlap ? 1 : 2)};
}

TEST_CASE("operands that are views of what is written hold nothing of it") {
  const Tensor x = leaf({1, 2, 4, 3});
  for (const auto& [name, write, stale] : kWrites)
    for (const int uses : {0, 1, 2})  // none, a backward, one that retains the graph
      for (const bool overlap : {false, true}) {
        INFO(name << uses << overlap);
        const auto once = [&] {
          Views v = views_of(x, overlap);
          write(v);
          if (!uses) return;
          const auto text = error_of([&] { grad({sum(v.base)}, {x}, {}, {.retain_graph = uses == 2}); });
          CHECK((text.empty() || (stale && has(text, "modified by an inplace operation"))));
        };
        once();
        const auto nodes = Node::live_nodes(), bytes = memory_stats().allocated;
        for (int i = 0; i < 3; ++i) once();
        CHECK(Node::live_nodes() == nodes);
        CHECK(memory_stats().allocated == bytes);
      }
}

TEST_CASE("writes with views as operands: both orders of gradients, also with saved values packed") {
  struct Clones final : SavedTensorHooks {
    struct One final : PackedTensor {
      Tensor x;
      explicit One(const Tensor& x) : x(x.clone()) {}
      Tensor unpack() override { return x; }
    };
    PackedTensor* pack(const Tensor& x) override { return new One(x); }
  };
  for (const auto& [name, write, stale] : kWrites)
    for (const bool overlap : {false, true}) {
      if (stale) continue;
      INFO(name << overlap);
      const auto f = [&](const Tensor& x) {
        Views v = views_of(x, overlap);
        write(v);
        return v.base * v.base;
      };
      CHECK(gradients_hold(f, {leaf({1.5, 2, 4, 3})}));
      Clones packed;
      CHECK(gradients_hold(f, {leaf({1.5, 2, 4, 3})}));
    }
}

TEST_CASE("a saved view: written to later it is refused, and a view that is a leaf is still that leaf") {
  const Tensor x = leaf({1, 2, 4, 3});
  Views v = views_of(x, false);
  v.written.mul_(v.other);
  v.other.add_(1);
  CHECK(has(error_of([&] { sum(v.base).backward(); }), "modified by an inplace operation"));
  Tensor w = ones({4}, {.dtype = kFloat64}).narrow(0, 0, 2).requires_grad_();
  const Tensor g = grad({sum(w * w * w)}, {w}, {}, {.create_graph = true})[0];
  CHECK(values(grad({sum(g)}, {w})[0]) == Values{6, 6});
}
