#pragma once
#include <algorithm>

#include "../../core/parallel.h"
#include "../long_sums.h"

namespace tapir::inline v0::cpu {

template <int Rows, class T> inline void dot_some(int64_t k, const T* b, int64_t stride, const float* x, float* sums) {
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
/// Sums over k of x[k] b[k, j] for `Rows` columns j that lie `stride` apart, each contiguous in k. Every column is summed in the
/// same order whatever Rows is. See Note [Long sums].
template <int Rows, class T>
inline void dot_columns(int64_t k, const T* b, int64_t stride, const float* x, float* sums) {
  constexpr int64_t most = 2 * kLanes<float> * kChain;
  if (k <= most) return dot_some<Rows>(k, b, stride, x, sums);
  double total[Rows] = {};
  for (int64_t i = 0; i < k; i += most) {
    dot_some<Rows>(std::min(most, k - i), b + i, stride, x + i, sums);
    for (int r = 0; r < Rows; ++r) total[r] += double(sums[r]);
  }
  std::copy_n(total, Rows, sums);
}

/// Rows of so few bytes that lie one behind the other are short: memory gives a single stream faster than pieces of many rows.
inline constexpr int64_t kShortRow = 3072;

template <int rows, class T>
inline void sum_some_rows(int64_t k, int64_t n, const T* b, int64_t stride, const float* x, float* sums) {
  constexpr int lanes = kLanes<float>;
  std::fill_n(sums, n, 0.f);
  const int64_t whole = n / lanes * lanes;
  int64_t i = 0;
  for (; i + rows <= k; i += rows) {
    float factor[rows];  // which no store to sums can change
    std::copy_n(x + i, rows, factor);
#pragma GCC unroll 4
    for (int64_t j = 0; j < whole; j += lanes) {
      Vec<float> sum = load(sums + j);
#pragma GCC unroll 12
      for (int r = 0; r < rows; ++r) sum += load_float(b + (i + r) * stride + j) * factor[r];
      store(sums + j, sum);
    }
  }
  for (; i < k; ++i)
    for (int64_t j = 0; j < whole; j += lanes) store(sums + j, load(sums + j) + load_float(b + i * stride + j) * x[i]);
  for (i = 0; whole < n && i < k; ++i)
    for (int64_t j = whole; j < n; ++j) sums[j] += x[i] * float(b[i * stride + j]);
}
/// Sums over k of x[k] b[k, j] for n neighbouring columns of a matrix that is contiguous along j: some rows at a time, each read over the
/// whole width, for memory gives long stretches faster than a column's pieces; few where rows are short. Sums are in the order of k.
template <class T> inline void sum_rows(int64_t k, int64_t n, const T* b, int64_t stride, const float* x, float* sums) {
  constexpr int64_t most = 4096;  // columns
  if (k <= kChain) {
    const int64_t bytes = n * int64_t(sizeof(T));
    if (stride != n || bytes > kShortRow)
      return sum_some_rows < kVectorRegisters == 32 ? 12 : 8 > (k, n, b, stride, x, sums);
    if (bytes > 256) return sum_some_rows<1>(k, n, b, stride, x, sums);
    if (bytes > 128) return sum_some_rows<2>(k, n, b, stride, x, sums);
    return sum_some_rows<4>(k, n, b, stride, x, sums);
  }
  double total[most];
  for (int64_t j0 = 0; j0 < n; j0 += most) {
    const int64_t here = std::min(most, n - j0);
    std::fill_n(total, here, 0.);
    for (int64_t i = 0; i < k; i += kChain) {
      sum_rows(std::min(kChain, k - i), here, b + i * stride + j0, stride, x + i, sums + j0);
      for (int64_t j = 0; j < here; ++j) total[j] += double(sums[j0 + j]);
    }
    std::copy_n(total, here, sums + j0);
  }
}

/// gemv() for short rows: threads share them, in parts that depend on the shape alone, whose sums are added in order.
template <class T, class Take> void gemv_short_rows(Context& ctx, int64_t batch, int64_t n, int64_t k, const T* b,
                                                    int64_t b_batch, const float* x, Take&& take) {
  const int64_t part = std::clamp<int64_t>((1 << 16) / (n * int64_t(sizeof(T))), 48, kChain);
  const int64_t parts = (k + part - 1) / part;
  const int64_t grain = batch * n * k <= 1 << 17 ? batch * parts : std::max<int64_t>(1, (1 << 15) / (part * n));
  float* const sums = ctx.scratch_of<float>(batch * parts * n);
  parallel_for(batch * parts, grain, [&](int64_t first, int64_t last) {
    for (int64_t at = first; at < last; ++at) {
      const int64_t k0 = at % parts * part, of = at / parts;
      sum_rows(std::min(part, k - k0), n, b + of * b_batch + k0 * n, n, x + of * k + k0, sums + at * n);
    }
  });
  parallel_for(batch, std::max<int64_t>(1, (1 << 15) / (parts * n)), [&](int64_t first, int64_t last) {
    double total[kShortRow / sizeof(T)];
    for (int64_t at = first; at < last; ++at) {
      const float* from = sums + at * parts * n;
      std::copy_n(from, n, total);
      for (int64_t q = 1; q < parts; ++q)
        for (int64_t j = 0; j < n; ++j) total[j] += double(from[q * n + j]);
      for (int64_t j = 0; j < n; ++j) take(at, j, float(total[j]));
    }
  });
}

/// For each (batch, j): take(batch, j, sum over k of x[batch, k] b[batch, k, j]). b is contiguous along k or along j.
template <class T, class Take> void gemv(Context& ctx, int64_t batch, int64_t n, int64_t k, const T* b, int64_t b_batch,
                                         int64_t step, int64_t column, const float* x, Take&& take) {
  constexpr int64_t kWidest = 4096, kPart = 32, kLong = 1024;
  const bool by_rows = column == 1 && step != 1;
  if (by_rows && step == n && n * int64_t(sizeof(T)) <= kShortRow && n > 0 && k > 0)
    return gemv_short_rows(ctx, batch, n, k, b, b_batch, x, take);
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
