#include "linear.h"

#include <cmath>

#include "../core/checks.h"
#include "../core/fail_as.h"
#include "../ops/create.h"
#include "../ops/einsum.h"
#include "../ops/matmul.h"
#include "../ops/rearrange.h"
#include "../ops/shape.h"
#include "init.h"

namespace tapir::inline v0::nn {

/// A weight of this shape and a bias of its first extent, uniform in +-1/sqrt(fan).
static void make_weights(Parameter& weight, Parameter& bias, const Shape& shape, int64_t fan, bool with_bias) {
  const double bound = fan > 0 ? 1 / std::sqrt(double(fan)) : 0;
  weight = Parameter(empty(shape));
  init::uniform_(weight, -bound, bound);
  if (!with_bias) return;
  bias = Parameter(empty(shape[0]));
  init::uniform_(bias, -bound, bound);
}

Linear::Linear(int64_t in, int64_t out, const LinearOptions& o) try : in_features(in), out_features(out) {
  check(in >= 0 && out >= 0, "[Linear] expected sizes of at least 0, got in_features {} and out_features {}", in, out);
  make_weights(weight, bias, {out, in}, in, o.bias);
} catch (...) {
  fail_as("Linear");
}
Tensor Linear::forward(const Tensor& x) { return linear(x, weight, bias); }
std::string Linear::extra_repr() {
  return tapir::format("in_features={}, out_features={}, bias={}", in_features, out_features,
                       detail::bool_text(bias.defined()));
}

Conv1D::Conv1D(int64_t out, int64_t in) try {
  check_count("Conv1D", "nf", out), check_count("Conv1D", "nx", in);
  weight = Parameter(empty({in, out})), bias = Parameter(zeros(out));
  init::normal_(weight, 0, 0.02);
} catch (...) {
  fail_as("Conv1D");
}
Tensor Conv1D::forward(const Tensor& x) { return linear(x, t(weight), bias); }

Bilinear::Bilinear(int64_t in1, int64_t in2, int64_t out, const LinearOptions& o) try
    : in1_features(in1), in2_features(in2), out_features(out) {
  check(in1 > 0 && in2 >= 0 && out >= 0,
        "[Bilinear] expected in1_features above 0 and sizes of at least 0, got {}, {}, {}", in1, in2, out);
  make_weights(weight, bias, {out, in1, in2}, in1, o.bias);
} catch (...) {
  fail_as("Bilinear");
}
Tensor Bilinear::forward(const Tensor& x1, const Tensor& x2) { return bilinear(x1, x2, weight, bias); }
std::string Bilinear::extra_repr() {
  return tapir::format("in1_features={}, in2_features={}, out_features={}, bias={}", in1_features, in2_features,
                       out_features, detail::bool_text(bias.defined()));
}

Tensor Flatten::forward(const Tensor& x) { return flatten(x, start_dim, end_dim); }
Tensor Unflatten::forward(const Tensor& x) { return unflatten(x, dim, unflattened_size); }

TAPIR_DEFINE_FIELDS(Linear, Conv1D, Bilinear, Flatten, Unflatten, Identity)

}  // namespace tapir::inline v0::nn
