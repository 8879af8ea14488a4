// A stand-in for cuda_kernels/vendor/ptx/warp_matrix.h, whose functions are PTX: what the lanes of a warp bring is joined by warp_matrix.cpp.
#pragma once
#include <cuda_pipeline_primitives.h>
#include <cuda_runtime.h>
#include <sm_61_intrinsics.h>

#include <bit>
#include <cmath>

#include "../../../core/dtype.h"

namespace cuda_emulation {
#pragma GCC visibility push(hidden)
/// The four words that the lane reads.
void place_matrices(const uint32_t* (&words)[4], const void* row, const Site& site);
/// The words of all lanes that read so, turned round.
void transpose_matrices(uint32_t (&words)[4], const Site& site);
/// a and b as numbers, in the order of the registers.
void multiply_add(float (&d)[4], const float (&a)[8], const float (&b)[4], const Site& site);
/// Of TF32, a (16, 8) and b (8, 8); a number that is none of TF32's is a fault.
void multiply_add(float (&d)[4], const float (&a)[4], const float (&b)[2], const Site& site);
/// Four numbers of 8 bits in a word.
void multiply_add(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const Site& site);
#pragma GCC visibility pop
}  // namespace cuda_emulation

namespace tapir::inline v0::cuda_kernels {

template <bool kTransposed> void load_matrices(uint32_t (&to)[4], const void* row,
                                               const cuda_emulation::Site& site = cuda_emulation::Site::current()) {
  const uint32_t* words[4];
  cuda_emulation::place_matrices(words, row, site);
  for (int i = 0; i < 4; ++i) to[i] = *words[i];
  if constexpr (kTransposed) cuda_emulation::transpose_matrices(to, site);
}

struct Tf32 {
  float value = 0;
  Tf32() = default;
  explicit Tf32(float x) : value(x) {}
  operator float() const { return value; }
};
/// To nearest, ties away from zero.
inline uint32_t tf32_of(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return std::isnan(x) ? 0x7fc00000u : std::isinf(x) ? bits : (bits + 0x1000u) & ~0x1fffu;
}

template <class T> void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                     const cuda_emulation::Site& site = cuda_emulation::Site::current()) {
  if constexpr (std::is_same_v<T, Tf32>) {
    const auto number = [](uint32_t bits) { return std::bit_cast<float>(bits); };
    const float left[4] = {number(a[0]), number(a[1]), number(a[2]), number(a[3])}, right[2] = {number(b0), number(b1)};
    cuda_emulation::multiply_add(d, left, right, site);
  } else {
    const auto half = [](uint32_t pair, int which) {
      T x;
      x.bits = uint16_t(which ? pair >> 16 : pair);
      return float(x);
    };
    const float left[8] = {half(a[0], 0), half(a[0], 1), half(a[1], 0), half(a[1], 1),
                           half(a[2], 0), half(a[2], 1), half(a[3], 0), half(a[3], 1)},
                right[4] = {half(b0, 0), half(b0, 1), half(b1, 0), half(b1, 1)};
    cuda_emulation::multiply_add(d, left, right, site);
  }
}

inline void multiply_add(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                         const cuda_emulation::Site& site = cuda_emulation::Site::current()) {
  const uint32_t right[2] = {b0, b1};
  cuda_emulation::multiply_add(d, a, right, site);
}

inline void copy_async(void* to, const void* from, bool inside) {
  __pipeline_memcpy_async(to, from, 16, inside ? 0 : 16);
}
inline int thread_here() { return int(threadIdx.x); }
inline float power_of_2(float x) {
  const float y = std::exp2(x);
  return std::fabs(y) < 0x1p-126f ? 0 : y;
}
template <class T> uint32_t pair_of(float first, float second) {
  return uint32_t(T(first).bits) | uint32_t(T(second).bits) << 16;
}

}  // namespace tapir::inline v0::cuda_kernels
