#include "linear.h"

#include <cmath>

#include "../ops/matmul.h"
#include "../ops/shape.h"
#include "init.h"

namespace tapir::inline v0::nn {

Linear::Linear(int64_t in, int64_t out, const LinearOptions& o) : in_features(in), out_features(out) {
  check(in >= 0 && out >= 0, "[Linear] expected sizes of at least 0, got in_features {} and out_features {}", in, out);
  const double bound = in > 0 ? 1 / std::sqrt(double(in)) : 0;
  weight = Parameter(empty({out, in}));
  init::uniform_(weight, -bound, bound);
  if (!o.bias) return;
  bias = Parameter(empty(out));
  init::uniform_(bias, -bound, bound);
}
Tensor Linear::forward(const Tensor& x) { return linear(x, weight, bias); }
std::string Linear::extra_repr() {
  return format("in_features={}, out_features={}, bias={}", in_features, out_features,
                bias.defined() ? "True" : "False");
}

Tensor Flatten::forward(const Tensor& x) { return flatten(x, start_dim, end_dim); }

}  // namespace tapir::inline v0::nn
