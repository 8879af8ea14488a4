#include "clip.h"

#include <cmath>

#include "../autograd/grad_batches.h"
#include "../core/modes.h"
#include "../ops/arithmetic.h"
#include "../ops/create.h"

namespace tapir::inline v0::optim {

Tensor clip_grad_norm_(const std::vector<Tensor>& params, double max_norm, const ClipOptions& o) {
  check(max_norm >= 0, "[clip_grad_norm_] expected max_norm of at least 0, got {}", max_norm);
  check(o.norm_type > 0, "[clip_grad_norm_] expected norm_type above 0, got {}", o.norm_type);
  NoGrad guard;
  const auto batches = grads_of("clip_grad_norm_", params);
  if (batches.empty()) return zeros({});
  const Device device = batches[0].model.device();
  const DType dtype = compute_type(batches[0].model.dtype());
  Tensor norms = empty(int64_t(batches.size()), {.dtype = dtype, .device = device});
  for (size_t i = 0; i < batches.size(); ++i) {
    Tensor part = empty({}, {.dtype = compute_type(batches[i].model.dtype()), .device = batches[i].model.device()});
    backend(part).foreach (context(part),
                           {.out = part, .xs = batches[i].views, .params = {ForeachOp::NormP, o.norm_type}});
    norms[int64_t(i)] = part;
  }
  Tensor total = empty({}, {.dtype = dtype, .device = device});
  backend(total).foreach (context(total), {.out = total, .xs = {norms}, .params = {ForeachOp::NormP, o.norm_type}});
  if (o.error_if_nonfinite) {
    const double value = total.item();
    check(std::isfinite(value),
          "[clip_grad_norm_] the total norm of order {} for gradients is non-finite ({}), so it cannot be clipped",
          o.norm_type, value);
  }
  Tensor factor = div(max_norm, add(total, 1e-6));
  backend(factor).unary(context(factor), {factor, factor, {UnaryOp::Clamp, -INFINITY, 1}});
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
