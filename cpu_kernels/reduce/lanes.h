#pragma once
#include <cstdint>
#include <type_traits>

namespace tapir::inline v0::cpu {

/// The n lanes, a power of two, joined as a tree, the upper half into the lower one.
template <class A, class Join> A join_lanes(A* lane, int64_t n, Join&& join) {
  for (int64_t half = n / 2; half > 0; half /= 2) {
#pragma omp simd
    for (int64_t l = 0; l < half; ++l) lane[l] = join(lane[l], lane[half + l]);
  }
  return lane[0];
}

/// join(...join(join(start, f(x[0])), f(x[1]))..., f(x[n - 1])) in a fixed order that vectorises: element i goes to lane i mod
/// kLanes, and the lanes are joined as a tree. Lanes by hand, as the reductions of OpenMP fix no order, start from the
/// largest finite number and know no NaN. `start` may be joined more than once.
template <int64_t kLanes, class A, class T, class F, class Join>
A fold(const T* x, int64_t n, A start, F&& f, Join&& join) {
  A result = start;
  int64_t i = 0;
  if (n >= kLanes) {
    A lane[kLanes];
    for (int64_t l = 0; l < kLanes; ++l) lane[l] = start;
    for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
      for (int64_t l = 0; l < kLanes; ++l) lane[l] = join(lane[l], A(f(x[i + l])));
    }
    result = join_lanes(lane, kLanes, join);
  }
  for (; i < n; ++i) result = join(result, A(f(x[i])));
  return result;
}

/// f(x[0]) + ... + f(x[n - 1]).
template <class Sum, class T, class F> Sum sum_of(const T* x, int64_t n, F&& f) {
  return fold<32>(x, n, Sum(0), f, [](Sum a, Sum b) { return a + b; });
}

/// The larger (smaller) of two; a NaN wins.
template <bool kLargest, class T> constexpr T extreme(T a, T b) { return (kLargest ? a > b : a < b) || a != a ? a : b; }

/// The extreme of f(x[0]), ..., f(x[n - 1]); n > 0.
template <bool kLargest, class T, class F> T extreme_of(const T* x, int64_t n, F&& f) {
  const auto join = [](T a, T b) { return extreme<kLargest>(a, b); };
  if (n < 512) return fold<16>(x, n, T(f(x[0])), f, join);  // joining many lanes costs more than it gains
  const int64_t whole = n / 64 * 64;
  return fold<16>(x + whole, n - whole, fold<64>(x, whole, T(f(x[0])), f, join), f, join);
}

inline constexpr auto as_it_is = [](auto x) { return x; };

/// Folds f of rows of x, `stride` bytes apart, into one, 64 columns at a time and at most `kTerms` rows: done(first column, columns,
/// results) after each such block.
template <int64_t kTerms, class T, class F, class Join, class Done>
void fold_rows(const char* x, int64_t stride, int64_t columns, int64_t count, F&& f, Join&& join, Done&& done) {
  constexpr int64_t kWidth = 64;
  T block[kWidth];
  for (int64_t i = 0; i < count; i += kTerms) {
    const int64_t rows = count - i < kTerms ? count - i : kTerms;
    for (int64_t j = 0; j < columns; j += kWidth) {
      const int64_t width = columns - j < kWidth ? columns - j : kWidth;
      const auto row = [&](int64_t r) { return reinterpret_cast<const T*>(x + (i + r) * stride) + j; };
      const auto fold = [&](auto n) {
        const T* const first = row(0);
#pragma omp simd
        for (int64_t l = 0; l < int64_t(n); ++l) block[l] = f(first[l]);
        for (int64_t r = 1; r < rows; ++r) {
          const T* const next = row(r);
#pragma omp simd
          for (int64_t l = 0; l < int64_t(n); ++l) block[l] = join(block[l], f(next[l]));
        }
      };
      if (width == kWidth) fold(std::integral_constant<int64_t, kWidth>());
      else fold(width);
      done(j, width, block);
    }
  }
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
