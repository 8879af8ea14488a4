#include "sync_batch_norm.h"

#include "../core/modes.h"
#include "../functional/checkpoint.h"
#include "../ops/ops.h"
#include "process_group.h"

namespace tapir::inline v0::distributed {

/// Undefined where a batch norm of its own serves.
static Tensor normalize_together(nn::BatchNormBase& bn, const Tensor& input) {
  if (!(bn.training || !bn.running_mean.defined()) || !is_initialized() || default_group().size() == 1) return {};
  const int64_t num_features = bn.num_features;
  const ProcessGroup group = default_group();
  const Tensor x = tapir::to(input, compute_type(input.dtype()));
  std::vector<int64_t> others{0}, per_channel(size_t(x.dim()), 1);
  for (int64_t d = 2; d < x.dim(); ++d) others.push_back(d);
  per_channel[1] = num_features;
  const Shape shape(per_channel);
  const Tensor count = full({1}, double(x.numel() / num_features), {.dtype = x.dtype(), .device = x.device()});
  // Two rounds, mean first: squares of values far from 0 would leave nothing of the variance.
  const Tensor sums = all_reduce_sum(cat({sum(x, others), count}), group);
  const Tensor total = sums.narrow(0, num_features, 1).detach();
  if (x.numel() <= num_features && x.device().is_cpu())  // else nobody need look: the host waits for no device
    check(total.item() > 1, "[SyncBatchNorm] expected more than 1 value per channel over all ranks, got {}",
          total.item());
  const Tensor mean = sums.narrow(0, 0, num_features) / total;
  const Tensor centered = x - reshape(mean, shape);
  const Tensor var = all_reduce_sum(sum(centered * centered, others), group) / total;
  Tensor y = centered * reshape(rsqrt(var + bn.options.eps), shape);
  if (bn.weight.defined()) y = y * reshape(tapir::to(bn.weight, x.dtype()), shape);
  if (bn.bias.defined()) y = y + reshape(tapir::to(bn.bias, x.dtype()), shape);
  if (bn.training && bn.running_mean.defined() && !in_recomputation()) {
    NoGrad guard;
    bn.num_batches_tracked.add_(1);
    const DType kept = bn.running_mean.dtype();
    const Tensor now = tapir::to(mean.detach(), kept),
                 unbiased = tapir::to(var.detach() * (total / clamp_min(total - 1, 1)), kept);
    if (bn.options.momentum) {
      const double part = *bn.options.momentum;
      bn.running_mean.mul_(1 - part).add_(now, part);
      bn.running_var.mul_(1 - part).add_(unbiased, part);
    } else {  // the average over all batches
      const Tensor part = reciprocal(tapir::to(bn.num_batches_tracked, kept));
      lerp_(bn.running_mean, now, part), lerp_(bn.running_var, unbiased, part);
    }
  }
  return tapir::to(y, input.dtype());
}

SyncBatchNorm::SyncBatchNorm(int64_t num_features, const nn::BatchNormOptions& options)
    : BatchNormBase("SyncBatchNorm", num_features, options) {
  instead = normalize_together;
}

Tensor SyncBatchNorm::forward(const Tensor& input) {
  check(input.dim() >= 2 && input.size(1) == num_features, "[SyncBatchNorm] expected input with {} channels, got {}",
        num_features, input);
  return normalize(input);
}

void convert_sync_batchnorm(nn::Module& model) {
  model.apply([](nn::Module& m) {
    if (auto* norm = dynamic_cast<nn::BatchNormBase*>(&m)) norm->instead = normalize_together;
  });
}

bool normalizes_together(nn::Module& model) {
  bool found = false;
  model.apply([&](nn::Module& m) {
    const auto* norm = dynamic_cast<nn::BatchNormBase*>(&m);
    found |= norm && norm->instead == normalize_together;
  });
  return found;
}

TAPIR_DEFINE_FIELDS(SyncBatchNorm)

}  // namespace tapir::inline v0::distributed
