#pragma once
#include "../core/each.h"
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

// What every distribution has; those whose samples have a gradient add rsample().
#define TAPIR_DISTRIBUTION                             \
  Tensor sample(const Shape& sample_shape = {}) const; \
  Tensor log_prob(const Tensor& value) const;          \
  Tensor entropy() const;                              \
  Tensor mean() const;                                 \
  Tensor variance() const;
// What those have whose parameter may be logits instead of probabilities.
#define TAPIR_OF_LOGITS(Name)                    \
  explicit Name(const Tensor& probs);            \
  static Name from_logits(const Tensor& logits); \
                                                 \
 private:                                        \
  Name() = default;

struct Normal {
  Tensor loc, scale;
  Normal(const Tensor& loc, const Tensor& scale);
  TAPIR_DISTRIBUTION
  Tensor rsample(const Shape& sample_shape = {}) const;
};

/// Uniform in [low, high).
struct Uniform {
  Tensor low, high;
  Uniform(const Tensor& low, const Tensor& high);
  TAPIR_DISTRIBUTION
  Tensor rsample(const Shape& sample_shape = {}) const;
};

/// 1 with probability probs, else 0.
struct Bernoulli {
  Tensor probs, logits;  // ln(p / (1 - p))
  TAPIR_DISTRIBUTION
  TAPIR_OF_LOGITS(Bernoulli)
};

/// 0 to K - 1 with the probabilities of the last dimension, which are made to sum to 1. Mean and variance are NaN: classes are no numbers.
struct Categorical {
  Tensor probs, logits;  // ln p
  TAPIR_DISTRIBUTION
  TAPIR_OF_LOGITS(Categorical)
};

/// On (0, 1), with density x^(a - 1) (1 - x)^(b - 1) / B(a, b).
struct Beta {
  Tensor concentration1, concentration0;  // a, b
  Beta(const Tensor& concentration1, const Tensor& concentration0);
  TAPIR_DISTRIBUTION
  Tensor rsample(const Shape& sample_shape = {}) const;
};

/// On the simplex of the last dimension, with density prod x_i^(a_i - 1) / B(a).
struct Dirichlet {
  Tensor concentration;  // (..., K)
  explicit Dirichlet(const Tensor& concentration);
  TAPIR_DISTRIBUTION
  Tensor rsample(const Shape& sample_shape = {}) const;
};
#undef TAPIR_DISTRIBUTION
#undef TAPIR_OF_LOGITS

/// The Kullback-Leibler divergence: the mean under p of ln p - ln q.
#define TAPIR_KL_DIVERGENCE(D) Tensor kl_divergence(const D& p, const D& q);
TAPIR_EACH(TAPIR_KL_DIVERGENCE, Normal, Uniform, Bernoulli, Categorical, Beta, Dirichlet)
#undef TAPIR_KL_DIVERGENCE

}  // namespace tapir::inline v0::distributions
