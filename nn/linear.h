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
  TAPIR_FIELDS(in_features, out_features, weight, bias)
};

/// Dimensions start_dim to end_dim become one.
struct Flatten : Module {
  int64_t start_dim, end_dim;
  explicit Flatten(int64_t start_dim = 1, int64_t end_dim = -1) : start_dim(start_dim), end_dim(end_dim) {}
  Tensor forward(const Tensor& x);
  TAPIR_FIELDS(start_dim, end_dim)
};

struct Identity : Module {
  Tensor forward(const Tensor& x) { return x; }
  TAPIR_FIELDS()
};

}  // namespace tapir::inline v0::nn
