#include <algorithm>
#include <cmath>
#include <limits>

#include "../../core/math.h"
#include "lanes.h"
#include "reduction.h"
#include "softmax_lanes.h"

namespace tapir::inline v0::cpu {
namespace {

using P = ReduceParams;

enum class Norm { Count, Sum, Euclid, Power };

/// The p-norm for finite p: a sum of powers.
template <class T, Norm kNorm> struct PowerNorm {
  using In = T;
  using Cell = double;
  using Out = double;
  static constexpr int kCells = 1;
  static constexpr int64_t kCost = kNorm == Norm::Power ? 16 : 1;
  static double power(In x, double p) {
    const double v = std::abs(double(x));
    if constexpr (kNorm == Norm::Count) return v != 0;
    else if constexpr (kNorm == Norm::Sum) return v;
    else if constexpr (kNorm == Norm::Euclid) return v * v;
    else return std::pow(v, p);
  }
  static void identity(Cell* s, const P&) { *s = 0; }
  static void leaf(Cell* s, const In* x, Run run, const P& params) {
    *s = sum_of<double>(x, run.count, [p = params.p](In v) { return power(v, p); });
  }
  static void add(Cell* s, int64_t, const In* x, int64_t columns, Run, const P& params) {
    const double p = params.p;
#pragma omp simd
    for (int64_t j = 0; j < columns; ++j) s[j] += power(x[j], p);
  }
  static void join(Cell* a, const Cell* b, Run, Run, const P&) { *a += *b; }
  static void repeat(Cell* s, int64_t times) { *s *= double(times); }
  static Out result(const Cell* s, int64_t, const P& params) {
    if constexpr (kNorm == Norm::Euclid) return std::sqrt(*s);
    else if constexpr (kNorm == Norm::Power) return std::pow(*s, 1 / params.p);
    else return *s;
  }
};

/// ln of a sum of e^x. The state is the largest element m and the sum of e^(x - m); an infinite m is taken as 0 in it.
template <class T> struct LogSumExp {
  using In = T;
  using Cell = double;
  using Out = double;
  static constexpr int kCells = 2;
  static constexpr int64_t kCost = 4;
  static constexpr double kInf = std::numeric_limits<double>::infinity();
  static double base(double m) { return m > -kInf && m < kInf ? m : 0.0; }
  static double moved(double sum, double from, double to) {
    return sum == 0 || base(from) == base(to) ? sum : sum * std::exp(base(from) - base(to));
  }
  static void identity(Cell* s, const P&) { s[0] = -kInf, s[1] = 0; }
  static void leaf(Cell* s, const In* x, Run run, const P&) {
    const In largest = extreme_of<true>(x, run.count, [](In v) { return v; });
    const In start = In(base(largest));
    s[0] = largest;  // a NaN makes the sum one
    s[1] = sum_exponentials(x, run.count, start, [](auto...) {});
  }
  /// Two passes over as many columns as stay in the L1 cache: the largest elements, then the sums.
  static void rows(Cell* s, int64_t width, const char* x, int64_t stride, int64_t columns, Run run, int64_t, const P&) {
    constexpr int64_t kWidth = 64, kRows = 64, kTerms = 16;
    for (int64_t i = 0; i < run.count; i += kRows)
      for (int64_t j = 0; j < columns; j += kWidth) {
        const int64_t n = columns - j < kWidth ? columns - j : kWidth,
                      rows = run.count - i < kRows ? run.count - i : kRows;
        const char* const from = x + i * stride + j * int64_t(sizeof(In));
        const auto row = [&](int64_t r) { return reinterpret_cast<const In*>(from + r * stride); };
        In top[kWidth], start[kWidth], part[kWidth];
        const auto join = [](In a, In b) { return extreme<true>(a, b); };
        fold_rows<kRows, In>(from, stride, n, rows, as_it_is, join,
                             [&](int64_t, int64_t, const In* block) { std::copy_n(block, n, top); });
        for (int64_t l = 0; l < n; ++l) {
          const double m = double(top[l]) > s[j + l] ? double(top[l]) : s[j + l];
          s[width + j + l] = moved(s[width + j + l], s[j + l], m);
          s[j + l] = m, start[l] = In(base(m));
        }
        for (int64_t r = 0; r < rows; r += kTerms) {
          std::fill_n(part, n, In(0));
          for (int64_t t = r; t < rows && t < r + kTerms; ++t) {
            const In* const next = row(t);
#pragma omp simd
            for (int64_t l = 0; l < n; ++l) part[l] += math::exp(next[l] - start[l]);
          }
          for (int64_t l = 0; l < n; ++l) s[width + j + l] += double(part[l]);
        }
      }
  }
  static void join(Cell* a, const Cell* b, Run, Run, const P&) {
    const double m = b[0] > a[0] ? b[0] : a[0];
    a[1] = moved(a[1], a[0], m) + moved(b[1], b[0], m);
    a[0] = m;
  }
  static void repeat(Cell* s, int64_t times) { s[1] *= double(times); }
  static Out result(const Cell* s, int64_t, const P&) { return std::log(s[1]) + base(s[0]); }
};

template <class T> Reducer norm_of(double p) {
  if (p == 0) return make_reducer<PowerNorm<T, Norm::Count>>();
  if (p == 1) return make_reducer<PowerNorm<T, Norm::Sum>>();
  if (p == 2) return make_reducer<PowerNorm<T, Norm::Euclid>>();
  return make_reducer<PowerNorm<T, Norm::Power>>();
}

}  // namespace

Reducer norm_reducer(const ReduceParams& p, DType in) {
  const bool wide = in == kFloat64 || !is_floating(in);
  if (p.op == ReduceOp::LogSumExp) return wide ? make_reducer<LogSumExp<double>>() : make_reducer<LogSumExp<float>>();
  if (std::isinf(p.p)) return extreme_reducer(p, wide ? kFloat64 : kFloat32);
  return wide ? norm_of<double>(p.p) : norm_of<float>(p.p);
}

}  // namespace tapir::inline v0::cpu
