#pragma once
#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif
#endif

#include <cstdint>
#include <cstring>

#include "../core/dtype.h"
#include "../core/math.h"
#include "runtime/late_error.h"

// What device code shares: shared memory, folds over warps and blocks, bad values, 16-byte packs.
namespace tapir::inline v0::cuda_kernels {

extern __shared__ unsigned char dynamic_shared_bytes[];  // one name for all kernels, whatever type they keep in it
template <class T> __device__ T* dynamic_shared() { return reinterpret_cast<T*>(dynamic_shared_bytes); }

/// What arithmetic on T computes in: float for 16-bit floats.
template <class T> struct ComputeOf { using type = T; };
template <> struct ComputeOf<Half> { using type = float; };
template <> struct ComputeOf<BFloat16> { using type = float; };
template <class T> using Compute = typename ComputeOf<T>::type;

/// What sums of products of T are made in. Integers wrap: the low bits do not depend on how far operands were extended.
template <class T> struct ProductSumOf { using type = uint32_t; };
template <> struct ProductSumOf<uint64_t> { using type = uint64_t; };
template <> struct ProductSumOf<float> { using type = float; };
template <> struct ProductSumOf<Half> { using type = float; };
template <> struct ProductSumOf<BFloat16> { using type = float; };
template <> struct ProductSumOf<double> { using type = double; };

#ifdef __CUDACC_RTC__  // Note [Generated kernels]: no header of CUDA's is there, so the instructions themselves
__device__ __forceinline__ float widen(Half v) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v.bits));
  return f;
}
__device__ __forceinline__ float widen(BFloat16 v) { return float(v); }
template <class T> __device__ __forceinline__ T widen(T v) { return v; }
template <class T> __device__ __forceinline__ T narrow(Compute<T> v) {
  if constexpr (std::is_same_v<T, Half>) {
    T result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(v));
    return result;
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    T result;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(v));
#else
    result = T(v);
#endif
    return result;
  } else {
    return v;
  }
}
#else
/// An element as what it is computed in, and back: the 16-bit floats by the instructions that a GPU has for them.
template <class T> __device__ __forceinline__ Compute<T> widen(T v) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<T, Half>) return __half2float(__ushort_as_half(v.bits));
#endif
  return Compute<T>(v);
}
template <class T> __device__ __forceinline__ T narrow(Compute<T> v) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<T, Half>) {
    T result;
    return result.bits = __half_as_ushort(__float2half_rn(v)), result;
  }
  if constexpr (std::is_same_v<T, BFloat16>) {
    T result;
    return result.bits = __bfloat16_as_ushort(__float2bfloat16_rn(v)), result;
  }
#endif
  return T(v);
}
#endif

/// A grid-stride loop, for (const int64_t i : grid_stride(n)): this thread's numbers below n, which all threads of the grid share. With a
/// width it is the first of so many neighbours.
struct GridStride {
  struct Iterator {
    int64_t i, step;
    __device__ __forceinline__ int64_t operator*() const { return i; }
    __device__ __forceinline__ void operator++() { i += step; }
    __device__ __forceinline__ bool operator!=(int64_t end) const { return i < end; }
  };
  int64_t n;
  int width;
  __device__ __forceinline__ Iterator begin() const {
    return {(int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * width, int64_t(gridDim.x) * blockDim.x * width};
  }
  __device__ __forceinline__ int64_t end() const { return n; }
};
__device__ __forceinline__ GridStride grid_stride(int64_t n, int width = 1) { return {n, width}; }

/// N neighbours that one load or store of up to 16 bytes moves.
template <class T, int N> struct alignas(sizeof(T) * N) Pack { T of[N]; };
template <class T> inline constexpr int kPackSize = int(16 / sizeof(T));

// ---- folds: op(a, b) is associative; the order is fixed, so results are the same in every run ----
/// A number, or a struct of several, through a shuffle of words: f(word).
template <class T, class F> __device__ __forceinline__ T shuffled(T v, F&& f) {
  if constexpr (std::is_arithmetic_v<T>) {
    return f(v);
  } else {
    static_assert(sizeof(T) % 4 == 0 && std::is_trivially_copyable_v<T>);
    unsigned words[sizeof(T) / 4];
    memcpy(words, &v, sizeof(T));
    for (unsigned& word : words) word = f(word);
    memcpy(&v, words, sizeof(T));
    return v;
  }
}
/// What the lane whose number differs in these bits holds; what the lane `d` below holds.
template <class T> __device__ T shuffle_xor(T v, int bits) {
  return shuffled(v, [bits](auto word) { return __shfl_xor_sync(0xffffffffu, word, bits); });
}
template <class T> __device__ T shuffle_up(T v, unsigned d) {
  return shuffled(v, [d](auto word) { return __shfl_up_sync(0xffffffffu, word, d); });
}
template <class T, class Op> __device__ T warp_fold(T v, Op op, int lanes = 32) {
  for (int d = lanes / 2; d > 0; d /= 2) v = op(v, shuffle_xor(v, d));
  return v;
}
/// Over all threads of a block (a multiple of 32, at most 1024); every thread gets the result. `shared` holds 32 values.
template <class T, class Op> __device__ T block_fold(T v, T identity, T* shared, Op op) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  v = warp_fold(v, op);
  if (lane == 0) shared[warp] = v;
  __syncthreads();
  v = warp_fold(lane < warps ? shared[lane] : identity, op);
  __syncthreads();  // `shared` may be used again
  return v;
}
struct Plus {
  template <class T> TAPIR_HD T operator()(T a, T b) const { return a + b; }
};
/// The larger one; NaN wins.
struct Larger {
  template <class T> TAPIR_HD T operator()(T a, T b) const { return a > b || a != a ? a : b; }
};
struct Smaller {
  template <class T> TAPIR_HD T operator()(T a, T b) const { return a < b || a != a ? a : b; }
};

// ---- bad values: written where the host looks after the next wait ----
/// Keeps the bad value of the lowest position. The kernel goes on, with a harmless value of its own choice.
__device__ inline void report_bad_value(LateError* error, int64_t position, int64_t value, int64_t bound) {
  volatile LateError* const place = error;  // of all threads: no cache may answer
  for (bool done = false; !done;) {
    if (atomicCAS(&error->lock, 0, 1) != 0) continue;
    __threadfence();
    if (!place->set || static_cast<unsigned long long>(position) < place->position) {
      place->position = static_cast<unsigned long long>(position);
      place->value = value;
      place->bound = bound;
      place->set = 1;
      *static_cast<volatile int*>(place->any) = 1;
    }
    __threadfence();
    atomicExch(&error->lock, 0);
    done = true;
  }
}

}  // namespace tapir::inline v0::cuda_kernels
