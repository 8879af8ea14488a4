#pragma once
// The gradients of many parameters for one call of a kernel.
#include <vector>

#include "../core/backend.h"
#include "../core/modes.h"
#include "record.h"

namespace tapir::inline v0 {

/// The gradients there are, by device and type of computing in the order of their first parameter.
struct GradBatch {
  Tensor model;
  std::vector<TensorView> views;
};
inline std::vector<GradBatch> grads_of(const char* op, const std::vector<Tensor>& params) {
  std::vector<GradBatch> out;
  for (const Tensor& p : params) {
    check(p.defined(), "[{}] expected tensors, got an undefined one at position {}", op, int64_t(&p - params.data()));
    const Tensor& g = p.grad();
    if (!g.defined()) continue;
    check_writable(op, g);
    size_t at = 0;
    const auto joins = [&](const Tensor& model) {
      return model.device() == g.device() && compute_type(model.dtype()) == compute_type(g.dtype());
    };
    while (at < out.size() && !joins(out[at].model)) ++at;
    if (at == out.size()) out.push_back({g, {}});
    out[at].views.emplace_back(g);
  }
  return out;
}
/// Raises their versions.
inline void written(const std::vector<Tensor>& params) {
  for (const Tensor& p : params)
    if (p.grad().defined()) bump_version(p.grad());
}
/// Drops the gradients, or fills them with zeros in their places; then they have no history.
inline void zero_grads(const std::vector<Tensor>& params, bool set_to_none) {
  NoGrad guard;
  for (const Tensor& p : params) {
    if (set_to_none) p.set_grad({});
    else if (p.grad().defined() && p.grad().requires_grad()) p.set_grad(p.grad().detach());
  }
  if (set_to_none) return;
  for (const GradBatch& b : grads_of("zero_grad", params))
    backend(b.model).foreach (context(b.model), {.xs = b.views, .params = {ForeachOp::Zero}});
  written(params);
}

}  // namespace tapir::inline v0
