#pragma once
#include <cstdint>
#include <vector>

#include "../core/tensor.h"
#include "tensor_function.h"

namespace tapir::inline v0 {

struct GradcheckOptions {
  double eps = 1e-6;   // step of the central differences
  double atol = 1e-5;  // |numeric - analytic| <= atol + rtol |numeric|
  double rtol = 1e-3;
  bool full = false;  // every element of the Jacobian; otherwise one random direction for each input
  uint64_t seed = 0;  // of the directions
};

namespace detail {
bool gradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs, const GradcheckOptions& options);
bool gradgradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs, const GradcheckOptions& options);
}  // namespace detail

/// Compares the gradients of f with finite differences at `inputs` (float64; those that require a gradient are
/// checked). f takes up to four tensors, or a vector of them, and gives a tensor or a vector. True, or ValueError that
/// names the input, its flat index, and both values.
template <class F> bool gradcheck(const F& f, const std::vector<Tensor>& inputs, const GradcheckOptions& options = {}) {
  return detail::gradcheck(detail::Adapter<F>(f), inputs, options);
}
/// The same for the gradients of f's gradients, with respect to the inputs and to the incoming gradient.
template <class F>
bool gradgradcheck(const F& f, const std::vector<Tensor>& inputs, const GradcheckOptions& options = {}) {
  return detail::gradgradcheck(detail::Adapter<F>(f), inputs, options);
}

}  // namespace tapir::inline v0
