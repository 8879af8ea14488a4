#pragma once
#include "module.h"

namespace tapir::inline v0::nn {

struct LinearOptions {
  bool bias = true;
};
/// y = x weight^T + bias: (..., in) -> (..., out). weight (out, in) and bias (out) start uniform in +-1/sqrt(in).
struct Linear : Module {
  int64_t in_features, out_features;
  Parameter weight, bias;
  Linear(int64_t in_features, int64_t out_features, const LinearOptions& options = {});
  Tensor forward(const Tensor& x);
  std::string extra_repr() override;
  TAPIR_DECLARE_FIELDS(in_features, out_features, weight, bias)
};
/// The same with the weight stored (in, out), as GPT-2's checkpoints have it; it starts normal (0, 0.02), the bias 0.
struct Conv1D : Module {
  Parameter weight, bias;
  Conv1D(int64_t out_features, int64_t in_features);
  Tensor forward(const Tensor& x);
  TAPIR_DECLARE_FIELDS(weight, bias)
};
/// y = x1 weight x2 + bias: (..., in1), (..., in2) -> (..., out). weight (out, in1, in2) and bias start uniform in +-1/sqrt(in1).
struct Bilinear : Module {
  int64_t in1_features, in2_features, out_features;
  Parameter weight, bias;
  Bilinear(int64_t in1_features, int64_t in2_features, int64_t out_features, const LinearOptions& options = {});
  Tensor forward(const Tensor& x1, const Tensor& x2);
  std::string extra_repr() override;
  TAPIR_DECLARE_FIELDS(in1_features, in2_features, out_features, weight, bias)
};

/// Dimensions start_dim to end_dim become one.
struct Flatten : Module {
  int64_t start_dim, end_dim;
  explicit Flatten(int64_t start_dim = 1, int64_t end_dim = -1) : start_dim(start_dim), end_dim(end_dim) {}
  Tensor forward(const Tensor& x);
  TAPIR_DECLARE_FIELDS(start_dim, end_dim)
};
/// Dimension dim becomes those of unflattened_size, of which one may be -1.
struct Unflatten : Module {
  int64_t dim;
  Shape unflattened_size;
  Unflatten(int64_t dim, const Shape& unflattened_size) : dim(dim), unflattened_size(unflattened_size) {}
  Tensor forward(const Tensor& x);
  TAPIR_DECLARE_FIELDS(dim, unflattened_size)
};

struct Identity : Module {
  Tensor forward(const Tensor& x) { return x; }
  TAPIR_DECLARE_FIELDS()
};

}  // namespace tapir::inline v0::nn
