#include "activation.h"

#include "../core/fail_as.h"
#include "../ops/activation.h"
#include "../ops/create.h"
#include "../ops/noise.h"
#include "../ops/softmax.h"

namespace tapir::inline v0::nn {

#define TAPIR_FORWARD(Name, function, ...) \
  Tensor Name::forward(const Tensor& x) { return function(x __VA_OPT__(, ) __VA_ARGS__); }
#define TAPIR_FORWARD_INPLACE(Name, function, ...)               \
  Tensor Name::forward(const Tensor& x) {                        \
    if (!inplace) return function(x __VA_OPT__(, ) __VA_ARGS__); \
    Tensor y = x;                                                \
    return function##_(y __VA_OPT__(, ) __VA_ARGS__);            \
  }
TAPIR_FORWARD(Sigmoid, sigmoid)
TAPIR_FORWARD(Tanh, tanh)
TAPIR_FORWARD(Softsign, softsign)
TAPIR_FORWARD(Tanhshrink, tanhshrink)
TAPIR_FORWARD(LogSigmoid, logsigmoid)
TAPIR_FORWARD(Softmax, softmax, dim)
TAPIR_FORWARD(LogSoftmax, log_softmax, dim)
TAPIR_FORWARD(Softmin, softmin, dim)
TAPIR_FORWARD(GLU, glu, dim)
TAPIR_FORWARD(GELU, gelu, approximate)
TAPIR_FORWARD(Softplus, softplus, beta, threshold)
TAPIR_FORWARD(Hardshrink, hardshrink, lambd)
TAPIR_FORWARD(Softshrink, softshrink, lambd)
TAPIR_FORWARD(PReLU, prelu, weight)
TAPIR_FORWARD_INPLACE(ReLU, relu)
TAPIR_FORWARD_INPLACE(ReLU6, relu6)
TAPIR_FORWARD_INPLACE(SELU, selu)
TAPIR_FORWARD_INPLACE(SiLU, silu)
TAPIR_FORWARD_INPLACE(Mish, mish)
TAPIR_FORWARD_INPLACE(Hardsigmoid, hardsigmoid)
TAPIR_FORWARD_INPLACE(Hardswish, hardswish)
TAPIR_FORWARD_INPLACE(LeakyReLU, leaky_relu, negative_slope)
TAPIR_FORWARD_INPLACE(ELU, elu, alpha)
TAPIR_FORWARD_INPLACE(CELU, celu, alpha)
TAPIR_FORWARD_INPLACE(Hardtanh, hardtanh, min_val, max_val)
TAPIR_FORWARD_INPLACE(Threshold, tapir::threshold, threshold, value)
#undef TAPIR_FORWARD
#undef TAPIR_FORWARD_INPLACE

Tensor RReLU::forward(const Tensor& x) {
  Tensor y = x;
  if (!inplace) return rrelu(x, {lower, upper, training});
  return y.copy_(rrelu(x.clone(), {lower, upper, training}));  // the clone is what the gradient keeps
}
Tensor Softmax2d::forward(const Tensor& x) {
  check(x.dim() == 3 || x.dim() == 4, "[Softmax2d] expected 3D or 4D input, got {}", x);
  return softmax(x, -3);
}
PReLU::PReLU(int64_t n, const PReLUOptions& o) try : num_parameters(n) {
  check(n > 0, "[PReLU] expected num_parameters above 0, got {}", n);
  weight = Parameter(full(n, o.init, {.dtype = kFloat32}));
} catch (...) {
  fail_as("PReLU");
}

TAPIR_DEFINE_FIELDS(Sigmoid, Tanh, Softsign, Tanhshrink, LogSigmoid, Softmax2d, ReLU, ReLU6, SELU, SiLU, Mish,
                    Hardsigmoid, Hardswish, Softmax, LogSoftmax, Softmin, GLU, LeakyReLU, ELU, CELU, Hardtanh,
                    Threshold, RReLU, GELU, Softplus, Hardshrink, Softshrink, PReLU)

}  // namespace tapir::inline v0::nn
