#pragma once
#include "../launch.h"
#include "../norm/norm.h"
#include "early_launch.h"

// What kernels of products of few rows share (few_rows.cu, quant/quant_few.cu): an early beginning, and rows that are a norm's.
namespace tapir::inline v0::cuda_kernels {

inline constexpr int kMostFewRows = 8, kFewRowsThreads = 256;  // rows that a block makes; of a block
inline constexpr int64_t kMostAhead = int64_t(16)
                                      << 20;   // bytes of weights that fit into the shared cache beside others
inline constexpr size_t kMostMade = 38 << 10;  // bytes of rows in shared memory, beside the kernels' own

/// What rows are made of: norm(x + add), (m, k), neighbours along k; add, weight, bias and sum, which gets x + add, may be null. No x:
/// they lie in memory.
template <class T> struct NormedRows {
  const T *x = nullptr, *add = nullptr, *weight = nullptr, *bias = nullptr;
  T* sum = nullptr;
  int64_t x_row = 0, add_row = 0, sum_row = 0;
  float eps = 0;
  bool rms = false;
  /// Of dynamic shared memory, that make() takes.
  static size_t bytes(int64_t m, int64_t k) { return size_t(m * k) * sizeof(T) + 16; }

  /// Rows k apart in shared memory at 16 bytes, rounded where a sum and a norm by themselves round.
  __device__ const T* make(int64_t m, int64_t k) const;
};

template <class T> __device__ const T* NormedRows<T>::make(int64_t m, int64_t k) const {
  __shared__ float shared[32];
  __shared__ Two<float> both[32];
  T* const made = reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(dynamic_shared<T>()) + 15) & ~uintptr_t(15));
  const float wide = float(k);
  for (int64_t i = 0; i < m; ++i) {
    T* const row = made + i * k;
    float mean = 0;
    for (int64_t at = threadIdx.x; at < k; at += kFewRowsThreads) {
      T v = x[i * x_row + at];
      if (add) v = narrow<T>(widen(v) + widen(add[i * add_row + at]));
      if (sum && blockIdx.x == 0) sum[i * sum_row + at] = v;
      row[at] = v, mean += widen(v);
    }
    mean = rms ? 0 : block_fold(mean, 0.f, shared, Plus()) / wide;
    Two<float> sums{0, 0};
    for (int64_t at = threadIdx.x; at < k; at += kFewRowsThreads) {
      const float d = widen(row[at]) - mean;
      sums.a += d, sums.b += d * d;
    }
    sums = block_fold(sums, Two<float>{0, 0}, both, Two<float>::Join());
    if (rms) sums.a = 0;
    const float rstd = settle_mean(sums, wide, mean, eps);
    for (int64_t at = threadIdx.x; at < k; at += kFewRowsThreads) {
      const float w = weight ? widen(weight[at]) : 1, b = bias ? widen(bias[at]) : 0;
      row[at] = narrow<T>((widen(row[at]) - mean) * rstd * w + b);
    }
  }
  __syncthreads();
  return made;
}

/// The operands of a norm before a product; rows without x where they do not lie as a kernel wants them.
template <class T> NormedRows<T> normed_rows(const entry::NormMatmul& c) {
  const auto in_rows = [&](V v) { return !v.defined() || v.strides[v.rank - 1] == 1 || c.x.sizes[1] == 1; };
  if (c.x.sizes[0] > kMostFewRows || c.x.numel() == 0 || NormedRows<T>::bytes(c.x.sizes[0], c.x.sizes[1]) > kMostMade)
    return {};
  if (!in_rows(c.x) || !in_rows(c.add) || !in_rows(c.sum) || !in_rows(c.weight) || !in_rows(c.norm_bias)) return {};
  return {c.x.as<T>(),    c.add.as<T>(),    c.weight.as<T>(), c.norm_bias.as<T>(), c.sum.as<T>(),
          c.x.strides[0], c.add.strides[0], c.sum.strides[0], float(c.params.eps), c.params.op == NormOp::Rms};
}

/// Where each block makes a norm's rows, blocks go on to other columns rather than being many: so many at most.
inline unsigned most_blocks(Device device) { return unsigned(4 * multiprocessors(device)); }

/// The kernel begins: `count` runs of `length` neighbours, `stride` apart, come near, the first part of a block's weights, in the first
/// `ahead` blocks. Then the kernels before are waited for.
template <class T>
__device__ void begin_early(unsigned ahead, const T* from, int64_t stride, int64_t count, int64_t length) {
  constexpr int64_t kRun = 32 / sizeof(T);
  const int64_t pieces = (length + kRun - 1) / kRun;
  let_next_begin();
  if (blockIdx.x < ahead)
    for (int64_t i = threadIdx.x; i < count * pieces; i += kFewRowsThreads)
      fetch_ahead(from + i / pieces * stride + i % pieces * kRun);
  wait_for_previous();
}

}  // namespace tapir::inline v0::cuda_kernels
