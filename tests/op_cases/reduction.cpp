// Reductions; v are the reduced elements, in row-major order.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "case.h"

namespace op_cases {

using Numbers = std::vector<double>;

// Sums are long, so that the reference is nearer to the truth than float64 results.
using Long = long double;
static Long long_mean(const Numbers& v) { return std::accumulate(v.begin(), v.end(), Long(0)) / Long(v.size()); }
static double total(const Numbers& v) { return double(std::accumulate(v.begin(), v.end(), Long(0))); }
static double mean_of(const Numbers& v) { return double(long_mean(v)); }
static double variance(const Numbers& v, double correction) {
  Long s = 0;
  const Long mean = long_mean(v);
  for (double x : v) s += (x - mean) * (x - mean);
  return double(s / std::max(Long(v.size()) - Long(correction), Long(0)));
}
/// The first largest (sign 1) or smallest (-1); a NaN is both.
static double position(const Numbers& v, double sign) {
  size_t best = 0;
  for (size_t i = 1; i < v.size(); ++i)
    if (!std::isnan(v[best]) && (std::isnan(v[i]) || sign * v[i] > sign * v[best])) best = i;
  return double(best);
}
static double extreme(const Numbers& v, double sign) { return v[size_t(position(v, sign))]; }
static double log_sum(const Numbers& v) {
  const double top = v.empty() ? -INFINITY : extreme(v, 1);
  if (!std::isfinite(top)) return top;
  double s = 0;
  for (double x : v) s += std::exp(x - top);
  return top + std::log(s);
}
static double power_norm(const Numbers& v, double p) {
  double s = p == -INFINITY ? INFINITY : 0;
  for (double x : v) {
    if (std::isinf(p)) s = std::isnan(x) || std::isnan(s) ? NAN : p > 0 ? std::max(s, std::abs(x)) : std::min(s, std::abs(x));
    else s += p == 0 ? x != 0 : std::pow(std::abs(x), p);
  }
  return p == 0 || std::isinf(p) ? s : std::pow(s, 1 / p);
}
static Numbers running(const Numbers& v) {
  Numbers y;
  long double sum = 0;  // exact beside what is checked: a row of 431 equal numbers, added one by one, is off by 40 ulp
  for (double x : v) y.push_back(double(sum += x));
  return y;
}
static Numbers softened(const Numbers& v, bool log) {
  Numbers y;
  const double top = extreme(v, 1);
  long double s = 0;
  for (double x : v) s += std::exp((long double)(x - top));
  for (double x : v) y.push_back(double(log ? x - top - std::log(s) : std::exp((long double)(x - top)) / s));
  return y;
}

static void sums(Table& table) {
  REDUCTION(sum, total(v)).of(kAll).gives(Gives::Sums).within(32);
  CASE(sum, sum(x[0], 1, {.dtype = kFloat64})).of(kAll).gives(Gives::Other).on("(2,3,4)").expect([](const Arrays& x) {
    return fold(x[0], 1, false, [](const Numbers& v) { return Numbers{total(v)}; });
  });
  REDUCTION(mean, mean_of(v)).within(32);
  REDUCTION(prod, double(std::accumulate(v.begin(), v.end(), 1.0L, std::multiplies<>())))
      .of(kAll)
      .in({{.low = 0.75, .high = 1.28}})
      .gives(Gives::Sums)
      .within(64);
  // Negative numbers and one zero.
  CASE(prod, prod(x[0], -1)).of(kAll).in({{.low = -2, .high = 2}}).gives(Gives::Sums).on("(3) | (2,5)").expect([](const Arrays& x) {
    return fold(x[0], -1, false, [](const Numbers& v) { return Numbers{std::accumulate(v.begin(), v.end(), 1.0, std::multiplies<>())}; });
  });
  REDUCTION(any, std::count(v.begin(), v.end(), 0) < int64_t(v.size()) ? 1.0 : 0.0).of(kAll).gives(Gives::Truth);
  REDUCTION(all, std::count(v.begin(), v.end(), 0) == 0 ? 1.0 : 0.0).of(kAll).gives(Gives::Truth);
  REDUCTION(logsumexp, log_sum(v)).of(kAll).gives(Gives::Floats).within(16);
  REDUCTION(var, variance(v, 1)).within(32);
  // The gradient of a square root at 0 is none: no elements that are all equal.
  REDUCTION(tapir::std, std::sqrt(variance(v, 1))).within(32).no_expand();
  REDUCTION(var_mean, variance(v, 1), mean_of(v)).within(32);
  REDUCTION(std_mean, std::sqrt(variance(v, 1)), mean_of(v)).within(32).no_expand();
  CASE(var, var(x[0], 1, {.correction = 0})).on("(2,3,4) | (2,0,4)").within(32).expect([](const Arrays& x) {
    return fold(x[0], 1, false, [](const Numbers& v) { return Numbers{variance(v, 0)}; });
  });
  CASE(norm, norm(x[0])).on("(2,3,4) | () | (7,431) | (0,3)").within(32).expect([](const Arrays& x) {
    return fold(x[0], {}, false, [](const Numbers& v) { return Numbers{power_norm(v, 2)}; });
  });
  for (double p : {0.0, 1.0, 2.0, 3.0, -1.5, HUGE_VAL, -HUGE_VAL}) {
    const auto by_hand = [p](const Arrays& x) { return fold(x[0], 1, false, [p](const Numbers& v) { return Numbers{power_norm(v, p)}; }); };
    Case& line = CASE(norm, norm(x[0], p, 1)).on("(2,3,4) | (7,43)").within(32).expect(by_hand);
    line.text = "norm(x[0], " + std::to_string(p) + ", 1)";
    Case& other = CASE(linalg::vector_norm, linalg::vector_norm(x[0], p, 1)).on("(2,3,4)").within(32).expect(by_hand);
    other.text = "linalg::vector_norm(x[0], " + std::to_string(p) + ", 1)";
  }
}

static void extremes(Table& table) {
  REDUCTION(amax, extreme(v, 1)).of(kAll).not_of_nothing();
  REDUCTION(amin, extreme(v, -1)).of(kAll).not_of_nothing();
  REDUCTION_DIM(max, extreme(v, 1), position(v, 1)).of(kAll).not_of_nothing();
  REDUCTION_DIM(min, extreme(v, -1), position(v, -1)).of(kAll).not_of_nothing();
  REDUCTION_DIM(argmax, position(v, 1)).of(kAll).gives(Gives::Int64).not_of_nothing();
  REDUCTION_DIM(argmin, position(v, -1)).of(kAll).gives(Gives::Int64).not_of_nothing();
  const auto whole = [](double (*f)(const Numbers&)) {
    return [f](const Arrays& x) { return fold(x[0], {}, false, [f](const Numbers& v) { return Numbers{f(v)}; }); };
  };
  const auto on = [](Case& line) { line.on("(2,3,4) | () | (7,431) | (2,1,2,1,3,1,2,2)"); };
  on(CASE(max, max(x[0])).of(kAll).expect(whole([](const Numbers& v) { return extreme(v, 1); })));
  on(CASE(min, min(x[0])).of(kAll).expect(whole([](const Numbers& v) { return extreme(v, -1); })));
  on(CASE(argmax, argmax(x[0])).of(kAll).gives(Gives::Int64).expect(whole([](const Numbers& v) { return position(v, 1); })));
  on(CASE(argmin, argmin(x[0])).of(kAll).gives(Gives::Int64).expect(whole([](const Numbers& v) { return position(v, -1); })));
}

/// Vectors along dim 1, then along the last one.
static void vectors(Table& table) {
  const auto on = [](Case& line) { line.on("(2,3,4) | (2,1,2,1,3,1,2,2) | (2,0,3) | (0,3) | (5,431)"); };
  const auto each = [](int64_t dim, std::function<Numbers(const Numbers&)> f) {
    return [dim, f](const Arrays& x) { return along(x[0], dim < 0 ? x[0].shape.size() - 1 : dim, f); };
  };
  const auto soft = [](const Numbers& v) { return softened(v, false); };
  const auto log_soft = [](const Numbers& v) { return softened(v, true); };
  on(CASE(cumsum, cumsum(x[0], 1)).of(kAll).gives(Gives::Sums).within(64).expect(each(1, running)).perf("(1024,1024)").TWIN(cumsum_, 1));
  on(CASE(cumsum, cumsum(x[0], -1)).of(kAll).gives(Gives::Sums).within(64).on("()").expect(each(-1, running)).TWIN(cumsum_, -1));
  on(CASE(softmax, softmax(x[0], 1)).within(8).expect(each(1, soft)).perf("(1024,1024)"));
  on(CASE(softmax, softmax(x[0], -1)).within(8).on("()").expect(each(-1, soft)));
  on(CASE(softmax, softmax(x[0], 1, {.dtype = kFloat64})).of(kAll).gives(Gives::Other).within(16).expect(each(1, soft)));
  on(CASE(log_softmax, log_softmax(x[0], 1)).within(8).expect(each(1, log_soft)).perf("(1024,1024)"));
  on(CASE(log_softmax, log_softmax(x[0], -1)).within(8).on("()").expect(each(-1, log_soft)));
}

void reduction_cases(Table& table) {
  sums(table);
  extremes(table);
  vectors(table);
}

}  // namespace op_cases
