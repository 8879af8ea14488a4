// Random numbers: bounds, mean and spread; every layout gets the numbers of the contiguous one. The table sets the seed
// before each call. Golden numbers stand in tests/ops/random_test.cpp.
#include <algorithm>
#include <cmath>

#include "case.h"
#include "place.h"

namespace op_cases {

/// Within [low, high]; of many numbers the mean and the standard deviation, where they are given.
static auto spread(double low, double high, double mean, double deviation) {
  return [=](const List&, const Tensor& y) -> std::string {
    const auto v = y.to_vector<double>();
    double sum = 0, squares = 0, n = double(v.size());
    for (double a : v) {
      if (!(a >= low && a <= high)) return "out of bounds: " + std::to_string(a);
      sum += a;
    }
    for (double a : v) squares += (a - sum / n) * (a - sum / n);
    if (n < 1000) return "";
    const double margin = std::max(6 * deviation / std::sqrt(n), 0.02 * deviation);
    if (std::abs(sum / n - mean) > margin) return "mean " + std::to_string(sum / n);
    if (std::abs(std::sqrt(squares / n) - deviation) > 3 * margin) return "deviation " + std::to_string(std::sqrt(squares / n));
    return "";
  };
}
static std::string is_permutation_of_31(const List&, const Tensor& y) {
  auto v = y.to_vector<double>();
  std::sort(v.begin(), v.end());
  for (size_t i = 0; i < v.size(); ++i)
    if (v[i] != double(i)) return "not a permutation";
  return v.size() == 31 && y.to_vector<double>() != v ? "" : "not shuffled";
}

/// Rows of n different positions below `classes`; of many single draws, as many of each as its weight's share.
static auto follows_the_weights(int64_t n, bool replacement) {
  return [=](const List& x, const Tensor& y) -> std::string {
    const Array w = read(x[0]), drawn = read(y);
    const auto classes = size_t(x[0].shape().back()), rows = w.v.size() / classes;
    if (drawn.v.size() != rows * size_t(n)) return "expected " + std::to_string(n) + " draws in each row";
    for (size_t r = 0; r < rows; ++r) {
      std::vector<double> count(classes);
      double total = 0;
      for (size_t i = 0; i < size_t(n); ++i) {
        const double at = drawn.v[r * size_t(n) + i];
        if (!(at >= 0 && at < double(classes))) return "out of range: " + std::to_string(at);
        if (++count[size_t(at)] > 1 && !replacement) return "drawn twice: " + std::to_string(at);
      }
      for (size_t c = 0; c < classes; ++c) total += w.v[r * classes + c];
      for (size_t c = 0; c < classes && replacement; ++c) {
        const double p = w.v[r * classes + c] / total;
        if (std::abs(count[c] / double(n) - p) > 5 * std::sqrt(p * (1 - p) / double(n)))
          return "position " + std::to_string(c) + " drawn too often or too rarely";
      }
    }
    return "";
  };
}

void random_cases(Table& table) {
  const double uniform = 1 / std::sqrt(12.0), ten = std::sqrt(99 / 12.0);
  const auto line = [](Case& c, DTypes dtypes) -> Case& {
    return c.of(dtypes).no_gradient().finite_only().on("(2,3,4) | () | (0,3) | (61,67)").perf("(1024,1024)");
  };
  line(CASE(rand, rand(x[0].shape(), like(x[0]))), kFloats).must(spread(0, 1, 0.5, uniform));
  line(CASE(randn, randn(x[0].shape(), like(x[0]))), kFloats).must(spread(-7, 7, 0, 1));
  line(CASE(randint, randint(10, x[0].shape(), like(x[0]))), kNumbers).must(spread(0, 9, 4.5, ten));
  line(CASE(randint, randint(-5, 5, x[0].shape(), like(x[0]))), kNumbers & ~set_of({kUInt8})).must(spread(-5, 4, -0.5, ten));
  CASE(randperm, randperm(31, like(x[0]))).of(kNumbers).no_gradient().on("()").must(is_permutation_of_31);
  line(CASE(rand_like, rand_like(x[0])), kFloats).must(spread(0, 1, 0.5, uniform));
  line(CASE(randn_like, randn_like(x[0])), kFloats).must(spread(-7, 7, 0, 1));
  line(CASE(randint_like, randint_like(x[0], 0, 10)), kNumbers).must(spread(0, 9, 4.5, ten));
  line(CASE(bernoulli, bernoulli(x[0])), kFloats).no_expand().in({kProbability}).must(spread(0, 1, 0.51, 0.5));
  line(CASE(bernoulli, bernoulli(x[0], 0.3)), kAll).must(spread(0, 1, 0.3, std::sqrt(0.21)));
  for (const bool replacement : {false, true}) {
    const int64_t n = replacement ? 4000 : 4;
    CASE(multinomial, multinomial(x[0], n, {.replacement = replacement}))
        .of(kFloats)
        .gives(Gives::Int64)
        .no_gradient()
        .finite_only()
        .in({kProbability})
        .on("(5) | (3,4) | (0,6)")
        .perf("(1024,1024)")
        .must(follows_the_weights(n, replacement));
  }
  line(CASE(normal, normal(2, 3, x[0].shape(), like(x[0]))), kFloats).must(spread(-19, 23, 2, 3));
  line(CASE(uniform_, uniform_(written(clone(x[0])), -1, 3)), kFloats).must(spread(-1, 3, 1, 4 * uniform)).TWIN(uniform_, -1, 3);
  line(CASE(normal_, normal_(written(clone(x[0])), 2, 3)), kFloats).must(spread(-19, 23, 2, 3)).TWIN(normal_, 2, 3);
  line(CASE(bernoulli_, bernoulli_(written(clone(x[0])), 0.3)), kAll).must(spread(0, 1, 0.3, std::sqrt(0.21))).TWIN(bernoulli_, 0.3);
  line(CASE(random_, random_(written(clone(x[0])), 0, 10)), kNumbers).must(spread(0, 9, 4.5, ten)).TWIN(random_, 0, 10);
}

}  // namespace op_cases
