// Gamma variates: the sampler, and its gradient with respect to the concentration.
#include <cmath>
#include <vector>

#include "../autograd/record.h"
#include "../ops/arithmetic.h"
#include "../ops/bitwise.h"
#include "../ops/cast.h"
#include "../ops/compare.h"
#include "../ops/create.h"
#include "../ops/random.h"
#include "../ops/ternary.h"
#include "../ops/unary.h"
#include "distributions.h"

namespace tapir::inline v0::distributions {

/// Marsaglia and Tsang: d v with v = (1 + c n)^3 for a normal n, accepted with a probability of at least 0.95. Twelve draws for every
/// element instead of a loop whose length the host would have to read: one in 10^15 finds none, and gets the mode. Below 1,
/// the variate of a + 1 times u^(1 / a).
static Tensor draw(const Tensor& a) {
  const Tensor small = a < 1, d = where(small, a + 1, a) - 1.0 / 3, c = rsqrt(d * 9);
  Tensor y = log(d), open = ones_like(a, {.dtype = kBool});
  for (int round = 0; round < 12; ++round) {
    const Tensor n = randn_like(a), u = rand_like(a), log_v = log(clamp_min(c * n + 1, 0)) * 3;
    const Tensor accepted = log(u) < square(n) / 2 + d * (log_v - exp(log_v) + 1);
    y = where(open & accepted, log(d) + log_v, y);
    open = open & ~accepted;
  }
  return where(small, y + log(rand_like(a)) / a, y);
}

/// By recurrence to where the asymptotic series is exact.
static double digamma_of(double a) {
  double shift = 0;
  for (; a < 12; ++a) shift -= 1 / a;
  const double r = 1 / (a * a);
  return shift + std::log(a) - 0.5 / a - r * (1. / 12 - r * (1. / 120 - r * (1. / 252 - r * (1. / 240 - r / 132))));
}

double detail::log_gamma_slope(double a, double y) {
  const double x = std::exp(y), psi = digamma_of(a);
  if (a < 30) {  // F / p = x sum over n of x^n / (a (a + 1) ... (a + n)), differentiated term by term
    double term = 1 / a, digamma_n = psi + 1 / a, sum = 0;
    for (int n = 1; n < 10000; ++n) {
      const double step = term * (y - digamma_n);
      sum -= step;
      if (double(n) > x - a && std::abs(step) <= 1e-17 * std::abs(sum)) break;
      term *= x / (a + n), digamma_n += 1 / (a + n);
    }
    return sum;
  }
  // dF/da = integral to x of p(t) (ln t - psi), or less that from x on: Simpson's rule over the side where nothing cancels.
  const bool lower = x < a;
  const double end = lower ? std::fmax(x - 12 * std::sqrt(a), x * 1e-9) : x + 12 * std::sqrt(x) + 40;
  const int steps = 1024;
  double sum = 0;
  for (int i = 0; i <= steps; ++i) {
    const double t = x + (end - x) * i / steps;
    const double f = std::exp((a - 1) * std::log(t / x) - (t - x)) * (std::log(t) - psi);
    sum += (i == 0 || i == steps ? 1 : i % 2 ? 4 : 2) * f;
  }
  return (lower ? -1 : 1) * sum * std::abs(end - x) / (3 * steps * x);
}

static Tensor slopes(const Tensor& a, const Tensor& y) {
  std::vector<double> av = a.to_vector<double>();
  const std::vector<double> yv = y.to_vector<double>();
  for (size_t i = 0; i < av.size(); ++i)
    av[i] = std::isfinite(av[i] + yv[i]) ? detail::log_gamma_slope(av[i], yv[i]) : NAN;
  const Tensor out = to(to(tensor(av), a.device()).reshape(a.shape()), a.dtype());
  return record("log_standard_gamma_backward", out, {a, y}, [](const Tensor&) -> Grads {
    fail(ErrorKind::Value, "[log_standard_gamma] the gradient with respect to the concentration has no derivative");
  });
}

Tensor log_standard_gamma(const Tensor& a) {
  check(a.defined() && is_floating(a.dtype()), "[log_standard_gamma] expected a floating-point dtype, got {}", a);
  Tensor y;
  {
    NoGrad guard;
    y = to(draw(to(a.detach(), kFloat64)), a.dtype());
  }
  return record("log_standard_gamma", y, {a}, save(a, y),
                [](const Tensor& g, const Tensor& a, const Tensor& y) { return Grads{g * slopes(a, y)}; });
}

}  // namespace tapir::inline v0::distributions
