#include "norm.h"

#include "../core/modes.h"
#include "../ops/cast.h"
#include "../ops/create.h"
#include "../ops/norm.h"
#include "../ops/ternary.h"
#include "../ops/unary.h"

namespace tapir::inline v0::nn {

BatchNormBase::BatchNormBase(const char* name, int64_t n, const BatchNormOptions& o) : num_features(n), options(o) {
  check(n > 0, "[{}] expected num_features above 0, got {}", name, n);
  check(o.eps >= 0, "[{}] expected eps of at least 0, got {}", name, o.eps);
  check(!o.momentum || (*o.momentum >= 0 && *o.momentum <= 1), "[{}] expected momentum in [0, 1], got {}", name,
        o.momentum.value_or(0));
  if (o.affine) weight = Parameter(ones(n)), bias = Parameter(zeros(n));
  if (o.track_running_stats)
    running_mean = zeros(n), running_var = ones(n), num_batches_tracked = full({}, 0, {.dtype = kInt64});
}

Tensor BatchNormBase::normalize(const Tensor& x) {
  const bool tracked = running_mean.defined(), learning = training && tracked;
  const tapir::BatchNormOptions o{training || !tracked, options.momentum.value_or(1), options.eps};
  if (learning) {
    NoGrad guard;
    num_batches_tracked.add_(1);
  }
  if (!learning || options.momentum) return batch_norm(x, running_mean, running_var, weight, bias, o);
  // The average over all batches: momentum 1 gives this batch's statistics, and the running ones go 1 / count of the way to them. The
  // count stays on the device: nothing here waits for it.
  Tensor mean = zeros_like(running_mean), var = zeros_like(running_var);
  const Tensor y = batch_norm(x, mean, var, weight, bias, o);
  NoGrad guard;
  const Tensor part = reciprocal(tapir::to(num_batches_tracked, running_mean.dtype()));
  lerp_(running_mean, mean, part), lerp_(running_var, var, part);
  return y;
}

std::string BatchNormBase::extra_repr() {
  const auto text = [](bool b) { return b ? "True" : "False"; };
  return format("{}, eps={}, momentum={}, affine={}, track_running_stats={}", num_features, options.eps,
                options.momentum ? format("{}", *options.momentum) : std::string("None"), text(options.affine),
                text(options.track_running_stats));
}

Tensor BatchNorm1d::forward(const Tensor& x) {
  check(x.dim() == 2 || x.dim() == 3, "[BatchNorm1d] expected 2D or 3D input (got {}D input of shape {})", x.dim(),
        x.shape());
  return normalize(x);
}
Tensor BatchNorm2d::forward(const Tensor& x) {
  check(x.dim() == 4, "[BatchNorm2d] expected 4D input (got {}D input of shape {})", x.dim(), x.shape());
  return normalize(x);
}

LayerNorm::LayerNorm(const Shape& shape, const LayerNormOptions& o) : normalized_shape(shape), options(o) {
  check(o.eps >= 0, "[LayerNorm] expected eps of at least 0, got {}", o.eps);
  if (!o.elementwise_affine) return;
  weight = Parameter(ones(shape));
  if (o.bias) bias = Parameter(zeros(shape));
}
Tensor LayerNorm::forward(const Tensor& x) {
  return layer_norm(x, normalized_shape, weight, bias, {.eps = options.eps});
}
std::string LayerNorm::extra_repr() {
  return format("{}, eps={}, elementwise_affine={}", normalized_shape, options.eps,
                options.elementwise_affine ? "True" : "False");
}

}  // namespace tapir::inline v0::nn
