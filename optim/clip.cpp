#include "clip.h"

#include <cmath>

#include "../autograd/grad_batches.h"
#include "../core/modes.h"
#include "../ops/arithmetic.h"
#include "../ops/create.h"

namespace tapir::inline v0::optim {

/// Of tensors that lie where `model` does and compute as it does; 0-dim.
static Tensor norm_of(const Tensor& model, std::span<const TensorView> xs, double p) {
  const Tensor out = empty({}, {.dtype = compute_type(model.dtype()), .device = model.device()});
  backend(out).foreach (context(out), {.out = out, .xs = xs, .params = {ForeachOp::NormP, p}});
  return out;
}

static Tensor total_norm(const char* function, const std::vector<GradBatch>& batches, const ClipOptions& o) {
  check(o.norm_type > 0, "[{}] expected norm_type above 0, got {}", function, o.norm_type);
  if (batches.empty()) return zeros({});
  Tensor total = norm_of(batches[0].model, batches[0].views, o.norm_type);
  if (batches.size() > 1) {
    const Tensor norms = empty(int64_t(batches.size()), {.dtype = total.dtype(), .device = total.device()});
    norms[0] = total;
    for (size_t i = 1; i < batches.size(); ++i)
      norms[int64_t(i)] = norm_of(batches[i].model, batches[i].views, o.norm_type);
    const TensorView all[] = {norms};
    total = norm_of(total, all, o.norm_type);
  }
  if (o.error_if_nonfinite) {
    const double value = total.item();
    check(std::isfinite(value),
          "[{}] the total norm of order {} for gradients is non-finite ({}), so it cannot be clipped", function,
          o.norm_type, value);
  }
  return total;
}

Tensor grad_norm(const std::vector<Tensor>& params, const ClipOptions& options) {
  NoGrad guard;
  return total_norm("grad_norm", grads_of("grad_norm", params), options);
}

Tensor clip_factor(const Tensor& norm, double max_norm) {
  check(max_norm >= 0, "[clip_factor] expected max_norm of at least 0, got {}", max_norm);
  check(norm.defined() && norm.numel() == 1 && is_floating(norm.dtype()),
        "[clip_factor] expected a norm, one element of a floating point dtype, got {}", norm);
  NoGrad guard;
  const Tensor factor = div(max_norm, add(norm, 1e-6));
  backend(factor).unary(context(factor), {factor, factor, {UnaryOp::Clamp, -INFINITY, 1}});
  return factor;
}

Tensor clip_grad_norm_(const std::vector<Tensor>& params, double max_norm, const ClipOptions& options) {
  check(max_norm >= 0, "[clip_grad_norm_] expected max_norm of at least 0, got {}", max_norm);
  NoGrad guard;
  const auto batches = grads_of("clip_grad_norm_", params);
  const Tensor total = total_norm("clip_grad_norm_", batches, options), factor = clip_factor(total, max_norm);
  for (const GradBatch& b : batches) {
    const Tensor here = factor.to(b.model.device());
    backend(b.model).foreach (context(b.model), {.xs = b.views, .factor = here, .params = {ForeachOp::Scale}});
  }
  written(params);
  return total;
}

void clip_grad_value_(const std::vector<Tensor>& params, double clip_value) {
  check(clip_value >= 0, "[clip_grad_value_] expected clip_value of at least 0, got {}", clip_value);
  NoGrad guard;
  for (const GradBatch& b : grads_of("clip_grad_value_", params)) {
    const Tensor limit = full({}, clip_value, {.dtype = kFloat64, .device = b.model.device()});
    backend(b.model).foreach (context(b.model), {.xs = b.views, .factor = limit, .params = {ForeachOp::ClampValue}});
  }
  written(params);
}

}  // namespace tapir::inline v0::optim
