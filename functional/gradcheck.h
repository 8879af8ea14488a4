#pragma once
#include <concepts>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "../core/tensor.h"

namespace tapir::inline v0 {

struct GradcheckOptions {
  double eps = 1e-6;   // step of the central differences
  double atol = 1e-5;  // |numeric - analytic| <= atol + rtol |numeric|
  double rtol = 1e-3;
  bool full = false;  // every element of the Jacobian; otherwise one random direction for each input
  uint64_t seed = 0;  // of the directions
};

namespace detail {
/// A function of tensors, erased so that the checks are compiled once.
struct TensorFunction {
  virtual std::vector<Tensor> call(const std::vector<Tensor>& x) const = 0;

 protected:
  ~TensorFunction() = default;
};
bool gradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs, const GradcheckOptions& options);
bool gradgradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs, const GradcheckOptions& options);

template <class F> struct Adapter final : TensorFunction {
  const F& f;
  explicit Adapter(const F& f) : f(f) {}
  std::vector<Tensor> call(const std::vector<Tensor>& x) const override {
    if constexpr (std::invocable<const F&, const std::vector<Tensor>&>) return list(f(x));
    else if constexpr (std::invocable<const F&, const Tensor&>) return list(f(x.at(0)));
    else if constexpr (std::invocable<const F&, const Tensor&, const Tensor&>) return list(f(x.at(0), x.at(1)));
    else if constexpr (std::invocable<const F&, const Tensor&, const Tensor&, const Tensor&>)
      return list(f(x.at(0), x.at(1), x.at(2)));
    else return list(f(x.at(0), x.at(1), x.at(2), x.at(3)));
  }
  static std::vector<Tensor> list(Tensor y) { return {std::move(y)}; }
  static std::vector<Tensor> list(std::vector<Tensor> y) { return y; }
};
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
