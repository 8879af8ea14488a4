// cuda_kernels/norm/norm.cu, norm_channels.cu: rows in registers and any others; both memory formats of images.
#include "kernels.h"

using namespace tapir;

namespace {
struct Run {
  Tensor y, dx, dweight, dbias;
};
template <class F> Run run(const Tensor& x0, const Tensor& w0, const Tensor& b0, const Tensor& g, F f) {
  Tensor x = x0.detach(), w = w0.detach(), b = b0.detach();
  x.requires_grad_(), w.requires_grad_(), b.requires_grad_();
  const Tensor y = f(x, w, b);
  y.backward(g);
  return {y.detach(), x.grad(), w.grad(), b.grad()};
}
/// f(x, weight, bias) with its gradients on both devices; `device` is x there, in whatever layout.
template <class F> void check_norm(const Tensor& x, const Tensor& device, const Shape& weights, F f) {
  const Tensor w = numbers(weights, x.dtype(), 2), b = numbers(weights, x.dtype(), 3),
               g = numbers(x.shape(), x.dtype(), 4);
  const Run host = run(x, w, b, g, f), there = run(device, w.to(kCUDA), b.to(kCUDA), g.to(kCUDA), f);
  const double tolerance = rounding(x.dtype()) * 4;
  CHECK(difference(there.y, host.y) < tolerance);
  CHECK(difference(there.dx, host.dx) < tolerance);
  CHECK(difference(there.dweight, host.dweight) < tolerance);
  if (host.dbias.defined()) CHECK(difference(there.dbias, host.dbias) < tolerance);
}
}  // namespace

TEST_CASE("cuda layer_norm, rms_norm: every way through memory") {
  NEEDS_CUDA
  for (DType dtype : kFloats)
    for (const Shape& shape : {Shape{50, 8}, Shape{300, 64}, Shape{20, 768}, Shape{17, 33}, Shape{3, 9000},
                               Shape{2, 18000}, Shape{1, 5}, Shape{2, 16384}, Shape{1, 50257}}) {
      const Tensor x = numbers(shape, dtype) + 3;
      INFO(tapir::format("{}", x));
      const Shape tail = {shape[1]};
      check_norm(x, x.to(kCUDA), tail,
                 [&](const Tensor& x, const Tensor& w, const Tensor& b) { return layer_norm(x, tail, w, b); });
      check_norm(x, x.to(kCUDA), tail,
                 [&](const Tensor& x, const Tensor& w, const Tensor&) { return rms_norm(x, tail, w); });
    }
  const Tensor x = numbers({6, 7, 5, 8}, kFloat32),
               there = permute(permute(x, {0, 2, 3, 1}).contiguous().to(kCUDA), {0, 3, 1, 2});
  check_norm(x, there, {5, 8}, [](const Tensor& x, const Tensor& w, const Tensor& b) {
    return layer_norm(x, {5, 8}, w, b);
  });
}

TEST_CASE("cuda batch_norm, group_norm: both memory formats") {
  NEEDS_CUDA
  for (DType dtype : kFloats)
    for (const Shape& shape : {Shape{8, 16, 6, 8}, Shape{3, 6, 7, 7}, Shape{400, 12}, Shape{2, 8, 5000}})
      for (bool last : {false, true}) {
        const Tensor x = numbers(shape, dtype) + 2;
        Tensor there = x.to(kCUDA);
        if (last) there = transpose(transpose(x, 1, -1).contiguous().to(kCUDA), 1, -1);
        const int64_t channels = shape[1];
        INFO(tapir::format("{} last {}", x, last));
        const Tensor mean = numbers({channels}, kFloat32, 8), var = rand({channels}) + 1, mean_there = mean.to(kCUDA),
                     var_there = var.to(kCUDA);
        for (bool training : {true, false})
          check_norm(x, there, {channels}, [&](const Tensor& x, const Tensor& w, const Tensor& b) {
            return x.device() == kCPU ? batch_norm(x, mean, var, w, b, {.training = training})
                                      : batch_norm(x, mean_there, var_there, w, b, {.training = training});
          });
        CHECK(difference(mean_there, mean) < 1e-5);
        CHECK(difference(var_there, var) < 1e-5);
        check_norm(x, there, {channels},
                   [&](const Tensor& x, const Tensor& w, const Tensor& b) { return group_norm(x, 2, w, b); });
      }
}
