#pragma once
#include "../core/tensor.h"

// Probability distributions. Their parameters broadcast to the batch shape; a sample has sample_shape + batch shape (+ the event's own
// dimension). sample() is not recorded; rsample() is a differentiable function of the parameters; log_prob is that of each event, and outside
// the support -inf or NaN. ValueError for parameters outside their range, which is checked on the CPU alone.
namespace tapir::inline v0::distributions {

/// ln of a standard gamma variate for each concentration: exact where the variate itself would be 0. Marsaglia and Tsang 2000; the
/// gradient is implicit, Figurnov et al. 2018, arXiv 1805.08498, computed on the host, and has no derivative of its own.
Tensor log_standard_gamma(const Tensor& concentration);

namespace detail {
/// d ln(x) / d a at a fixed probability F(x; a), that is -(dF/da) / (x p(x)), for y = ln x.
double log_gamma_slope(double a, double y);
}  // namespace detail

struct Normal {
  Tensor loc, scale;
  Normal(const Tensor& loc, const Tensor& scale);
  Tensor sample(const Shape& sample_shape = {}) const;
  Tensor rsample(const Shape& sample_shape = {}) const;
  Tensor log_prob(const Tensor& value) const;
  Tensor entropy() const;
  Tensor mean() const { return loc; }
  Tensor variance() const;
};

/// Uniform in [low, high).
struct Uniform {
  Tensor low, high;
  Uniform(const Tensor& low, const Tensor& high);
  Tensor sample(const Shape& sample_shape = {}) const;
  Tensor rsample(const Shape& sample_shape = {}) const;
  Tensor log_prob(const Tensor& value) const;
  Tensor entropy() const;
  Tensor mean() const;
  Tensor variance() const;
};

/// 1 with probability probs, else 0.
struct Bernoulli {
  Tensor probs, logits;  // ln(p / (1 - p))
  explicit Bernoulli(const Tensor& probs);
  static Bernoulli from_logits(const Tensor& logits);
  Tensor sample(const Shape& sample_shape = {}) const;
  Tensor log_prob(const Tensor& value) const;
  Tensor entropy() const;
  Tensor mean() const { return probs; }
  Tensor variance() const;

 private:
  Bernoulli() = default;
};

/// 0 to K - 1 with the probabilities of the last dimension, which are made to sum to 1.
struct Categorical {
  Tensor probs, logits;  // ln p
  explicit Categorical(const Tensor& probs);
  static Categorical from_logits(const Tensor& logits);
  Tensor sample(const Shape& sample_shape = {}) const;
  Tensor log_prob(const Tensor& value) const;
  Tensor entropy() const;
  Tensor mean() const;  // NaN, as is the variance: classes are no numbers
  Tensor variance() const { return mean(); }

 private:
  Categorical() = default;
};

/// On (0, 1), with density x^(a - 1) (1 - x)^(b - 1) / B(a, b).
struct Beta {
  Tensor concentration1, concentration0;  // a, b
  Beta(const Tensor& concentration1, const Tensor& concentration0);
  Tensor sample(const Shape& sample_shape = {}) const;
  Tensor rsample(const Shape& sample_shape = {}) const;
  Tensor log_prob(const Tensor& value) const;
  Tensor entropy() const;
  Tensor mean() const;
  Tensor variance() const;
};

/// On the simplex of the last dimension, with density prod x_i^(a_i - 1) / B(a).
struct Dirichlet {
  Tensor concentration;  // (..., K)
  explicit Dirichlet(const Tensor& concentration);
  Tensor sample(const Shape& sample_shape = {}) const;
  Tensor rsample(const Shape& sample_shape = {}) const;
  Tensor log_prob(const Tensor& value) const;
  Tensor entropy() const;
  Tensor mean() const;
  Tensor variance() const;
};

/// The Kullback-Leibler divergence: the mean under p of ln p - ln q.
Tensor kl_divergence(const Normal& p, const Normal& q);
Tensor kl_divergence(const Uniform& p, const Uniform& q);
Tensor kl_divergence(const Bernoulli& p, const Bernoulli& q);
Tensor kl_divergence(const Categorical& p, const Categorical& q);
Tensor kl_divergence(const Beta& p, const Beta& q);
Tensor kl_divergence(const Dirichlet& p, const Dirichlet& q);

}  // namespace tapir::inline v0::distributions
