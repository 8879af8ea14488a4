#pragma once
#include <concepts>
#include <type_traits>
#include <utility>
#include <vector>

#include "../core/tensor.h"

namespace tapir::inline v0::detail {

/// A function of tensors, erased so that what takes functions is compiled once.
struct TensorFunction {
  virtual std::vector<Tensor> call(const std::vector<Tensor>& x) const = 0;

 protected:
  ~TensorFunction() = default;
};

/// A callable of up to four tensors, or of a vector of them, that gives a tensor, a pair or a vector.
template <class F> struct Adapter final : TensorFunction {
  const F& f;
  explicit Adapter(const F& f) : f(f) {}
  std::vector<Tensor> call(const std::vector<Tensor>& x) const override {
    if constexpr (std::invocable<const F&, const std::vector<Tensor>&>) return list(f(x));
    else if constexpr (std::invocable<const F&, const Tensor&>) return count(x, 1), list(f(x[0]));
    else if constexpr (std::invocable<const F&, const Tensor&, const Tensor&>) return count(x, 2), list(f(x[0], x[1]));
    else if constexpr (std::invocable<const F&, const Tensor&, const Tensor&, const Tensor&>)
      return count(x, 3), list(f(x[0], x[1], x[2]));
    else return count(x, 4), list(f(x[0], x[1], x[2], x[3]));
  }
  static void count(const std::vector<Tensor>& x, int64_t n) {
    check(int64_t(x.size()) == n, "[function of tensors] expected as many inputs as it takes, {}, got {}", n,
          int64_t(x.size()));
  }
  static std::vector<Tensor> list(Tensor y) { return {std::move(y)}; }
  static std::vector<Tensor> list(std::vector<Tensor> y) { return y; }
  static std::vector<Tensor> list(std::pair<Tensor, Tensor> y) { return {std::move(y.first), std::move(y.second)}; }
};

}  // namespace tapir::inline v0::detail
