#pragma once
#include <cstdint>

namespace tapir::inline v0::cpu {

/// f(x[0]) + ... + f(x[n - 1]), in a fixed order: four partial sums, each of vector lanes, so that additions overlap.
template <class Sum, class T, class F> Sum sum_of(const T* x, int64_t n, F&& f) {
  Sum a = 0, b = 0, c = 0, d = 0;
  const int64_t quarter = n / 4;
  const T *x1 = x + quarter, *x2 = x1 + quarter, *x3 = x2 + quarter;
#pragma omp simd reduction(+ : a, b, c, d)
  for (int64_t i = 0; i < quarter; ++i) a += f(x[i]), b += f(x1[i]), c += f(x2[i]), d += f(x3[i]);
  for (int64_t i = 4 * quarter; i < n; ++i) a += f(x[i]);
  return (a + b) + (c + d);
}

/// The larger (smaller) of two; a NaN wins.
template <bool kLargest, class T> constexpr T extreme(T a, T b) { return (kLargest ? a > b : a < b) || a != a ? a : b; }

/// The extreme of f(x[0]), ..., f(x[n - 1]); n > 0. Lanes by hand: the reductions of OpenMP may start from the largest
/// finite number, and know no NaN.
template <bool kLargest, class T, class F> T extreme_of(const T* x, int64_t n, F&& f) {
  constexpr int64_t kLanes = 64;
  T best = f(x[0]);
  int64_t i = 0;
  if (n >= kLanes) {
    T lane[kLanes];
    for (int64_t l = 0; l < kLanes; ++l) lane[l] = f(x[l]);
    for (i = kLanes; i + kLanes <= n; i += kLanes) {
#pragma omp simd
      for (int64_t l = 0; l < kLanes; ++l) lane[l] = extreme<kLargest>(lane[l], T(f(x[i + l])));
    }
    for (int64_t l = 0; l < kLanes; ++l) best = extreme<kLargest>(best, lane[l]);
  }
  for (; i < n; ++i) best = extreme<kLargest>(best, T(f(x[i])));
  return best;
}

/// The first i with f(x[i]); there must be one.
template <class T, class F> int64_t first_of(const T* x, int64_t n, F&& f) {
  constexpr int64_t kBlock = 64;
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    int found = 0;
#pragma omp simd reduction(| : found)
    for (int64_t l = 0; l < kBlock; ++l) found |= int(f(x[i + l]));
    if (found) break;
  }
  while (!f(x[i])) ++i;
  return i;
}

}  // namespace tapir::inline v0::cpu
