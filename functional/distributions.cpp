#include "distributions.h"

#include <cmath>
#include <limits>
#include <tuple>

#include "../core/fail_as.h"
#include "../core/modes.h"
#include "../ops/activation.h"
#include "../ops/arithmetic.h"
#include "../ops/bitwise.h"
#include "../ops/cast.h"
#include "../ops/compare.h"
#include "../ops/create.h"
#include "../ops/extremum.h"
#include "../ops/gather.h"
#include "../ops/loss.h"
#include "../ops/noise.h"
#include "../ops/random.h"
#include "../ops/rearrange.h"
#include "../ops/reduce.h"
#include "../ops/shape.h"
#include "../ops/slicing.h"
#include "../ops/softmax.h"
#include "../ops/special.h"
#include "../ops/ternary.h"
#include "../ops/unary.h"

namespace tapir::inline v0::distributions {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kHalfLog2Pi = 0.5 * std::log(2 * std::acos(-1.0));

/// ValueError where a test of the parameters fails; on the CPU alone, where asking waits for nothing, and not while compile() records.
void require(const char* name, const char* what, const Tensor& parameter, const Tensor& holds) {
  if (holds.device() != kCPU || holds.numel() == 0 || modes.recorder) return;
  NoGrad guard;
  check(holds.all().item<bool>(), "[{}] expected {}, got a tensor {} with other values", name, what, parameter);
}
void require_float(const char* name, const Tensor& x) {
  check(x.defined() && is_floating(x.dtype()), "[{}] expected parameters of a floating-point dtype, got {}", name, x);
}
std::pair<Tensor, Tensor> broadcast(const char* name, const Tensor& a, const Tensor& b) {
  require_float(name, a), require_float(name, b);
  const auto both = broadcast_tensors({a, b});
  return {both[0], both[1]};
}
Shape joined(const Shape& a, const Shape& b) {
  Shape s = a;
  for (int64_t n : b) s.push_back(n);
  return s;
}
Tensor expanded(const Tensor& x, const Shape& sample_shape) { return expand(x, joined(sample_shape, x.shape())); }
double machine_epsilon(DType t) {
  return t == kFloat64 ? 0x1p-52 : t == kFloat32 ? 0x1p-23 : t == kFloat16 ? 0x1p-10 : 0x1p-7;
}
Tensor probability_logs(const Tensor& p) {  // finite also at 0 and 1, as in PyTorch
  const double eps = machine_epsilon(p.dtype());
  return clamp(p, eps, 1 - eps);
}
/// The value in the distribution's dtype.
Tensor like(const Tensor& value, const Tensor& parameter) { return to(value, parameter.dtype()); }
/// x where the condition holds, else 0, also where x is not finite.
Tensor masked(const Tensor& condition, const Tensor& x) { return where(condition, x, 0); }

}  // namespace

Normal::Normal(const Tensor& m, const Tensor& s) {
  std::tie(loc, scale) = broadcast("Normal", m, s);
  require("Normal", "scale above 0", scale, scale > 0);
}
Tensor Normal::rsample(const Shape& shape) const {
  const Tensor s = expanded(scale, shape);
  return loc + s * randn(s.shape(), {.dtype = s.dtype(), .device = s.device()});
}
Tensor Normal::sample(const Shape& shape) const try {
  NoGrad guard;
  return rsample(shape);
} catch (...) {
  fail_as("Normal");
}
Tensor Normal::log_prob(const Tensor& value) const {
  return square((like(value, loc) - loc) / scale) / -2 - log(scale) - kHalfLog2Pi;
}
Tensor Normal::entropy() const { return log(scale) + (0.5 + kHalfLog2Pi); }
Tensor Normal::mean() const { return loc; }
Tensor Normal::variance() const { return square(scale); }

Uniform::Uniform(const Tensor& a, const Tensor& b) {
  std::tie(low, high) = broadcast("Uniform", a, b);
  require("Uniform", "low below high", low, low < high);
}
Tensor Uniform::rsample(const Shape& shape) const {
  const Tensor width = expanded(high - low, shape);
  return low + width * rand(width.shape(), {.dtype = width.dtype(), .device = width.device()});
}
Tensor Uniform::sample(const Shape& shape) const try {
  NoGrad guard;
  return rsample(shape);
} catch (...) {
  fail_as("Uniform");
}
Tensor Uniform::log_prob(const Tensor& value) const {
  return where((value >= low) & (value < high), -log(high - low), -kInf);
}
Tensor Uniform::entropy() const { return log(high - low); }
Tensor Uniform::mean() const { return (high + low) / 2; }
Tensor Uniform::variance() const { return square(high - low) / 12; }

Bernoulli::Bernoulli(const Tensor& p) : probs(p) {
  require_float("Bernoulli", p);
  require("Bernoulli", "probs in [0, 1]", p, (p >= 0) & (p <= 1));
  const Tensor inside = probability_logs(p);
  logits = log(inside) - log1p(-inside);
}
Bernoulli Bernoulli::from_logits(const Tensor& logits) {
  require_float("Bernoulli", logits);
  require("Bernoulli", "logits that are numbers", logits, eq(logits, logits));
  Bernoulli d;
  d.logits = logits, d.probs = sigmoid(logits);
  return d;
}
Tensor Bernoulli::sample(const Shape& shape) const try {
  NoGrad guard;
  return bernoulli(expanded(probs, shape));
} catch (...) {
  fail_as("Bernoulli");
}
Tensor Bernoulli::log_prob(const Tensor& value) const {
  const auto both = broadcast_tensors({logits, like(value, logits)});
  return -binary_cross_entropy_with_logits(both[0], both[1], {.reduction = Reduction::None});
}
Tensor Bernoulli::entropy() const {
  return binary_cross_entropy_with_logits(logits, probs, {.reduction = Reduction::None});
}
Tensor Bernoulli::mean() const { return probs; }
Tensor Bernoulli::variance() const { return probs * (1 - probs); }

Categorical::Categorical(const Tensor& p) {
  require_float("Categorical", p);
  check(p.dim() >= 1, "[Categorical] expected probs of at least one dimension, got {}", p);
  const Tensor total = sum(p, -1, {.keepdim = true});
  require("Categorical", "probs of at least 0 with a positive sum", p, (p >= 0) & (total > 0));
  probs = p / total;
  logits = log(probability_logs(probs));
}
Categorical Categorical::from_logits(const Tensor& logits) {
  require_float("Categorical", logits);
  check(logits.dim() >= 1, "[Categorical] expected logits of at least one dimension, got {}", logits);
  require("Categorical", "logits that are numbers", logits, eq(logits, logits));
  Categorical d;
  d.logits = log_softmax(logits, -1), d.probs = softmax(logits, -1);
  return d;
}
Tensor Categorical::sample(const Shape& shape) const try {
  NoGrad guard;
  const int64_t classes = probs.shape()[probs.dim() - 1], n = numel_of(shape);
  Shape batch = probs.shape();
  batch.resize(probs.dim() - 1);
  if (n == 0 || numel_of(batch) == 0) return empty(joined(shape, batch), {.dtype = kInt64, .device = probs.device()});
  return multinomial(probs.reshape({-1, classes}), n, {.replacement = true}).t().reshape(joined(shape, batch));
} catch (...) {
  fail_as("Categorical");
}
Tensor Categorical::log_prob(const Tensor& value) const {
  const Tensor index = unsqueeze(to(value, kInt64), -1);
  Shape batch = index.shape(), table = logits.shape();
  batch.resize(index.dim() - 1), table.resize(logits.dim() - 1);
  const Shape both = broadcast_tensors({empty(batch), empty(table)})[0].shape();
  const Tensor rows = expand(logits, joined(both, logits.shape()[logits.dim() - 1]));
  return squeeze(gather(rows, -1, expand(index, joined(both, 1))), -1);
}
Tensor Categorical::entropy() const { return -sum(masked(probs > 0, probs * logits), -1); }
Tensor Categorical::variance() const { return mean(); }
Tensor Categorical::mean() const {
  Shape batch = probs.shape();
  batch.resize(probs.dim() - 1);
  return full(batch, NAN, {.dtype = probs.dtype(), .device = probs.device()});
}

Beta::Beta(const Tensor& a, const Tensor& b) {
  std::tie(concentration1, concentration0) = broadcast("Beta", a, b);
  require("Beta", "concentrations above 0", concentration1, (concentration1 > 0) & (concentration0 > 0));
}
Tensor Beta::rsample(const Shape& shape) const {
  const Tensor both = stack({concentration1, concentration0}, -1);
  return Dirichlet(both).rsample(shape).select(-1, 0);
}
Tensor Beta::sample(const Shape& shape) const try {
  NoGrad guard;
  return rsample(shape);
} catch (...) {
  fail_as("Beta");
}
static Tensor log_beta(const Tensor& a, const Tensor& b) { return lgamma(a) + lgamma(b) - lgamma(a + b); }
Tensor Beta::log_prob(const Tensor& value) const {
  const Tensor &a = concentration1, &b = concentration0, x = like(value, a);
  return xlogy(a - 1, x) + xlogy(b - 1, 1 - x) - log_beta(a, b);
}
Tensor Beta::entropy() const {
  const Tensor &a = concentration1, &b = concentration0;
  return log_beta(a, b) - (a - 1) * digamma(a) - (b - 1) * digamma(b) + (a + b - 2) * digamma(a + b);
}
Tensor Beta::mean() const { return concentration1 / (concentration1 + concentration0); }
Tensor Beta::variance() const {
  const Tensor total = concentration1 + concentration0;
  return concentration1 * concentration0 / (square(total) * (total + 1));
}

Dirichlet::Dirichlet(const Tensor& c) : concentration(c) {
  require_float("Dirichlet", c);
  check(c.dim() >= 1, "[Dirichlet] expected concentrations of at least one dimension, got {}", c);
  require("Dirichlet", "concentrations above 0", c, c > 0);
}
Tensor Dirichlet::rsample(const Shape& shape) const {
  return softmax(log_standard_gamma(expanded(concentration, shape)), -1);  // gamma variates over their sum
}
Tensor Dirichlet::sample(const Shape& shape) const try {
  NoGrad guard;
  return rsample(shape);
} catch (...) {
  fail_as("Dirichlet");
}
Tensor Dirichlet::log_prob(const Tensor& value) const {
  const Tensor& c = concentration;
  return sum(xlogy(c - 1, like(value, c)), -1) + lgamma(sum(c, -1)) - sum(lgamma(c), -1);
}
Tensor Dirichlet::entropy() const {
  const Tensor &c = concentration, total = sum(c, -1);
  return sum(lgamma(c), -1) - lgamma(total) + (total - c.shape()[c.dim() - 1]) * digamma(total) -
         sum((c - 1) * digamma(c), -1);
}
Tensor Dirichlet::mean() const { return concentration / sum(concentration, -1, {.keepdim = true}); }
Tensor Dirichlet::variance() const {
  const Tensor &c = concentration, total = sum(c, -1, {.keepdim = true});
  return c * (total - c) / (square(total) * (total + 1));
}

Tensor kl_divergence(const Normal& p, const Normal& q) {
  const Tensor ratio = square(p.scale / q.scale);
  return (ratio + square((p.loc - q.loc) / q.scale) - 1 - log(ratio)) / 2;
}
Tensor kl_divergence(const Uniform& p, const Uniform& q) {
  return where((q.low <= p.low) & (q.high >= p.high), log((q.high - q.low) / (p.high - p.low)), kInf);
}
Tensor kl_divergence(const Bernoulli& p, const Bernoulli& q) {
  const Tensor one = p.probs * (softplus(-q.logits) - softplus(-p.logits));
  const Tensor zero = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits));
  return masked(p.probs > 0, where(q.probs == 0, kInf, one)) + masked(p.probs < 1, where(q.probs == 1, kInf, zero));
}
Tensor kl_divergence(const Categorical& p, const Categorical& q) {
  return sum(masked(p.probs > 0, where(q.probs == 0, kInf, p.probs * (p.logits - q.logits))), -1);
}
Tensor kl_divergence(const Beta& p, const Beta& q) {
  const Tensor &a = p.concentration1, &b = p.concentration0, da = a - q.concentration1, db = b - q.concentration0;
  return log_beta(q.concentration1, q.concentration0) - log_beta(a, b) + da * digamma(a) + db * digamma(b) -
         (da + db) * digamma(a + b);
}
Tensor kl_divergence(const Dirichlet& p, const Dirichlet& q) {
  const Tensor &a = p.concentration, &b = q.concentration, total = sum(a, -1);
  return lgamma(total) - lgamma(sum(b, -1)) - sum(lgamma(a) - lgamma(b), -1) +
         sum((a - b) * (digamma(a) - unsqueeze(digamma(total), -1)), -1);
}

}  // namespace tapir::inline v0::distributions
