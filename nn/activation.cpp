#include "activation.h"

#include "../ops/activation.h"
#include "../ops/softmax.h"

namespace tapir::inline v0::nn {

Tensor ReLU::forward(const Tensor& x) {
  if (!inplace) return relu(x);
  Tensor y = x;
  return relu_(y);
}
Tensor Sigmoid::forward(const Tensor& x) { return sigmoid(x); }
Tensor Tanh::forward(const Tensor& x) { return tanh(x); }
Tensor SiLU::forward(const Tensor& x) { return silu(x); }
Tensor GELU::forward(const Tensor& x) { return gelu(x, approximate); }
Tensor LeakyReLU::forward(const Tensor& x) { return leaky_relu(x, negative_slope); }
Tensor Softmax::forward(const Tensor& x) { return softmax(x, dim); }
Tensor LogSoftmax::forward(const Tensor& x) { return log_softmax(x, dim); }

}  // namespace tapir::inline v0::nn
