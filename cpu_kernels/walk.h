#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "../core/backend.h"

namespace tapir::inline v0::cpu {

/// A row-major walk over K operands of one shape: dimensions that lie behind each other in every operand are merged,
/// `skip` (a dimension that the kernel loops over itself) is left out.
template <int K> struct Walk {
  int rank = 0;
  int64_t total = 1;
  int64_t sizes[kMaxRank];
  int64_t strides[kMaxRank][K];

  Walk(const Shape& shape, const std::array<const int64_t*, K>& from, int64_t skip = -1) {
    for (int64_t d = 0; d < shape.size(); ++d) {
      if (d == skip) continue;
      total *= shape[d];
      if (shape[d] == 1) continue;
      int64_t step[K];
      for (int k = 0; k < K; ++k) step[k] = from[k][d];
      push(shape[d], step);
    }
    if (rank == 0) sizes[0] = 1, rank = 1, std::fill_n(strides[0], K, 0);
  }

  int64_t inner() const { return sizes[rank - 1]; }
  int64_t step(int k) const { return strides[rank - 1][k]; }
  /// One row whose steps are all 1, or nothing to walk.
  bool flat() const {
    if (rank != 1) return total == 0;
    for (int k = 0; k < K; ++k)
      if (sizes[0] != 1 && strides[0][k] != 1) return false;
    return true;
  }
  /// Puts the dimensions in the order in which operand 0 lies in memory; for loops that do not ask for row-major order.
  Walk& by_memory() {
    for (int i = 1; i < rank; ++i)
      for (int j = i; j > 0 && std::abs(strides[j - 1][0]) < std::abs(strides[j][0]); --j) {
        std::swap(sizes[j - 1], sizes[j]);
        std::swap(strides[j - 1], strides[j]);
      }
    const int old_rank = std::exchange(rank, 0);
    int i = 0;
    do {  // there is at least one
      push(sizes[i], strides[i]);
    } while (++i < old_rank);
    return *this;
  }

  /// Calls f(position, count, offsets) for the rows that make up positions [first, last): `count` elements, `step(k)` apart.
  template <class F> void run(int64_t first, int64_t last, F&& f) const {
    if (first >= last) return;
    const int64_t n = inner();
    int64_t at[kMaxRank], base[K] = {}, rest = first / n, column = first % n;
    for (int d = rank - 1; d-- > 0; rest /= sizes[d]) {
      at[d] = rest % sizes[d];
      for (int k = 0; k < K; ++k) base[k] += at[d] * strides[d][k];
    }
    for (;;) {
      const int64_t count = std::min(n - column, last - first);
      std::array<int64_t, K> offsets;
      for (int k = 0; k < K; ++k) offsets[k] = base[k] + column * step(k);
      f(first, count, offsets);
      if ((first += count) >= last) return;
      column = 0;
      for (int d = rank - 1; d-- > 0;) {
        for (int k = 0; k < K; ++k) base[k] += strides[d][k];
        if (++at[d] < sizes[d]) break;
        for (int k = 0; k < K; ++k) base[k] -= sizes[d] * strides[d][k];
        at[d] = 0;
      }
    }
  }
  /// The offset of one position.
  std::array<int64_t, K> at(int64_t position) const {
    std::array<int64_t, K> offsets{};
    for (int d = rank; d-- > 0; position /= sizes[d])
      for (int k = 0; k < K; ++k) offsets[k] += position % sizes[d] * strides[d][k];
    return offsets;
  }

 private:
  void push(int64_t size, const int64_t* step) {
    bool joins = rank > 0;
    for (int k = 0; joins && k < K; ++k) joins = strides[rank - 1][k] == step[k] * size;
    rank += !joins;
    sizes[rank - 1] = joins ? sizes[rank - 1] * size : size;
    for (int k = 0; k < K; ++k) strides[rank - 1][k] = step[k];
  }
};

/// True when the elements fill one block without gaps, in whatever order.
inline bool is_dense(const TensorView& v) {
  Walk<1> walk(v.shape(), {v.strides});
  return walk.by_memory().flat();
}
/// a + b: integers wrap, bool is "or".
template <class T> T added(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) return a || b;
  else if constexpr (std::is_integral_v<T>) return T(std::make_unsigned_t<T>(a) + std::make_unsigned_t<T>(b));
  else if constexpr (std::is_floating_point_v<T>) return a + b;
  else return T(float(a) + float(b));
}
inline bool same_strides(const TensorView& a, const TensorView& b) {
  for (int64_t d = 0; d < a.rank; ++d)
    if (a.sizes[d] > 1 && a.strides[d] != b.strides[d]) return false;
  return true;
}

}  // namespace tapir::inline v0::cpu
