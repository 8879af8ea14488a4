#include "init.h"

#include <cmath>

#include "../core/modes.h"

namespace tapir::inline v0::nn::init {

std::pair<int64_t, int64_t> fan_in_and_out(const Tensor& w) {
  check(w.dim() >= 2,
        "[init] fan in and fan out can not be computed for tensor with fewer than 2 dimensions, got shape {}",
        w.shape());
  int64_t kernel = 1;
  for (int64_t d = 2; d < w.dim(); ++d) kernel *= w.shape()[d];
  return {w.shape()[1] * kernel, w.shape()[0] * kernel};
}

double gain_of(Nonlinearity n, double slope) {
  switch (n) {
    case Nonlinearity::Tanh: return 5.0 / 3;
    case Nonlinearity::Relu: return std::sqrt(2.0);
    case Nonlinearity::LeakyRelu: return std::sqrt(2.0 / (1 + slope * slope));
    case Nonlinearity::Selu: return 3.0 / 4;
    default: return 1;
  }
}

Tensor& constant_(const Tensor& x, double value) {
  NoGrad guard;
  return x.fill_(value);
}
Tensor& zeros_(const Tensor& x) { return constant_(x, 0); }
Tensor& ones_(const Tensor& x) { return constant_(x, 1); }
Tensor& uniform_(const Tensor& x, double from, double to) {
  NoGrad guard;
  return x.uniform_(from, to);
}
Tensor& normal_(const Tensor& x, double mean, double std) {
  NoGrad guard;
  return x.normal_(mean, std);
}

/// Inverse of the normal distribution function: Acklam's rational approximation, one Newton step.
static double normal_quantile(double p) {
  static constexpr double a[] = {-39.69683028665376, 220.9460984245205,  -275.9285104469687,
                                 138.3577518672690,  -30.66479806614716, 2.506628277459239};
  static constexpr double b[] = {-54.47609879822406, 161.5858368580409, -155.6989798598866, 66.80131188771972,
                                 -13.28068155288572};
  static constexpr double c[] = {-0.007784894002430293, -0.3223964580411365, -2.400758277161838,
                                 -2.549732539343734,    4.374664141464968,   2.938163982698783};
  static constexpr double d[] = {0.007784695709041462, 0.3224671290700398, 2.445134137142996, 3.754408661907416};
  const auto tail = [](double q) {
    return (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
           ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1);
  };
  double x;
  if (p < 0.02425) x = tail(std::sqrt(-2 * std::log(p)));
  else if (p > 1 - 0.02425) x = -tail(std::sqrt(-2 * std::log1p(-p)));
  else {
    const double q = p - 0.5, r = q * q;
    x = (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
        (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
  }
  const double error = std::erfc(-x / std::sqrt(2.0)) / 2 - p;
  return x - error * std::sqrt(2 * 3.141592653589793) * std::exp(x * x / 2);
}

Tensor& trunc_normal_(const Tensor& x, double mean, double std, double from, double to) {
  check(std > 0 && from < to, "[trunc_normal_] expected std above 0 and from below to, got std {}, from {}, to {}", std,
        from, to);
  NoGrad guard;
  const auto cdf = [&](double v) { return std::erfc(-(v - mean) / std / std::sqrt(2.0)) / 2; };
  const double low = cdf(from), high = cdf(to);
  Tensor host = empty(x.shape(), {.dtype = kFloat64});
  host.uniform_(0, 1);
  double* v = host.data<double>();
  for (int64_t i = 0; i < host.numel(); ++i) {
    const double p = low + (high - low) * v[i];
    v[i] = p <= 0 ? from : p >= 1 ? to : std::fmin(std::fmax(mean + std * normal_quantile(p), from), to);
  }
  return x.copy_(host);
}

/// gain sqrt(2 / (inputs + outputs)); 0 where there are neither.
static double xavier_std(const char* op, const Tensor& x, double gain) {
  const auto [in, out] = fan_in_and_out(x);
  check(gain >= 0 && std::isfinite(gain), "[{}] expected a finite gain of at least 0, got {}", op, gain);
  return in + out > 0 ? gain * std::sqrt(2.0 / double(in + out)) : 0;
}
Tensor& xavier_uniform_(const Tensor& x, double gain) {
  const double bound = std::sqrt(3.0) * xavier_std("xavier_uniform_", x, gain);
  return uniform_(x, -bound, bound);
}
Tensor& xavier_normal_(const Tensor& x, double gain) { return normal_(x, 0, xavier_std("xavier_normal_", x, gain)); }

static double kaiming_std(const Tensor& x, const KaimingOptions& o) {
  const auto [in, out] = fan_in_and_out(x);
  check(std::isfinite(o.a), "[init] expected a finite slope a, got {}", o.a);
  const int64_t fan = o.mode == FanMode::FanIn ? in : out;
  return fan > 0 ? gain_of(o.nonlinearity, o.a) / std::sqrt(double(fan)) : 0;
}
Tensor& kaiming_uniform_(const Tensor& x, const KaimingOptions& o) {
  const double bound = std::sqrt(3.0) * kaiming_std(x, o);
  return uniform_(x, -bound, bound);
}
Tensor& kaiming_normal_(const Tensor& x, const KaimingOptions& o) { return normal_(x, 0, kaiming_std(x, o)); }

}  // namespace tapir::inline v0::nn::init
