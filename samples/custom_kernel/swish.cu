// A kernel of your own: swish(x) = x / (1 + e^-x), forward and backward each in one launch, checked against finite differences.
#include <tapir/core/cuda_launch.h>
#include <tapir/tapir.h>

#include <cstdio>

using namespace tapir;

template <class T> __global__ void swish_kernel(int64_t n, const T* x, T* y) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x)
    y[i] = x[i] / (1 + exp(-x[i]));
}
template <class T> __global__ void swish_grad_kernel(int64_t n, const T* g, const T* x, T* dx) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x) {
    const T s = 1 / (1 + exp(-x[i]));
    dx[i] = g[i] * s * (1 + x[i] * (1 - s));
  }
}

struct Swish {
  Tensor forward(FunctionContext& ctx, const Tensor& input) {
    const Tensor x = input.contiguous(), y = empty_like(x);
    ctx.save(x);
    cuda::launch(x.device(), "swish", cuda::grid_of(x.numel()), swish_kernel<double>, x.numel(), x.data<double>(),
                 y.data<double>());
    return y;
  }
  Grads backward(FunctionContext& ctx, const Tensor& grad) {
    const Tensor g = grad.contiguous(), x = ctx.saved(0), dx = empty_like(x);
    cuda::launch(x.device(), "swish_backward", cuda::grid_of(x.numel()), swish_grad_kernel<double>, x.numel(),
                 g.data<double>(), x.data<double>(), dx.data<double>());
    return {dx};
  }
};
Tensor swish(const Tensor& x) { return apply_function("swish", Swish{}, x); }

int main() {
  if (!cuda::is_available()) {
    std::printf("no CUDA device: %s\n", cuda::why_not().c_str());
    return 0;
  }
  Tensor x = randn({33, 7}, {.dtype = kFloat64, .device = kCUDA});
  const double difference = max(abs(swish(x) - silu(x))).item();
  x.requires_grad_();
  gradcheck([](const Tensor& x) { return swish(x); }, {x});
  std::printf("swish on %s: differs from silu by %.1e, gradient checked\n", cuda::get_device_name().c_str(),
              difference);
  return difference < 1e-14 ? 0 : 1;
}
