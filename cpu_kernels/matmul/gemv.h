#pragma once
#include <algorithm>

#include "../../core/parallel.h"
#include "../vec.h"

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

/// Sums over k of x[k] b[k, j] for n neighbouring columns of a matrix that is contiguous along j: some rows at a time, each read over the
/// whole width, for memory gives long stretches faster than a column's pieces.
template <class T> inline void sum_rows(int64_t k, int64_t n, const T* b, int64_t stride, const float* x, float* sums) {
  constexpr int lanes = kLanes<float>, rows = kVectorRegisters == 32 ? 12 : 8;
  std::fill_n(sums, n, 0.f);
  const int64_t whole = n / lanes * lanes;
  int64_t i = 0;
  for (; i + rows <= k; i += rows)
    for (int64_t j = 0; j < whole; j += lanes) {
      Vec<float> sum = load(sums + j);
#pragma GCC unroll 12
      for (int r = 0; r < rows; ++r) sum += load_float(b + (i + r) * stride + j) * x[i + r];
      store(sums + j, sum);
    }
  for (; i < k; ++i)
    for (int64_t j = 0; j < whole; j += lanes) store(sums + j, load(sums + j) + load_float(b + i * stride + j) * x[i]);
  for (i = 0; whole < n && i < k; ++i)
    for (int64_t j = whole; j < n; ++j) sums[j] += x[i] * float(b[i * stride + j]);
}

/// For each (batch, j): take(batch, j, sum over k of x[batch, k] b[batch, k, j]). b is contiguous along k or along j.
template <class T, class Take> void gemv(int64_t batch, int64_t n, int64_t k, const T* b, int64_t b_batch, int64_t step,
                                         int64_t column, const float* x, Take&& take) {
  constexpr int64_t kWidest = 4096, kPart = 32, kLong = 1024;
  const bool by_rows = column == 1 && step != 1;
  const bool one_by_one = k * int64_t(sizeof(T)) >= kLong;  // a single stream of memory is the fastest
  const int64_t share = (n + get_num_threads() - 1) / get_num_threads();
  const int64_t width = by_rows ? std::clamp((share + kPart - 1) / kPart * kPart, kPart, kWidest) : kPart;
  const int64_t blocks = (n + width - 1) / width;
  const bool alone = batch * n * k <= 1 << 17;  // else about 32768 elements a piece
  const int64_t grain = alone ? batch * blocks : std::max<int64_t>(1, (1 << 15) / (k * width));
  parallel_for(batch * blocks, grain, [&](int64_t first, int64_t last) {
    float sums[kWidest];
    for (int64_t block = first; block < last; ++block) {
      const int64_t at = block / blocks, j0 = block % blocks * width, count = std::min(width, n - j0);
      const T* from = b + at * b_batch + j0 * column;
      const float* row = x + at * k;
      if (by_rows) {
        sum_rows(k, count, from, step, row, sums);
      } else {
        int64_t j = 0;
        for (; !one_by_one && j + 4 <= count; j += 4) dot_columns<4>(k, from + j * column, column, row, sums + j);
        for (; j < count; ++j) dot_columns<1>(k, from + j * column, column, row, sums + j);
      }
      for (int64_t j = 0; j < count; ++j) take(at, j0 + j, sums[j]);
    }
  });
}

}  // namespace tapir::inline v0::cpu
