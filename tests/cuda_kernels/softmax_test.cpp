// cuda_kernels/norm/softmax.cu, cross_entropy.cu: lanes in registers, long ones, lanes side by side.
#include "kernels.h"

using namespace tapir;

namespace {
/// Values and gradients of f(x), f being the same on both devices.
template <class F> void check_both(const Tensor& host, const Tensor& device, double tolerance, F f) {
  Tensor x = host.detach(), there = device.detach();
  x.requires_grad_(), there.requires_grad_();
  const Tensor y = f(x), y_there = f(there);
  CHECK(difference(y_there.detach(), y.detach()) < tolerance);
  const Tensor g = numbers(y.shape(), y.dtype(), 7);
  y.backward(g), y_there.backward(g.to(kCUDA));
  CHECK(difference(there.grad(), x.grad()) < tolerance);
}
}  // namespace

TEST_CASE("cuda softmax: every way through memory") {
  NEEDS_CUDA
  for (DType dtype : kFloats)
    for (const Shape& shape :
         {Shape{40, 10}, Shape{7, 64}, Shape{9, 1000}, Shape{3, 777}, Shape{2, 9001}, Shape{1, 20000}, Shape{5, 1}})
      for (bool log : {false, true}) {
        const Tensor x = numbers(shape, dtype);
        INFO(tapir::format("{} log {}", x, log));
        check_both(x, x.to(kCUDA), rounding(dtype),
                   [&](const Tensor& t) { return log ? log_softmax(t, 1) : softmax(t, 1); });
      }
  for (
      DType dtype :
      kFloats)  // lanes side by side: in registers, by packs and not, and cut into chunks; a gradient that lies otherwise
    for (const Shape& shape :
         {Shape{3, 40}, Shape{21, 64}, Shape{300, 72}, Shape{37, 61}, Shape{3000, 48}, Shape{2500, 11}})
      for (bool log : {false, true}) {
        const Tensor x = numbers(shape, dtype).t();
        INFO(tapir::format("{} log {}", x, log));
        check_both(x, x.to(kCUDA), rounding(dtype),
                   [&](const Tensor& t) { return log ? log_softmax(t, 1) : softmax(t, 1); });
      }
  for (int64_t size : {100000, 100003}) {  // a few long ones
    const Tensor x = numbers({2, size}, kFloat32);
    check_both(x, x.to(kCUDA), 2e-5, [](const Tensor& t) { return softmax(t, 1); });
  }
  const Tensor x = numbers({6, 33, 40}, kFloat32);
  check_both(x, x.to(kCUDA), 2e-5, [](const Tensor& t) { return softmax(t, 1); });
  check_both(x, x.to(kCUDA), 2e-5, [](const Tensor& t) { return log_softmax(permute(t, {2, 0, 1}), 1); });
  check_both(x, x.to(kCUDA), 2e-5, [](const Tensor& t) { return softmax(narrow(t, 2, 1, 37), 2); });
}

TEST_CASE("cuda softmax: infinities and NaN") {
  NEEDS_CUDA
  const float inf = INFINITY;
  for (int64_t repeat : {1, 5000}) {
    Tensor x = tensor({{0.f, -inf, 1.f, -inf}, {-inf, -inf, -inf, -inf}, {0.f, inf, 1.f, 2.f}, {0.f, NAN, 1.f, -inf}});
    x = reshape(expand(unsqueeze(x, 1), {4, repeat, 4}), {4, 4 * repeat});
    CHECK(difference(softmax(x.to(kCUDA), 1), softmax(x, 1)) < 1e-6);
    CHECK(difference(log_softmax(x.to(kCUDA), 1), log_softmax(x, 1)) < 1e-6);
    CHECK(difference(softmax(x.t().to(kCUDA).t(), 1), softmax(x, 1)) < 1e-6);
  }
}

TEST_CASE("cuda cross_entropy: rows, columns, weights, smoothing, ignored and bad labels") {
  NEEDS_CUDA
  const CrossEntropyOptions plain, smooth{.label_smoothing = 0.1};
  for (DType dtype : kFloats)
    for (const Shape& shape : {Shape{30, 10}, Shape{5, 1003}, Shape{2, 20011}, Shape{3, 7, 50}, Shape{3, 300, 4, 5}}) {
      manual_seed(5);
      Shape places = shape;
      places.erase(1);
      Tensor target = randint(shape[1], places);
      flatten(target)[1] = -100;
      const Tensor x = numbers(shape, dtype), weight = rand({shape[1]}), labels = target.to(kCUDA),
                   w = weight.to(kCUDA);
      INFO(tapir::format("{}", x));
      for (bool weighted : {false, true})
        for (double smoothing : {0.0, 0.1})
          check_both(x, x.to(kCUDA), rounding(dtype) * 5, [&](const Tensor& t) {
            const Tensor given = weighted ? (t.device() == kCPU ? weight : w).to(dtype) : Tensor();
            return cross_entropy(t, t.device() == kCPU ? target : labels,
                                 {.weight = given, .reduction = Reduction::None, .label_smoothing = smoothing});
          });
    }
  for (const Shape& shape :
       {Shape{5, 100}, Shape{3, 40, 6}}) {  // logits far from 0: losses and gradients keep their digits
    Shape places = shape;
    places.erase(1);
    const Tensor x = randint(-20, 21, shape).to(kFloat32) / 4 + 1e6, target = randint(shape[1], places),
                 labels = target.to(kCUDA);
    for (const double smoothing : {0.0, 0.1})
      check_both(x, x.to(kCUDA), 1e-5, [&](const Tensor& t) {
        return cross_entropy(t, t.device() == kCPU ? target : labels,
                             {.reduction = Reduction::None, .label_smoothing = smoothing});
      });
  }
  for (DType dtype :
       kFloats)  // GPT-2's vocabulary, bare and padded: rows that begin at any byte, and at multiples of 16
    for (int64_t classes : {50257, 50304}) {
      const Tensor x = numbers({2, classes}, dtype), target = tensor({classes - 1, int64_t(7)}),
                   labels = target.to(kCUDA);
      INFO(tapir::format("{}", x));
      check_both(x, x.to(kCUDA), rounding(dtype) * 5, [&](const Tensor& t) {
        return cross_entropy(t, t.device() == kCPU ? target : labels, {.reduction = Reduction::None});
      });
      check_both(x, x.to(kCUDA), rounding(dtype), [&](const Tensor& t) { return log_softmax(t, 1); });
    }
  for (const DType dtype : {kFloat16, kBFloat16}) {  // a gradient whose rows begin at multiples of 16 bytes
    const Tensor x = numbers({22, 50257}, dtype), target = randint(50257, {22}), labels = target.to(kCUDA);
    check_both(x, x.to(kCUDA), rounding(dtype) * 5,
               [&](const Tensor& t) { return cross_entropy(t, t.device() == kCPU ? target : labels); });
    Tensor there = x.to(kCUDA).requires_grad_(), scaled = mul(there, 2);
    scaled.retain_grad();
    cross_entropy(scaled, labels).backward();
    CHECK(scaled.grad().stride(0) == 50264);
  }
  for (const DType dtype : {kFloat16, kBFloat16, kFloat32})  // columns behind the classes, which hold zeros
    for (const int64_t chunk : {0, 24, 17}) {
      const Tensor x = numbers({50, 40}, dtype), w = numbers({1003, 40}, dtype), target = randint(1003, {50});
      std::vector<Tensor> found[2];
      for (const Device device : {kCPU, kCUDA}) {
        const Tensor a = x.to(device).detach().requires_grad_(), b = w.to(device).detach().requires_grad_();
        const Tensor y = linear_cross_entropy(a, b, target.to(device), {.chunk_size = chunk});
        y.backward();
        found[device == kCUDA] = {y.detach().to(kCPU), a.grad().to(kCPU), b.grad().to(kCPU)};
      }
      INFO("chunk " << chunk << " " << tapir::format("{}", x));
      const double scale[] = {1, 1e-2, 1e-2};
      for (size_t i = 0; i < 3; ++i)
        CHECK(max(abs(found[0][i].to(kFloat64) - found[1][i].to(kFloat64))).item() < 20 * rounding(dtype) * scale[i]);
    }
  const Tensor x = numbers({4, 3}, kFloat32).to(kCUDA), bad = tensor({0, 3, 1, -5}).to(kInt64).to(kCUDA);
  const std::string text = message_of<ValueError>([&] {
    cross_entropy(x, bad);
    cuda::synchronize();
  });
  CHECK(contains(text, "target 3 at position 1 is out of bounds for 3 classes"));
}
