#pragma once
#include <utility>
#include <vector>

#include "../core/tensor.h"
#include "tensor_function.h"

namespace tapir::inline v0 {

struct TransformOptions {
  bool create_graph = false;  // the result can be differentiated again
};

namespace detail {
using Results = std::pair<std::vector<Tensor>, std::vector<Tensor>>;
Results vjp(const TensorFunction& f, const std::vector<Tensor>& x, const std::vector<Tensor>& v, bool create_graph);
Results jvp(const TensorFunction& f, const std::vector<Tensor>& x, const std::vector<Tensor>& v, bool create_graph);
Results vhp(const TensorFunction& f, const std::vector<Tensor>& x, const std::vector<Tensor>& v, bool create_graph);
Results hvp(const TensorFunction& f, const std::vector<Tensor>& x, const std::vector<Tensor>& v, bool create_graph);
std::vector<Tensor> jacobian(const TensorFunction& f, const std::vector<Tensor>& x, bool create_graph);
std::vector<Tensor> hessian(const TensorFunction& f, const std::vector<Tensor>& x, bool create_graph);
}  // namespace detail

// f takes a tensor and gives a tensor, or takes up to four tensors (or a vector of them) and is called with a list. Inputs
// need not require gradients: the derivative is taken at copies of them.

#define TAPIR_JACOBIAN_PRODUCT(name, default_v)                                                                          \
  template <class F> std::pair<Tensor, Tensor> name(const F& f, const Tensor& x, const Tensor& v default_v,              \
                                                    const TransformOptions& options = {}) {                              \
    auto [y, g] = detail::name(detail::Adapter<F>(f), {x}, {v}, options.create_graph);                                   \
    return {y.at(0), g.at(0)};                                                                                           \
  }                                                                                                                      \
  /** The same for several inputs and outputs: (outputs, one gradient for each input, or derivative for each output). */ \
  template <class F> std::pair<std::vector<Tensor>, std::vector<Tensor>> name(                                           \
      const F& f, const std::vector<Tensor>& x, const std::vector<Tensor>& v, const TransformOptions& options = {}) {    \
    return detail::name(detail::Adapter<F>(f), x, v, options.create_graph);                                              \
  }
/// f(x), and v' J: the gradient of <v, f(x)>. v: like f(x); ones where undefined, for one element.
TAPIR_JACOBIAN_PRODUCT(vjp, = {})
/// f(x), and J v: the derivative along v, by differentiating v' J twice. v: like x.
TAPIR_JACOBIAN_PRODUCT(jvp, )
#undef TAPIR_JACOBIAN_PRODUCT

/// Every derivative of f's output with respect to x: (*y.shape, *x.shape).
template <class F> Tensor jacobian(const F& f, const Tensor& x, const TransformOptions& options = {}) {
  return detail::jacobian(detail::Adapter<F>(f), {x}, options.create_graph).at(0);
}
/// The same for each of several inputs; f gives one tensor.
template <class F>
std::vector<Tensor> jacobian(const F& f, const std::vector<Tensor>& x, const TransformOptions& options = {}) {
  return detail::jacobian(detail::Adapter<F>(f), x, options.create_graph);
}

/// The second derivatives of f, which gives one element: (*x.shape, *x.shape).
template <class F> Tensor hessian(const F& f, const Tensor& x, const TransformOptions& options = {}) {
  return detail::hessian(detail::Adapter<F>(f), {x}, options.create_graph).at(0);
}
/// The same for several inputs, row by row: element i n + j is the block of inputs i and j.
template <class F>
std::vector<Tensor> hessian(const F& f, const std::vector<Tensor>& x, const TransformOptions& options = {}) {
  return detail::hessian(detail::Adapter<F>(f), x, options.create_graph);
}

#define TAPIR_HESSIAN_PRODUCT(name)                                                                                   \
  template <class F> std::pair<Tensor, Tensor> name(const F& f, const Tensor& x, const Tensor& v = {},                \
                                                    const TransformOptions& options = {}) {                           \
    auto [y, g] = detail::name(detail::Adapter<F>(f), {x}, {v}, options.create_graph);                                \
    return {y.at(0), g.at(0)};                                                                                        \
  }                                                                                                                   \
  /** The same for several inputs: (f(x), one product for each input). */                                             \
  template <class F> std::pair<Tensor, std::vector<Tensor>> name(                                                     \
      const F& f, const std::vector<Tensor>& x, const std::vector<Tensor>& v, const TransformOptions& options = {}) { \
    auto [y, g] = detail::name(detail::Adapter<F>(f), x, v, options.create_graph);                                    \
    return {y.at(0), std::move(g)};                                                                                   \
  }
/// f(x), one element, and v' H of its Hessian, like x, which is never made. v: like x; 1 where undefined, for one element.
TAPIR_HESSIAN_PRODUCT(vhp)
/// f(x) and H v, by differentiating v' H once more: equal to vhp's where second derivatives are continuous, and slower.
TAPIR_HESSIAN_PRODUCT(hvp)
#undef TAPIR_HESSIAN_PRODUCT

}  // namespace tapir::inline v0
