#pragma once
#include <algorithm>

#include "../core/parallel.h"
#include "vec.h"

namespace tapir::inline v0::cpu {

/// Sums over k of x[k] b[k, j] for `Rows` columns j that lie `stride` apart, each contiguous in k. Every column is summed in the
/// same order whatever Rows is.
template <int Rows, class T>
inline void dot_columns(int64_t k, const T* b, int64_t stride, const float* x, float* sums) {
  constexpr int lanes = kLanes<float>;
  Vec<float> even[Rows] = {}, odd[Rows] = {};
  int64_t i = 0;
  for (; i + 2 * lanes <= k; i += 2 * lanes)
    for (int r = 0; r < Rows; ++r) {
      even[r] += load(x + i) * load_float(b + r * stride + i);
      odd[r] += load(x + i + lanes) * load_float(b + r * stride + i + lanes);
    }
  for (int r = 0; r < Rows; ++r) {
    float rest = 0;
    for (int64_t j = i; j < k; ++j) rest += x[j] * float(b[r * stride + j]);
    sums[r] = sum_lanes<float>(even[r] + odd[r]) + rest;
  }
}

/// The same for kWide neighbouring columns of a matrix that is contiguous along j.
inline constexpr int64_t kWide = 8 * kLanes<float>;
template <class T> inline void sum_rows(int64_t k, int64_t n, const T* b, int64_t stride, const float* x, float* sums) {
  constexpr int lanes = kLanes<float>, vectors = 4;
  int64_t j = 0;
  for (; j + vectors * lanes <= n; j += vectors * lanes) {
    Vec<float> sum[vectors] = {};
    for (int64_t i = 0; i < k; ++i)
      for (int v = 0; v < vectors; ++v) sum[v] += load_float(b + i * stride + j + v * lanes) * x[i];
    for (int v = 0; v < vectors; ++v) store(sums + j + v * lanes, sum[v]);
  }
  for (; j + lanes <= n; j += lanes) {
    Vec<float> sum = {};
    for (int64_t i = 0; i < k; ++i) sum += load_float(b + i * stride + j) * x[i];
    store(sums + j, sum);
  }
  std::fill(sums + j, sums + n, 0.f);
  for (int64_t i = 0; j < n && i < k; ++i)
    for (int64_t q = j; q < n; ++q) sums[q] += x[i] * float(b[i * stride + q]);
}

/// For each (batch, j): take(batch, j, sum over k of x[batch, k] b[batch, k, j]). b is contiguous along k or along j.
template <class T, class Take> void gemv(int64_t batch, int64_t n, int64_t k, const T* b, int64_t b_batch, int64_t step,
                                         int64_t column, const float* x, Take&& take) {
  const int64_t blocks = (n + kWide - 1) / kWide;
  parallel_for(batch * blocks, std::max<int64_t>(1, (1 << 17) / (k * kWide)), [&](int64_t first, int64_t last) {
    float sums[kWide];
    for (int64_t block = first; block < last; ++block) {
      const int64_t at = block / blocks, j0 = block % blocks * kWide, count = std::min(kWide, n - j0);
      const T* from = b + at * b_batch + j0 * column;
      const float* row = x + at * k;
      if (column == 1 && step != 1) {
        sum_rows(k, count, from, step, row, sums);
      } else {
        int64_t j = 0;
        for (; j + 4 <= count; j += 4) dot_columns<4>(k, from + j * column, column, row, sums + j);
        for (; j < count; ++j) dot_columns<1>(k, from + j * column, column, row, sums + j);
      }
      for (int64_t j = 0; j < count; ++j) take(at, j0 + j, sums[j]);
    }
  });
}

}  // namespace tapir::inline v0::cpu
