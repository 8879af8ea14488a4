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
