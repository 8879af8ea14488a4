// What runs along a dimension, histograms, and reductions that skip or count; v are the elements along it.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "case.h"

namespace op_cases {

using Numbers = std::vector<double>;

static Numbers products(const Numbers& v) {
  Numbers y = v;
  std::partial_sum(v.begin(), v.end(), y.begin(), std::multiplies<>());
  return y;
}
static double total(const Numbers& v) { return double(std::accumulate(v.begin(), v.end(), 0.0L)); }
/// The extremes so far (sign 1: the largest, -1), or (places) where they are: the last of equal ones and of NaNs.
static Numbers running_extreme(const Numbers& v, double sign, bool places) {
  Numbers y;
  size_t best = 0;
  for (size_t i = 0; i < v.size(); ++i) {
    if (std::isnan(v[i]) || (!std::isnan(v[best]) && sign * v[i] >= sign * v[best])) best = i;
    y.push_back(places ? double(best) : v[best]);
  }
  return y;
}
static double extreme(const Numbers& v, double sign) { return running_extreme(v, sign, false).back(); }
static Numbers running_log_sum(const Numbers& v) {
  Numbers y;
  long double sum = 0, top = -INFINITY;  // of e^(v - top)
  for (double x : v) {
    if (x > top || std::isnan(x)) sum = sum == 0 ? 0 : sum * std::exp(top - x), top = x;
    if (top > -INFINITY) sum += x == top ? 1 : std::exp(x - top);
    y.push_back(std::isfinite(top) ? double(top + std::log(sum)) : double(top));
  }
  return y;
}
static Numbers without_nan(const Numbers& v) {
  Numbers y;
  std::copy_if(v.begin(), v.end(), std::back_inserter(y), [](double x) { return !std::isnan(x); });
  return y;
}

static void counts(Table& table) {
  REDUCTION(nansum, total(without_nan(v))).of(kAll).gives(Gives::Sums).within(32);
  REDUCTION(nanmean, total(without_nan(v)) / double(without_nan(v).size())).within(32);
  for (const Dims& dims : {Dims(), Dims(1), Dims{0, -1}}) {
    Case& line = CASE(count_nonzero, count_nonzero(x[0], dims)).of(kAll).gives(Gives::Int64).on("(2,3,4) | (7,431) | (0,3)");
    line.text = "count_nonzero(x[0], " + dims.str() + ")";
    line.expect([dims](const Arrays& x) {
      return fold(x[0], dims, false, [](const Numbers& v) { return Numbers{double(v.size()) - double(std::count(v.begin(), v.end(), 0))}; });
    });
  }
  REDUCTION_DIM(aminmax, extreme(v, -1), extreme(v, 1)).of(kAll).not_of_nothing();
}

/// Vectors along dim 1, then along the last one.
static void runs(Table& table) {
  const auto on = [](Case& line) { line.on("(2,3,4) | (2,1,2,1,3,1,2,2) | (2,0,3) | (0,3) | (5,431)"); };
  const auto each = [](int64_t dim, std::function<Numbers(const Numbers&)> f) {
    return [dim, f](const Arrays& x) { return along(x[0], dim < 0 ? x[0].shape.size() - 1 : dim, f); };
  };
  const Values nearly_one = {.low = 0.75, .high = 1.28}, with_zero = {.low = -2, .high = 2};
  on(CASE(cumprod, cumprod(x[0], 1)).of(kAll).in({nearly_one}).gives(Gives::Sums).within(64).expect(each(1, products)).perf("(1024,1024)").TWIN(cumprod_, 1));
  CASE(cumprod, cumprod(x[0], -1)).in({with_zero}).on("() | (5) | (2,3)").expect(each(-1, products)).TWIN(cumprod_, -1);
  on(CASE(logcumsumexp, logcumsumexp(x[0], 1)).within(16).expect(each(1, running_log_sum)).perf("(1024,1024)"));
  on(CASE(logcumsumexp, logcumsumexp(x[0], -1)).within(16).on("()").expect(each(-1, running_log_sum)));
  for (int64_t dim : {1, -1})
    for (double sign : {1.0, -1.0}) {
      const auto both = [=](const Arrays& x) {
        const int64_t d = dim < 0 ? x[0].shape.size() - 1 : dim;
        return Arrays{along(x[0], d, [=](const Numbers& v) { return running_extreme(v, sign, false); }),
                      along(x[0], d, [=](const Numbers& v) { return running_extreme(v, sign, true); })};
      };
      Case& line = sign > 0 ? CASE(cummax, cummax(x[0], dim)) : CASE(cummin, cummin(x[0], dim));
      on(line.of(kAll).expect(both).perf("(1024,1024)"));
      line.text = std::string(sign > 0 ? "cummax" : "cummin") + "(x[0], " + std::to_string(dim) + ")";
    }
  const auto differences = [](const Array& x) {
    Shape shape = x.shape;
    shape[shape.size() - 1] = std::max<int64_t>(shape.back() - 1, 0);
    return make(shape, [&](Dims i) {
      const double low = x.at(i);
      return ++i[i.size() - 1], x.at(i) - low;
    });
  };
  CASE(diff, diff(x[0])).of(kNumbers).on("(2,3,4) | (5) | (3,1) | (2,0)").expect([=](const Arrays& x) { return differences(x[0]); });
  CASE(diff, diff(x[0], 2)).of(kNumbers).on("(2,3,4) | (5) | (3,1)").within(16).expect([=](const Arrays& x) { return differences(differences(x[0])); });
  on(CASE(softmin, softmin(x[0], 1)).within(8).expect(each(1, [](const Numbers& v) {
    Numbers y;
    double sum = 0;
    const double low = extreme(v, -1);
    for (double x : v) y.push_back(std::exp(low - x)), sum += y.back();
    for (double& e : y) e /= sum;
    return y;
  })));
}

static void histograms(Table& table) {
  CASE(bincount, bincount(x[0], {}, 9)).on("(40) | (0)").in({labels(8)}).gives(Gives::Int64).expect([](const Arrays& x) {
    Array y(Shape{9});
    for (double v : x[0].v) ++y.v[size_t(v)];
    return y;
  });
  CASE(bincount, bincount(x[0], x[1], 9)).on("(40) (40)").in({labels(8), kAny}).of(set_of({kFloat32, kFloat64})).no_gradient().expect([](const Arrays& x) {
    Array y(Shape{9});
    for (size_t i = 0; i < x[0].v.size(); ++i) y.v[size_t(x[0].v[i])] += x[1].v[i];
    return y;
  });
  CASE(histc, histc(x[0], 7, {.min = -2, .max = 1.5})).on("(2,3,4) | () | (7,431) | (0,3)").no_gradient().expect([](const Arrays& x) {
    Array y(Shape{7});
    for (double v : x[0].v)
      if (v >= -2 && v <= 1.5) ++y.v[std::min<size_t>(size_t((v + 2) * 7 / 3.5), 6)];
    return y;
  });
}

void scan_cases(Table& table) {
  counts(table);
  runs(table);
  histograms(table);
}

}  // namespace op_cases
