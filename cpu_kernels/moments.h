#pragma once
#include <type_traits>

#include "convert.h"
#include "walk.h"

namespace tapir::inline v0::cpu {

/// What elements of T are computed in.
template <class T> using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;
inline constexpr int64_t kSegment =
    1024;  // elements that are read, converted and summed together: they stay in the L1 cache

/// `n` elements, `step` apart, as C: where they lie if that is possible, else converted into `buffer`.
template <class C, class T> const C* read_row(const T* from, int64_t step, int64_t n, C* buffer) {
  if constexpr (std::is_same_v<C, T>)
    if (step == 1) return from;
  if (step == 1 && is_half<T>) converter(dtype_of<C>, dtype_of<T>)(n, buffer, from);
  else if (step == 1)
    for (int64_t i = 0; i < n; ++i) buffer[i] = C(from[i]);
  else
    for (int64_t i = 0; i < n; ++i) buffer[i] = C(from[i * step]);
  return buffer;
}
/// Where to compute what becomes `n` elements at `to`; write_row brings them there.
template <class C, class T> C* row_target(T* to, int64_t step, C* buffer) {
  if constexpr (std::is_same_v<C, T>)
    if (step == 1) return to;
  return buffer;
}
template <class C, class T> void write_row(T* to, int64_t step, int64_t n, const C* from) {
  if constexpr (std::is_same_v<C, T>)
    if (from == to) return;
  if (step == 1 && is_half<T>) converter(dtype_of<T>, dtype_of<C>)(n, to, from);
  else if (step == 1)
    for (int64_t i = 0; i < n; ++i) to[i] = T(from[i]);
  else
    for (int64_t i = 0; i < n; ++i) to[i * step] = T(from[i]);
}

/// Count, mean and sum of squared distances from it. Merging: Chan, Golub and LeVeque 1979.
struct Moments {
  double n = 0, mean = 0, m2 = 0;

  void merge(double other_n, double other_mean, double other_m2) {
    if (n == 0 || other_n == 0) {
      if (n == 0) n = other_n, mean = other_mean, m2 = other_m2;
      return;
    }
    const double delta = other_mean - mean, share = other_n / (n + other_n);
    mean += delta * share;
    m2 += other_m2 + delta * delta * (n * share);
    n += other_n;
  }
  /// Adds at most kSegment elements. Sums are of distances from a shift near the mean, so that nothing cancels: the mean of the
  /// elements themselves at first, what is known of it later.
  template <class C> void add(const C* x, int64_t count) {
    C shift = C(mean);
    if (n == 0) {
      C sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < count; ++i) sum += x[i];
      shift = sum / C(count);
    }
    C s1 = 0, s2 = 0;
#pragma omp simd reduction(+ : s1, s2)
    for (int64_t i = 0; i < count; ++i) {
      const C d = x[i] - shift;
      s1 += d, s2 += d * d;
    }
    const double k = double(count), rest = double(s1) / k;
    merge(k, double(shift) + rest, double(s2) - double(s1) * rest);
  }
  double variance() const { return n > 0 ? std::max(m2 / n, 0.0) : 0; }
};

}  // namespace tapir::inline v0::cpu
