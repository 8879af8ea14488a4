#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "../../../core/dtype.h"

// What a warp does with matrices, by the instructions of tensor cores (PTX ISA 8, "Warp Level Matrix Instructions"): compute capability 8.0 and
// later; integers, what loads them and copies: 7.5. Lane l has the numbers g = l / 4 and t = l % 4. tests/cuda_emulation/include has the same functions for the host.
namespace tapir::inline v0::cuda_kernels {

/// Four 8 x 8 matrices of 16-bit elements from shared memory. Lane 8 m + r names the 16 bytes that are row r of matrix m. Register m becomes
/// elements 2 t and 2 t + 1 of the matrix's row g; of its column g where it is transposed.
template <bool kTransposed> __device__ __forceinline__ void load_matrices(uint32_t (&to)[4], const void* row) {
#if __CUDA_ARCH__ >= 750
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
#else
  __trap();
#endif
}

/// A float32 number whose products are those of tensor cores: of its fraction they take 10 bits.
struct Tf32 {
  float value = 0;
  Tf32() = default;
  __device__ explicit Tf32(float x) : value(x) {}
  __device__ operator float() const { return value; }
};
/// x rounded so.
__device__ __forceinline__ uint32_t tf32_of(float x) {
  uint32_t bits = 0;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
#else
  __trap();
#endif
  return bits;
}

/// d += a b, for a (16, 16), b (16, 8), d (16, 8). Pairs of neighbours: a has columns 2 t of rows g and g + 8, then columns 2 t + 8 of these; b
/// has rows 2 t and 2 t + 8 of column g; d has columns 2 t and 2 t + 1 of row g, then of row g + 8. Of Tf32, a (16, 8) and b (8, 8): a has column t of rows g and
/// g + 8, then column t + 4 of these; b has rows t and t + 4 of column g; all are rounded.
template <class T>
__device__ __forceinline__ void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, Half>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else if constexpr (std::is_same_v<T, Tf32>)
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  __trap();
#endif
}

/// d += a b in integers, for a (16, 32), b (32, 8), d (16, 8). Four neighbours: a has columns 4 t of rows g and g + 8, then columns 4 t + 16 of
/// these; b has rows 4 t and 4 t + 16 of column g; d as above.
__device__ __forceinline__ void multiply_add(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif __CUDA_ARCH__ >= 750
  const auto quarter = [](int32_t& first, int32_t& second, uint32_t left, uint32_t right) {
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+r"(first), "+r"(second)
                 : "r"(left), "r"(right));
  };
  quarter(d[0], d[1], a[0], b0), quarter(d[0], d[1], a[2], b1);
  quarter(d[2], d[3], a[1], b0), quarter(d[2], d[3], a[3], b1);
#else
  __trap();
#endif
}

/// 16 bytes from device to shared memory, both at multiples of 16, zeros where not `inside`: they are there after a commit, a wait (CUDA's
/// __pipeline_commit, __pipeline_wait_prior) and a barrier.
__device__ __forceinline__ void copy_async(void* to, const void* from, bool inside) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))), "l"(__cvta_generic_to_global(from)),
                 "r"(inside ? 16 : 0)
               : "memory");
#else
  *static_cast<uint4*>(to) = inside ? *static_cast<const uint4*>(from) : uint4{};
#endif
}

/// The thread's number. What is made of it is made where this stands: not before a loop, where addresses of a large tile would take the registers
/// that the loop needs.
__device__ __forceinline__ int thread_here() {
  int x = int(threadIdx.x);
  asm volatile("" : "+r"(x));
  return x;
}

/// 2^x within 2 ulp; results and operands below 2^-126 are 0.
__device__ __forceinline__ float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Two numbers as neighbours, `first` at the lower address.
template <class T> __device__ __forceinline__ uint32_t pair_of(float first, float second) {
  uint32_t pair = 0;
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, Half>) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
#else
  __trap();
#endif
  return pair;
}

}  // namespace tapir::inline v0::cuda_kernels
