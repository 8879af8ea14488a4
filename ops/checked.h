#pragma once
// Note [Checked fusion]
// A fused operation owns a composite form, made of simpler operations. With TAPIR_CHECK=1 in the environment the composite runs beside
// the fused kernel on the user's own data, and a difference beyond rounding is an InternalError.
#include "../autograd/node.h"
#include "../core/modes.h"
#include "../core/tensor.h"

namespace tapir::inline v0 {

/// TAPIR_CHECK=1 was set when the program started.
extern const bool fused_checks;
/// InternalError with the largest difference, where two results of one operation differ by more than rounding of their own numbers, or
/// of those in `terms`, where they are small differences of such.
void compare_results(const char* op, const Tensor& fused, const Tensor& composite, const Tensor& terms = {});
/// compare_fused("softmax", y, [&] { return softmax_composite(x, dim); });
template <class F> void compare_fused(const char* op, const Tensor& fused, F&& composite) {
  if (!fused_checks) [[likely]]
    return;
  NoGrad guard;
  compare_results(op, fused, composite());
}

/// The same for gradients, of those that both have. They are sums of products of g.
template <class F> void compare_fused(const char* op, const Grads& fused, const Tensor& g, F&& composite) {
  if (!fused_checks) [[likely]]
    return;
  const Grads expected = composite();
  for (int64_t i = 0; i < fused.size(); ++i)
    if (fused[i].defined() && expected[i].defined()) compare_results(op, fused[i], expected[i], g);
}

}  // namespace tapir::inline v0
