#pragma once
// Note [Kernel or composite form]
// A fused operation owns a composite form, made of simpler operations that the tape records one by one. The kernel runs where the device
// has it and it suits the call. Its gradient is a kernel too; where that gradient is recorded in turn (create_graph) the composite form
// runs instead, because results of kernels have no history. With TAPIR_CHECK=1 in the environment both forms run on the user's own data
// (but for the gradient of interpolate), and a difference beyond rounding is an InternalError. It is no bug where operands above about 100
// cancel. Places where the composite form gives a NaN are not compared: a kernel may skip operands of weight 0.
#include <atomic>

#include "../autograd/node.h"
#include "../core/modes.h"
#include "../core/tensor.h"

namespace tapir::inline v0 {

/// TAPIR_CHECK=1 was set when the program started.
extern const bool fused_checks;
extern std::atomic<int64_t> fused_comparisons;  // so far
/// InternalError with the largest difference, where two results of one operation differ by more than rounding of their own numbers, or
/// of those in `terms`, where they are small differences of such.
void compare_results(const char* op, const Tensor& fused, const Tensor& composite, const Tensor& terms = {});
template <class Composite>
void compare_fused(const char* op, const Tensor& fused, const Composite& composite, const Tensor& terms = {}) {
  if (!fused_checks) [[likely]]
    return;
  NoGrad guard;
  compare_results(op, fused, composite(), terms);
}
/// What kernel() gives where it `suits`, else composite().
template <class Kernel, class Composite>
auto kernel_or_composite(const char* op, bool suits, const Kernel& kernel, const Composite& composite) {
  if (!suits) return composite();
  auto y = kernel();
  compare_fused(op, y, composite);
  return y;
}
/// Gradients of g, by kernel() or, where they are recorded in turn, by composite(). Those that both have are compared: they are sums of
/// products of g.
template <class Kernel, class Composite>
Grads gradient_by_kernel(const char* op, const Tensor& g, const Kernel& kernel, const Composite& composite) {
  if (modes.grad) return composite();
  Grads out = kernel();
  if (fused_checks) [[unlikely]] {
    const Grads expected = composite();
    for (int64_t i = 0; i < out.size(); ++i)
      if (out[i].defined() && expected[i].defined()) compare_results(op, out[i], expected[i], g);
  }
  return out;
}

}  // namespace tapir::inline v0
