#include "norm.h"

#include "../core/checks.h"
#include "../core/denormals.h"
#include "../core/fail_as.h"
#include "../core/modes.h"
#include "../functional/checkpoint.h"
#include "../ops/cast.h"
#include "../ops/create.h"
#include "../ops/norm.h"
#include "../ops/shape.h"
#include "../ops/ternary.h"
#include "../ops/unary.h"

namespace tapir::inline v0::nn {

BatchNormBase::BatchNormBase(const char* name, int64_t n, const BatchNormOptions& o) try : num_features(n), options(o) {
  check(n > 0, "[{}] expected num_features above 0, got {}", name, n);
  check(o.eps >= 0, "[{}] expected eps of at least 0, got {}", name, o.eps);
  check(!o.momentum || (*o.momentum >= 0 && *o.momentum <= 1), "[{}] expected momentum in [0, 1], got {}", name,
        o.momentum.value_or(0));
  if (o.affine) weight = Parameter(ones(n));
  if (o.affine && o.bias) bias = Parameter(zeros(n));
  if (o.track_running_stats)
    running_mean = zeros(n), running_var = ones(n), num_batches_tracked = full({}, 0, {.dtype = kInt64});
} catch (...) {
  fail_as(name);
}

Tensor BatchNormBase::normalize(const Tensor& x) {
  if (instead)
    if (Tensor y = instead(*this, x); y.defined()) return y;
  const bool tracked = running_mean.defined(), learning = training && tracked && !in_recomputation();
  const tapir::BatchNormOptions o{training || !tracked, options.momentum.value_or(1), options.eps};
  const auto count = [&] {  // once the batch is not refused
    NoGrad guard;
    if (learning) num_batches_tracked.add_(1);
  };
  if (!learning && training) return batch_norm(x, {}, {}, weight, bias, o);  // in a checkpoint's second run
  if (!learning || options.momentum) {
    const Tensor y = batch_norm(x, running_mean, running_var, weight, bias, o);
    count();
    return y;
  }
  // The average over all batches: momentum 1 gives this batch's statistics, and the running ones go 1 / count of the way to them. The
  // count stays on the device: nothing here waits for it.
  Tensor mean = zeros_like(running_mean), var = zeros_like(running_var);
  const Tensor y = batch_norm(x, mean, var, weight, bias, o);
  count();
  NoGrad guard;
  const Tensor part = reciprocal(tapir::to(num_batches_tracked, running_mean.dtype()));
  const tapir::detail::FlushDenormals flush(running_mean.dtype());  // as the kernel does
  lerp_(running_mean, mean, part), lerp_(running_var, var, part);
  return y;
}

Tensor BatchNormBase::normalize_instances(const char* name, int64_t spatial, const Tensor& x) {
  check(x.dim() == spatial + 1 || x.dim() == spatial + 2, "[{}] expected {}D or {}D input (got {}D input of shape {})",
        name, spatial + 1, spatial + 2, x.dim(), x.shape());
  const bool batched = x.dim() == spatial + 2;
  check(!options.affine || x.shape()[batched] == num_features, "[{}] expected input with {} channels, got {}", name,
        num_features, x.shape());
  const tapir::InstanceNormOptions o{training || !running_mean.defined(), options.momentum.value_or(0), options.eps};
  const bool again = training && in_recomputation();
  const Tensor y = instance_norm(batched ? x : unsqueeze(x, 0), again ? Tensor() : running_mean,
                                 again ? Tensor() : running_var, weight, bias, o);
  return batched ? y : squeeze(y, 0);
}

using detail::bool_text, detail::float_text;

std::string BatchNormBase::extra_repr() {
  return tapir::format("{}, eps={}, momentum={}, affine={}, bias={}, track_running_stats={}", num_features,
                       float_text(options.eps), options.momentum ? float_text(*options.momentum) : std::string("None"),
                       bool_text(options.affine), bool_text(bias.defined()), bool_text(options.track_running_stats));
}

static void check_shape(const char* name, const Shape& shape) {
  check(!shape.empty(), "[{}] expected normalized_shape to be at least 1-dimensional, got {}", name, shape);
  for (int64_t n : shape) check(n >= 0, "[{}] expected a normalized_shape of sizes of at least 0, got {}", name, shape);
}

LayerNorm::LayerNorm(const Shape& shape, const LayerNormOptions& o) try : normalized_shape(shape), options(o) {
  check_shape("LayerNorm", shape);
  check(o.eps >= 0, "[LayerNorm] expected eps of at least 0, got {}", o.eps);
  if (!o.elementwise_affine) return;
  weight = Parameter(ones(shape));
  if (o.bias) bias = Parameter(zeros(shape));
} catch (...) {
  fail_as("LayerNorm");
}
Tensor LayerNorm::forward(const Tensor& x) {
  return layer_norm(x, normalized_shape, {.weight = weight, .bias = bias, .eps = options.eps});
}
std::string LayerNorm::extra_repr() {
  return tapir::format("{}, eps={}, elementwise_affine={}, bias={}", normalized_shape, float_text(options.eps),
                       bool_text(options.elementwise_affine), bool_text(bias.defined()));
}

GroupNorm::GroupNorm(int64_t groups, int64_t channels, const GroupNormOptions& o) try
    : num_groups(groups), num_channels(channels), options(o) {
  check_count("GroupNorm", "num_channels", channels, 1);
  check(groups > 0 && channels % groups == 0, "[GroupNorm] num_channels must be divisible by num_groups, got {} and {}",
        channels, groups);
  check(o.eps >= 0, "[GroupNorm] expected eps of at least 0, got {}", o.eps);
  if (o.affine) weight = Parameter(ones(channels));
  if (o.affine && o.bias) bias = Parameter(zeros(channels));
} catch (...) {
  fail_as("GroupNorm");
}
Tensor GroupNorm::forward(const Tensor& x) {
  return group_norm(x, num_groups, {.weight = weight, .bias = bias, .eps = options.eps});
}
std::string GroupNorm::extra_repr() {
  return tapir::format("{}, {}, eps={}, affine={}, bias={}", num_groups, num_channels, float_text(options.eps),
                       bool_text(options.affine), bool_text(bias.defined()));
}

RMSNorm::RMSNorm(const Shape& shape, const RMSNormOptions& o) try : normalized_shape(shape), options(o) {
  check_shape("RMSNorm", shape);
  check(!o.eps || *o.eps >= 0, "[RMSNorm] expected eps of at least 0, got {}", o.eps.value_or(0));
  if (o.elementwise_affine) weight = Parameter(ones(shape));
} catch (...) {
  fail_as("RMSNorm");
}
Tensor RMSNorm::forward(const Tensor& x) {
  return rms_norm(x, normalized_shape, {.weight = weight, .eps = options.eps});
}
std::string RMSNorm::extra_repr() {
  return tapir::format("{}, eps={}, elementwise_affine={}", normalized_shape,
                       options.eps ? float_text(*options.eps) : std::string("None"),
                       bool_text(options.elementwise_affine));
}

std::string LocalResponseNorm::extra_repr() {
  return tapir::format("{}, alpha={}, beta={}, k={}", size, float_text(options.alpha), float_text(options.beta),
                       float_text(options.k));
}

TAPIR_DEFINE_FIELDS(BatchNormBase, BatchNorm1d, BatchNorm2d, BatchNorm3d, InstanceNorm1d, InstanceNorm2d,
                    InstanceNorm3d, LayerNorm, GroupNorm, RMSNorm, LocalResponseNorm)

}  // namespace tapir::inline v0::nn
