#include <algorithm>
#include <cmath>

#include "../vec.h"
#include "lanes.h"
#include "reduction.h"

namespace tapir::inline v0::cpu {
namespace {

using P = ReduceParams;

// Float32 is added in float32 for a few terms only, then in float64: as exact as a pairwise sum, and as fast as the memory.
constexpr int64_t kFloatTerms = 16;

/// f(x[0]) + ... + f(x[n - 1]) of floats, f being for vectors too: lanes of at most kFloatTerms terms, in float64 from there on.
template <class F> double sum_floats(const float* x, int64_t n, F&& f) {
  constexpr int64_t w = kLanes<float>, kVectors = 8;
  double total[w] = {};
  const auto put = [&](Vec<float> v) {
    float lane[w];
    store(lane, v);
#pragma omp simd
    for (int64_t l = 0; l < w; ++l) total[l] += double(lane[l]);
  };
  while (n >= kVectors * w) {
    const int64_t terms = std::min(n / (kVectors * w), kFloatTerms);
    Vec<float> sum[kVectors];
    for (int64_t k = 0; k < kVectors; ++k) sum[k] = f(load(x + k * w));
    for (int64_t t = 1; t < terms; ++t) {
      const float* next = x + t * kVectors * w;
#pragma GCC unroll 8
      for (int64_t k = 0; k < kVectors; ++k) sum[k] += f(load(next + k * w));
    }
    put(((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7])));
    x += terms * kVectors * w, n -= terms * kVectors * w;
  }
  if (n >= w) {
    Vec<float> sum = f(load(x));
    for (x += w, n -= w; n >= w; x += w, n -= w) sum += f(load(x));
    put(sum);
  }
  for (int64_t i = 0; i < n; ++i) total[i] += double(f(x[i]));
  return join_lanes(total, w, [](double a, double b) { return a + b; });
}

/// Adds rows of floats to a plane of float64 sums, `stride` bytes apart: kFloatTerms of them at once.
template <class F>
void add_float_rows(double* s, const char* x, int64_t stride, int64_t columns, int64_t count, F&& f) {
  const auto plus = [](float a, float b) { return a + b; };
  fold_rows<kFloatTerms, float>(x, stride, columns, count, f, plus,
                                [s](int64_t first, int64_t width, const float* sums) {
#pragma omp simd
                                  for (int64_t l = 0; l < width; ++l) s[first + l] += double(sums[l]);
                                });
}

/// Sum, Mean and NanSum. Cell: double, or uint64_t (integers wrap).
template <class T, class C, bool kSkipNan = false> struct Sum {
  using In = T;
  using Cell = C;
  using Out = std::conditional_t<std::integral<C>, int64_t, double>;
  static constexpr int kCells = 1;
  static constexpr bool kFloat = std::same_as<T, float>;
  using Term = std::conditional_t<kFloat, float, Cell>;
  static Term term(In v) { return kSkipNan && v != v ? Term(0) : Term(v); }
  static void identity(Cell* s, const P&) { *s = 0; }
  static void leaf(Cell* s, const In* x, Run run, const P&) {
    if constexpr (kFloat)
      *s = sum_floats(x, run.count, [](auto v) {
        if constexpr (kSkipNan) return v == v ? v : decltype(v){};
        else return v;
      });
    else *s = sum_of<Cell>(x, run.count, [](In v) { return term(v); });
  }
  static void rows(Cell* s, int64_t width, const char* x, int64_t stride, int64_t columns, Run run, int64_t done,
                   const P& p) {
    if constexpr (kFloat) add_float_rows(s, x, stride, columns, run.count, [](float v) { return term(v); });
    else add_rows<Sum>(s, width, x, stride, columns, run, done, p);
  }
  static void add(Cell* s, int64_t, const In* x, int64_t columns, Run, const P&) {
#pragma omp simd
    for (int64_t j = 0; j < columns; ++j) s[j] += term(x[j]);
  }
  static void join(Cell* a, const Cell* b, Run, Run, const P&) { *a += *b; }
  static void repeat(Cell* s, int64_t times) { *s *= Cell(times); }
  static Out result(const Cell* s, int64_t count, const P& p) {
    if constexpr (std::floating_point<Cell>) return p.op == ReduceOp::Mean ? *s / double(count) : *s;
    else return Out(*s);
  }
};

template <class T, class C> struct Prod : Sum<T, C> {
  using In = T;
  using Cell = C;
  static constexpr auto rows = add_rows<Prod>;
  static void identity(Cell* s, const P&) { *s = 1; }
  static void leaf(Cell* s, const In* x, Run run, const P&) {
    *s = fold<32>(
        x, run.count, Cell(1), [](In v) { return Cell(v); }, [](Cell a, Cell b) { return a * b; });
  }
  static void add(Cell* s, int64_t, const In* x, int64_t columns, Run, const P&) {
#pragma omp simd
    for (int64_t j = 0; j < columns; ++j) s[j] *= Cell(x[j]);
  }
  static void join(Cell* a, const Cell* b, Run, Run, const P&) { *a *= *b; }
  static void repeat(Cell*, int64_t) = delete;  // the rounding errors of a power grow with it
};

/// Var and Std. The state is the mean and the sum of squared distances from it: exact under shifts, however large.
template <class T> struct Moments {
  using In = T;
  using Cell = double;
  using Out = double;
  static constexpr int kCells = 2;
  static void identity(Cell* s, const P&) { s[0] = s[1] = 0; }
  static void leaf(Cell* s, const In* x, Run run, const P&) {  // two passes over a run that is in cache
    const double n = double(run.count), mean = sum_of<double>(x, run.count, [](In v) { return double(v); }) / n;
    const double squares =
        sum_of<double>(x, run.count, [mean](In v) { return (double(v) - mean) * (double(v) - mean); });
    const double rest = sum_of<double>(x, run.count, [mean](In v) { return double(v) - mean; });
    s[0] = mean, s[1] = squares - rest * rest / n;
  }
  static void add(Cell* s, int64_t width, const In* x, int64_t columns, Run at, const P&) {  // Welford 1962
    const double weight = 1.0 / double(at.count + 1);
    double* mean = s;
    double* squares = s + width;
#pragma omp simd
    for (int64_t j = 0; j < columns; ++j) {
      const double v = double(x[j]), distance = v - mean[j], moved = mean[j] + distance * weight;
      mean[j] = moved;
      squares[j] += distance * (v - moved);
    }
  }
  static void join(Cell* a, const Cell* b, Run first, Run second, const P&) {  // Chan, Golub, LeVeque 1979
    const double na = double(first.count), nb = double(second.count), distance = b[0] - a[0];
    a[0] += distance * (nb / (na + nb));
    a[1] += b[1] + distance * distance * (na * nb / (na + nb));
  }
  static void repeat(Cell* s, int64_t times) { s[1] *= double(times); }
  static Out result(const Cell* s, int64_t count, const P& p) {
    const double divisor = double(count) - p.correction,
                 variance = (count ? s[1] : NAN) / (divisor > 0 ? divisor : 0.0);
    return p.op == ReduceOp::Std ? std::sqrt(variance) : variance;
  }
};

}  // namespace

Reducer sum_reducer(const ReduceParams& p, DType in, DType out) {
  const bool moments = p.op == ReduceOp::Var || p.op == ReduceOp::Std;
  const bool wide = in == kFloat64 || !is_floating(in);
  if (moments) return wide ? make_reducer<Moments<double>>() : make_reducer<Moments<float>>();
  if (p.op == ReduceOp::NanSum)
    return wide ? make_reducer<Sum<double, double, true>>() : make_reducer<Sum<float, double, true>>();
  const bool product = p.op == ReduceOp::Prod;
  if (!is_floating(in) && !is_floating(out) && p.op != ReduceOp::Mean)
    return product ? make_reducer<Prod<int64_t, uint64_t>>() : make_reducer<Sum<int64_t, uint64_t>>();
  if (wide) return product ? make_reducer<Prod<double, double>>() : make_reducer<Sum<double, double>>();
  return product ? make_reducer<Prod<float, double>>() : make_reducer<Sum<float, double>>();
}

}  // namespace tapir::inline v0::cpu
