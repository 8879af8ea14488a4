#pragma once
#include "../core/tensor.h"

namespace tapir::inline v0 {

// Numbers of the default generator (core/generator.h): the same for a seed on every device and thread count.

/// Uniform in [0, 1).
Tensor rand(const Shape& shape, const TensorOptions& options = {});
/// Normal with mean 0 and standard deviation 1.
Tensor randn(const Shape& shape, const TensorOptions& options = {});
/// Integers in [low, high); int64 unless a dtype is given, which must hold them.
Tensor randint(int64_t low, int64_t high, const Shape& shape, const TensorOptions& options = {});
inline Tensor randint(int64_t high, const Shape& shape, const TensorOptions& options = {}) {
  return randint(0, high, shape, options);
}
/// 0 to n - 1 in random order; int64 unless a dtype is given.
Tensor randperm(int64_t n, const TensorOptions& options = {});
Tensor rand_like(const Tensor& x, const LikeOptions& options = {});
Tensor randn_like(const Tensor& x, const LikeOptions& options = {});
Tensor randint_like(const Tensor& x, int64_t low, int64_t high, const LikeOptions& options = {});
/// 1 with probability p, else 0, in p's dtype and shape. ValueError for what is no probability.
Tensor bernoulli(const Tensor& p);
/// The same with one probability for every element, in x's dtype and shape.
Tensor bernoulli(const Tensor& x, double p);
/// Normal with that mean and standard deviation.
Tensor normal(double mean, double std, const Shape& shape, const TensorOptions& options = {});

/// Uniform in [from, to).
Tensor& uniform_(Tensor& self, double from = 0, double to = 1);
Tensor& normal_(Tensor& self, double mean = 0, double std = 1);
Tensor& bernoulli_(Tensor& self, double p = 0.5);
Tensor& bernoulli_(Tensor& self, const Tensor& p);
/// Integers in [from, to).
Tensor& random_(Tensor& self, int64_t from, int64_t to);

}  // namespace tapir::inline v0
