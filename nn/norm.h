#pragma once
#include <optional>

#include "module.h"

namespace tapir::inline v0::nn {

struct BatchNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  // none: the running statistics are plain averages over all batches
  bool affine = true;                    // weight and bias
  bool track_running_stats = true;
};

/// What BatchNorm1d and BatchNorm2d share; `rank` of the input is checked by them.
struct BatchNormBase : Module {
  int64_t num_features;
  BatchNormOptions options;
  Parameter weight, bias;
  Buffer running_mean, running_var, num_batches_tracked;
  BatchNormBase(const char* name, int64_t num_features, const BatchNormOptions& options);
  std::string extra_repr() override;
  TAPIR_FIELDS(num_features, options, weight, bias, running_mean, running_var, num_batches_tracked)

 protected:
  Tensor normalize(const Tensor& x);
};

/// (N, C) or (N, C, L), normalised over all but C. Ioffe and Szegedy 2015, arXiv 1502.03167.
struct BatchNorm1d : BatchNormBase {
  explicit BatchNorm1d(int64_t num_features, const BatchNormOptions& options = {})
      : BatchNormBase("BatchNorm1d", num_features, options) {}
  Tensor forward(const Tensor& x);
  TAPIR_FIELDS_WITH_BASE(BatchNormBase)
};
/// (N, C, H, W), normalised over all but C.
struct BatchNorm2d : BatchNormBase {
  explicit BatchNorm2d(int64_t num_features, const BatchNormOptions& options = {})
      : BatchNormBase("BatchNorm2d", num_features, options) {}
  Tensor forward(const Tensor& x);
  TAPIR_FIELDS_WITH_BASE(BatchNormBase)
};

struct LayerNormOptions {
  double eps = 1e-5;
  bool elementwise_affine = true;
  bool bias = true;
};
/// Normalised over the last dimensions, which are `normalized_shape`. Ba et al. 2016, arXiv 1607.06450.
struct LayerNorm : Module {
  Shape normalized_shape;
  LayerNormOptions options;
  Parameter weight, bias;
  explicit LayerNorm(const Shape& normalized_shape, const LayerNormOptions& options = {});
  Tensor forward(const Tensor& x);
  std::string extra_repr() override;
  TAPIR_FIELDS(normalized_shape, options, weight, bias)
};

}  // namespace tapir::inline v0::nn
