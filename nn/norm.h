#pragma once
#include <optional>

#include "../ops/channels.h"
#include "module.h"

namespace tapir::inline v0::nn {

struct BatchNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  // none: the running statistics are plain averages over all batches
  bool affine = true;                    // weight and bias
  bool track_running_stats = true;
  bool bias = true;
};
struct InstanceNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;
  bool affine = false;
  bool track_running_stats = false;
  bool bias = true;
};

/// What batch and instance norms share; the rank of the input is checked by them.
struct BatchNormBase : Module {
  int64_t num_features;
  BatchNormOptions options;
  Parameter weight, bias;
  Buffer running_mean, running_var, num_batches_tracked;
  /// Asked first; undefined: the module normalises by itself. See distributed::convert_sync_batchnorm.
  Tensor (*instead)(BatchNormBase&, const Tensor& x) = nullptr;
  std::string extra_repr() override;
  TAPIR_DECLARE_FIELDS(num_features, options, weight, bias, running_mean, running_var, num_batches_tracked, instead)

 protected:
  BatchNormBase(const char* name, int64_t num_features, const BatchNormOptions& options);
  Tensor normalize(const Tensor& x);
  Tensor normalize_instances(const char* name, int64_t spatial, const Tensor& x);
};

#define TAPIR_BATCH_NORM(Name, low, high)                                                                   \
  struct Name : BatchNormBase {                                                                             \
    explicit Name(int64_t num_features, const BatchNormOptions& options = {})                               \
        : BatchNormBase(#Name, num_features, options) {}                                                    \
    Tensor forward(const Tensor& x) {                                                                       \
      check(x.dim() == low || x.dim() == high, "[" #Name "] expected {} input (got {}D input of shape {})", \
            low == high ? #high "D" : #low "D or " #high "D", x.dim(), x.shape());                          \
      return normalize(x);                                                                                  \
    }                                                                                                       \
    TAPIR_DECLARE_FIELDS_WITH_BASE(BatchNormBase)                                                           \
  };
#define TAPIR_INSTANCE_NORM(Name, spatial)                                                                    \
  struct Name : BatchNormBase {                                                                               \
    explicit Name(int64_t num_features, const InstanceNormOptions& o = {})                                    \
        : BatchNormBase(#Name, num_features, {o.eps, o.momentum, o.affine, o.track_running_stats, o.bias}) {} \
    Tensor forward(const Tensor& x) { return normalize_instances(#Name, spatial, x); }                        \
    TAPIR_DECLARE_FIELDS_WITH_BASE(BatchNormBase)                                                             \
  };
// (N, C, ...), normalised over all but C. Ioffe and Szegedy 2015, arXiv 1502.03167.
TAPIR_BATCH_NORM(BatchNorm1d, 2, 3)
TAPIR_BATCH_NORM(BatchNorm2d, 4, 4)
TAPIR_BATCH_NORM(BatchNorm3d, 5, 5)
// (N, C, ...) or (C, ...), normalised over the spatial dimensions. Ulyanov et al. 2016, arXiv 1607.08022.
TAPIR_INSTANCE_NORM(InstanceNorm1d, 1)
TAPIR_INSTANCE_NORM(InstanceNorm2d, 2)
TAPIR_INSTANCE_NORM(InstanceNorm3d, 3)
#undef TAPIR_BATCH_NORM
#undef TAPIR_INSTANCE_NORM

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
  TAPIR_DECLARE_FIELDS(normalized_shape, options, weight, bias)
};

struct GroupNormOptions {
  double eps = 1e-5;
  bool affine = true;
  bool bias = true;
};
/// (N, C, ...), normalised over each of num_groups groups of channels. Wu and He 2018, arXiv 1803.08494.
struct GroupNorm : Module {
  int64_t num_groups, num_channels;
  GroupNormOptions options;
  Parameter weight, bias;
  GroupNorm(int64_t num_groups, int64_t num_channels, const GroupNormOptions& options = {});
  Tensor forward(const Tensor& x);
  std::string extra_repr() override;
  TAPIR_DECLARE_FIELDS(num_groups, num_channels, options, weight, bias)
};

struct RMSNormOptions {
  std::optional<double> eps = {};  // none: the dtype's machine epsilon
  bool elementwise_affine = true;
};
/// x / sqrt(mean(x^2) + eps) weight over the last dimensions. Zhang and Sennrich 2019, arXiv 1910.07467.
struct RMSNorm : Module {
  Shape normalized_shape;
  RMSNormOptions options;
  Parameter weight;
  explicit RMSNorm(const Shape& normalized_shape, const RMSNormOptions& options = {});
  Tensor forward(const Tensor& x);
  std::string extra_repr() override;
  TAPIR_DECLARE_FIELDS(normalized_shape, options, weight)
};

/// Each element over a power of the mean square of `size` channels around it. Krizhevsky et al. 2012.
struct LocalResponseNorm : Module {
  int64_t size;
  LocalResponseNormOptions options;
  explicit LocalResponseNorm(int64_t size, const LocalResponseNormOptions& options = {})
      : size(size), options(options) {}
  Tensor forward(const Tensor& x) { return local_response_norm(x, size, options); }
  std::string extra_repr() override;
  TAPIR_DECLARE_FIELDS(size, options)
};

}  // namespace tapir::inline v0::nn
