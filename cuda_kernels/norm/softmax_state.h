#pragma once
#include <limits>

#include "../exponential.h"

namespace tapir::inline v0::cuda_kernels {

/// The largest element of a part and the sum of e^(x - most). Milakov and Gimelshein 2018, arXiv 1805.02867.
template <class C> struct ExpSum {
  C most, sum;

  static __device__ ExpSum nothing() { return {std::numeric_limits<C>::lowest(), C(0)}; }
  template <int W> __device__ __forceinline__ void add(const C (&x)[W]) {
    C top = most;
#pragma unroll
    for (int i = 0; i < W; ++i) top = x[i] > top ? x[i] : top;
    if (top > most) sum *= exponential(most - top), most = top;
#pragma unroll
    for (int i = 0; i < W; ++i) sum += exponential(x[i] - most);  // an infinite top makes it a NaN
  }
  struct Join {
    __device__ ExpSum operator()(ExpSum a, ExpSum b) const {
      const C top = a.most > b.most ? a.most : b.most;
      return {top, a.sum * exponential(a.most - top) + b.sum * exponential(b.most - top)};
    }
  };
  /// ln of the sum of e^(x - most); NaN where all x are -inf.
  __device__ C log_rest() const { return sum == C(0) ? std::numeric_limits<C>::quiet_NaN() : math::log(sum); }
};

/// The folds of v[k] over threadIdx.y, for each threadIdx.x. `shared` holds V values for each thread of the block.
template <int V, class T, class Op> __device__ __forceinline__ void column_fold(T (&v)[V], T* shared, Op op) {
  const unsigned threads = blockDim.x * blockDim.y;
  T* const mine = shared + threadIdx.y * blockDim.x + threadIdx.x;
  for (int k = 0; k < V; ++k) mine[k * threads] = v[k];
  __syncthreads();
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    if (threadIdx.y < half)
      for (int k = 0; k < V; ++k) mine[k * threads] = op(mine[k * threads], mine[k * threads + half * blockDim.x]);
    __syncthreads();
  }
  for (int k = 0; k < V; ++k) v[k] = shared[k * threads + threadIdx.x];
  __syncthreads();
}
template <class T, class Op> __device__ T column_fold(T v, T* shared, Op op) {
  T one[1] = {v};
  column_fold(one, shared, op);
  return one[0];
}

}  // namespace tapir::inline v0::cuda_kernels
