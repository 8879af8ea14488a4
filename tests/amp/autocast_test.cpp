#include <tapir/tapir.h>

#include <functional>
#include <thread>

#include "../catch.h"

using namespace tapir;

static std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const ValueError& e) {
    return e.what();
  }
  return "no error";
}

TEST_CASE("autocast: products in bfloat16, losses in float32, pointwise as they come") {
  const Tensor x = randn({4, 8}), w = randn({3, 8}).requires_grad_();
  amp::Autocast autocast(kCPU);
  const Tensor y = linear(x, w);
  CHECK(y.dtype() == kBFloat16);
  CHECK((y * 2).dtype() == kBFloat16);
  CHECK(mse_loss(y, zeros_like(y)).dtype() == kFloat32);
  CHECK(cat({y, ones({1, 3})}).dtype() == kFloat32);
  CHECK(matmul(x.to(kFloat64), x.t().to(kFloat64)).dtype() == kFloat64);
  mse_loss(y, zeros_like(y)).backward();
  CHECK(w.grad().dtype() == kFloat32);
}

TEST_CASE("autocast: regions nest, can be off, and restore what was, also by exceptions (BI-223)") {
  const Tensor x = randn({2, 2});
  CHECK(!amp::is_autocast_enabled(kCPU));
  {
    amp::Autocast outer(kCPU);
    {
      amp::Autocast inner(kCPU, {.dtype = kFloat16});
      CHECK(mm(x, x).dtype() == kFloat16);
      amp::Autocast off(kCPU, {.enabled = false});
      CHECK(mm(x, x).dtype() == kFloat32);
      amp::Autocast other(Device("cuda"));
      CHECK(mm(x, x).dtype() == kFloat32);
    }
    CHECK(mm(x, x).dtype() == kBFloat16);
    try {
      amp::Autocast inner(kCPU, {.dtype = kFloat16});
      mm(x, ones({3, 3}));
      FAIL("expected an error");
    } catch (const ValueError&) {}
    CHECK(amp::autocast_dtype(kCPU) == kBFloat16);
    DType there = kFloat64;
    std::thread([&] { there = mm(x, x).dtype(); }).join();
    CHECK(there == kFloat32);
  }
  CHECK(mm(x, x).dtype() == kFloat32);
  CHECK(error_of([&] {
          amp::Autocast(kCPU, {.dtype = kInt32});
        }).find("[Autocast] expected float16 or bfloat16, got int32") != std::string::npos);
}

TEST_CASE("autocast: the cast of a weight is kept until it is written, per dtype and gradient mode (BI-224)") {
  Tensor w = full({2, 2}, 1.0).requires_grad_();
  const Tensor x = ones({1, 2});
  amp::Autocast autocast(kCPU);
  {
    NoGrad guard;
    CHECK(mm(x, w).sum().item() == 4);
  }
  const Tensor a = mm(x, w), b = mm(x, w);
  CHECK(a.requires_grad());
  (a.sum() + b.sum()).backward();
  CHECK(w.grad().sum().item() == 8);
  {
    NoGrad guard;
    w.fill_(2);
  }
  CHECK(mm(x, w).sum().item() == 8);
  mm(x, w).sum().backward();  // a second backward through the kept cast
  mm(x, w).sum().backward();
  CHECK(w.grad().sum().item() == 16);
}

TEST_CASE("autocast: gradients run in the dtypes of the forward, wherever backward is called") {
  Tensor w = randn({3, 3}).requires_grad_();
  Tensor loss;
  {
    amp::Autocast autocast(kCPU);
    loss = mm(w, w).to(kFloat32).sum();
  }
  loss.backward();
  const Tensor outside = w.grad();
  w.set_grad({});
  {
    amp::Autocast autocast(kCPU);
    mm(w, w).to(kFloat32).sum().backward();
  }
  CHECK(equal(outside, w.grad()));
}

TEST_CASE("autocast: cross entropy of labels reads logits of 16 bits as they are, and its result has 32") {
  manual_seed(3);
  const Tensor logits = randn({300, 1000}).to(kBFloat16), labels = randint(0, 1000, {300}), weight = rand({1000});
  for (const Reduction reduction : {Reduction::Mean, Reduction::Sum, Reduction::None})
    for (const double smoothing : {0., 0.1}) {
      const CrossEntropyOptions options{.weight = weight, .reduction = reduction, .label_smoothing = smoothing};
      Tensor a = logits.clone().requires_grad_(), b = logits.clone().requires_grad_();
      Tensor loss;
      reset_peak_memory_stats();
      const int64_t before = memory_stats().allocated;
      {
        const amp::Autocast autocast(kCPU);
        loss = cross_entropy(a, labels, options);
      }
      CHECK(memory_stats().max_allocated - before < logits.numel());  // bytes: no copy
      const Tensor wanted = cross_entropy(b.to(kFloat32), labels, options);
      CHECK(loss.dtype() == kFloat32);
      CHECK(allclose(loss.detach(), wanted.detach(), {.rtol = 1e-5}));
      loss.sum().backward(), wanted.sum().backward();
      CHECK(a.grad().dtype() == kBFloat16);
      CHECK(allclose(a.grad().to(kFloat32), b.grad().to(kFloat32), {.rtol = 1e-2, .atol = 1e-6}));
    }
  const amp::Autocast autocast(kCPU);
  CHECK(cross_entropy(logits.select(0, 0), labels.select(0, 0)).dtype() == kFloat32);
  CHECK(cross_entropy(logits, softmax(logits, 1)).dtype() == kFloat32);
}

TEST_CASE("autocast: a checkpoint computes again in the same dtypes") {
  const Tensor x = randn({4, 4}), w = randn({4, 4}).requires_grad_();
  const auto f = [](const Tensor& x, const Tensor& w) { return softmax(mm(x, w), -1); };
  Tensor plain, again;
  {
    amp::Autocast autocast(kCPU);
    plain = square(f(x, w)).to(kFloat32).sum();
    again = square(checkpoint(f, x, w)).to(kFloat32).sum();
  }
  plain.backward();
  const Tensor want = w.grad();
  Tensor(w).set_grad({});
  again.backward();
  CHECK(equal(w.grad(), want));
}

TEST_CASE("autocast: as a wrapper, and a function that wants a dtype of its own") {
  const Tensor x = randn({2, 2});
  auto product = amp::autocast(kCPU, {}, [](const Tensor& a, const Tensor& b) { return mm(a, b); });
  CHECK(product(x, x).dtype() == kBFloat16);
  CHECK(mm(x, x).dtype() == kFloat32);
  auto exact = amp::cast_inputs(kFloat32, [](const Tensor& a) { return mm(a, a); });
  CHECK(exact(x.to(kBFloat16)).dtype() == kBFloat16);  // outside a region nothing is cast
  amp::Autocast autocast(kCPU);
  CHECK(exact(x.to(kBFloat16)).dtype() == kFloat32);
}

// The dtypes below are those of PyTorch 2.15 on the CPU, run over every mix of dtypes.
TEST_CASE("review 8: einsum of several dtypes under autocast casts where products are summed, and promotes elsewhere") {
  const auto type_of = [](const char* equation, const std::vector<Tensor>& x) { return einsum(equation, x).dtype(); };
  const auto of = [](DType t, Shape shape) { return full(shape, 0.5, {.dtype = t}); };
  const Tensor a = of(kFloat32, {3, 4}), b = of(kBFloat16, {4, 5}), h = of(kFloat16, {4, 5}), d = of(kFloat64, {4, 5}),
               row = of(kFloat32, {2});
  for (DType low : {kBFloat16, kFloat16}) {
    amp::Autocast autocast(kCPU, {.dtype = low});
    CHECK(type_of("ij,jk->ik", {a, b}) == low);
    CHECK(type_of("ij,jk->ik", {a, h}) == low);
    CHECK(type_of("ij,jk", {a, of(kFloat32, {4, 5})}) == low);
    CHECK(einsum("ij,jk->ik", {a, b})[0][0].item() == 1);
    CHECK(type_of("i,j->ij", {row, of(kBFloat16, {3})}) == kFloat32);                        // nothing is summed
    CHECK(type_of("ij,jk->ik", {of(kFloat32, {3, 1}), of(kBFloat16, {1, 5})}) == kFloat32);  // a sum of one product
    CHECK(type_of("i,i->", {of(low, {1}), of(low, {1})}) == low);
    CHECK(type_of("i->", {row}) == kFloat32);
    CHECK(type_of("ij->ji", {b}) == kBFloat16);
    CHECK(type_of("ij,jk->ik", {of(kFloat64, {3, 4}), d}) == kFloat64);
    CHECK(type_of("ij,kj->", {of(kFloat32, {3, 0}), of(kInt64, {2, 0})}) == kInt64);  // of nothing: the second one's
    // Of three: as if from left to right, in whatever order they are contracted.
    CHECK(type_of("ij,jk,l->ikl", {a, b, row}) == kFloat32);
    CHECK(type_of("l,ij,jk->ikl", {row, a, b}) == low);
    CHECK(type_of("i,j,ij->", {of(kFloat32, {3}), of(kBFloat16, {4}), a}) == low);
    CHECK(error_of([&] { einsum("ij,jk->ik", {a, d}); }).find("[einsum] expected operands of one dtype") == 0);
    CHECK(error_of([&] { einsum("l,ij,jk->ikl", {of(kFloat64, {2}), a, b}); }) != "no error");
  }
  CHECK(error_of([&] { einsum("ij,jk->ik", {a, b}); }).find("[einsum] expected operands of one dtype") == 0);
  CHECK(type_of("ij,jk->ik", {of(kFloat32, {3, 1}), of(kFloat64, {1, 5})}) == kFloat64);
  CHECK(type_of("l,ij,jk->ikl", {of(kFloat64, {2}), a, d}) == kFloat64);

  const Tensor w = randn({4, 5}).requires_grad_(), x = randn({3, 4}).to(kBFloat16).requires_grad_();
  amp::Autocast autocast(kCPU);
  einsum("ij,jk->ik", {x, w}).sum().backward();
  CHECK((w.grad().dtype() == kFloat32 && x.grad().dtype() == kBFloat16));
}

TEST_CASE("review 8: tensordot, inner and bilinear under autocast are products, but for the dot of all they have") {
  const auto of = [](DType t, Shape shape) { return full(shape, 0.5, {.dtype = t}); };
  for (DType low : {kBFloat16, kFloat16})
    for (DType t : {kFloat32, kBFloat16, kFloat16, kFloat64}) {
      const DType product = t == kFloat64 ? t : low;
      amp::Autocast autocast(kCPU, {.dtype = low});
      CHECK(tensordot(of(t, {2, 3}), of(t, {4}), 0).dtype() == product);
      CHECK(tensordot(of(t, {2}), of(t, {}), 0).dtype() == product);
      CHECK(tensordot(of(t, {2, 3}), of(t, {1, 4}), 1).dtype() == product);
      CHECK(tensordot(of(t, {2, 1}), of(t, {3, 4}), 1).dtype() == product);
      CHECK(tensordot(of(t, {2, 3}), of(t, {3, 4}), 1).dtype() == product);
      CHECK(tensordot(of(t, {2, 3}), of(t, {4}), Dims(), Dims()).dtype() == product);
      CHECK(tensordot(of(t, {2, 3, 4}), of(t, {4, 5, 2}), {0, 2}, {2, 0}).dtype() == product);
      CHECK(tensordot(of(t, {3}), of(t, {3}), 1).dtype() == t);
      CHECK(tensordot(of(t, {3, 4}), of(t, {3, 4})).dtype() == t);
      CHECK(tensordot(of(t, {}), of(t, {}), 0).dtype() == t);
      CHECK(tensordot(of(t, {1, 3}), of(t, {2, 3}), {0, 1}, {0, 1}).dtype() == t);
      CHECK(inner(of(t, {2, 3}), of(t, {4, 3})).dtype() == product);
      CHECK(inner(of(t, {2, 1}), of(t, {3, 1})).dtype() == product);
      CHECK(inner(of(t, {3}), of(t, {3})).dtype() == t);
      CHECK(inner(of(t, {}), of(t, {3})).dtype() == t);
      CHECK(bilinear(of(t, {2, 3}), of(t, {2, 4}), of(t, {5, 3, 4})).dtype() == t);
    }
  // bilinear computes in the region's dtype and gives that of its inputs
  const Tensor x = full({1, 2}, 1 + 0x1p-10), w = ones({1, 2, 2});
  CHECK(bilinear(x, ones({1, 2}), w).item() != 4);
  amp::Autocast autocast(kCPU);
  CHECK(bilinear(x, ones({1, 2}), w).item() == 4);
}
