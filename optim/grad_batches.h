#pragma once
// The gradients of many parameters for one call of a kernel (clip.cpp, optimizer.cpp, amp/grad_scaler.cpp).
#include <vector>

#include "../autograd/record.h"
#include "../core/backend.h"

namespace tapir::inline v0::optim {

/// The gradients there are, by device and dtype in the order of their first parameter.
struct GradBatch {
  Tensor model;
  std::vector<TensorView> views;
};
inline std::vector<GradBatch> grads_of(const char* op, const std::vector<Tensor>& params) {
  std::vector<GradBatch> out;
  for (const Tensor& p : params) {
    const Tensor& g = p.grad();
    if (!g.defined()) continue;
    check_writable(op, g);
    size_t at = 0;
    while (at < out.size() && !(out[at].model.device() == g.device() && out[at].model.dtype() == g.dtype())) ++at;
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

}  // namespace tapir::inline v0::optim
