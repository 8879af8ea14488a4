#pragma once
#include "../../core/convert.h"
#include "../../core/formulas/binary.h"
#include "../../core/formulas/ternary.h"
#include "../../core/formulas/unary.h"
#include "../../core/generator.h"
#include "../divider.h"
#include "../kernel.h"

// Note [Generated kernels]
// What the text that fused_source.cpp writes is made of. With all it includes it is read by nvcc, g++ and NVRTC; for the latter the
// files are joined into one text, behind fused_std.h in place of the standard library.
namespace tapir::inline v0::cuda_kernels {

/// An argument word as a number of type T.
template <class T> __device__ __forceinline__ T number_of(uint64_t word) {
  if constexpr (std::is_same_v<T, double>) return std::bit_cast<double>(word);
  else if constexpr (std::is_same_v<T, float>) return std::bit_cast<float>(uint32_t(word));
  else if constexpr (is_half<T>) return std::bit_cast<T>(uint16_t(word));
  else return T(word);
}

/// What copy() makes of an element in another dtype.
template <class To, class From> __device__ __forceinline__ To converted(From v) {
  if constexpr (std::is_same_v<To, From>) return v;
  else return narrow<To>(cast<Compute<To>>(widen(v)));
}

/// One coordinate: `rest` becomes what is left for the outer dimensions. A word holds size and magic number, the next one the shift.
__device__ __forceinline__ uint32_t coordinate(uint32_t& rest, uint64_t word, uint64_t shift) {
  Divider d;
  d.d = uint32_t(word), d.magic = uint32_t(word >> 32), d.shift = uint32_t(shift);
  const uint32_t next = d.quotient(rest), at = rest - next * d.d;
  rest = next;
  return at;
}
__device__ __forceinline__ int64_t coordinate(int64_t& rest, uint64_t word, uint64_t) {
  const int64_t next = rest / int64_t(word), at = rest - next * int64_t(word);
  rest = next;
  return at;
}

/// How many of W are left.
__device__ __forceinline__ int first_of(int64_t left, int w) { return left < w ? int(left) : w; }
/// W neighbours, `step` apart, of which the first `count` exist.
template <int W, class T>
__device__ __forceinline__ void load_neighbours(const T* p, int64_t step, int count, T (&x)[W]) {
#pragma unroll
  for (int j = 0; j < W; ++j) x[j] = j < count ? p[j * step] : T();
}
template <int W, class T>
__device__ __forceinline__ void store_neighbours(T* p, int64_t step, int count, const T (&x)[W]) {
#pragma unroll
  for (int j = 0; j < W; ++j)
    if (j < count) p[j * step] = x[j];
}
/// The same for neighbours without gaps that lie at a multiple of a pack of 16 bytes, or of all of them where they take less.
template <int W, class T> __device__ __forceinline__ void load_packs(const T* p, int count, T (&x)[W]) {
  constexpr int width = W < kPackSize<T> ? W : kPackSize<T>;
  if (count < W) return load_neighbours(p, 1, count, x);
#pragma unroll
  for (int k = 0; k < W; k += width) {
    const Pack<T, width> pack = *reinterpret_cast<const Pack<T, width>*>(p + k);
#pragma unroll
    for (int j = 0; j < width; ++j) x[k + j] = pack.of[j];
  }
}
template <int W, class T> __device__ __forceinline__ void store_packs(T* p, int count, const T (&x)[W]) {
  constexpr int width = W < kPackSize<T> ? W : kPackSize<T>;
  if (count < W) return store_neighbours(p, 1, count, x);
#pragma unroll
  for (int k = 0; k < W; k += width) {
    Pack<T, width> pack;
#pragma unroll
    for (int j = 0; j < width; ++j) pack.of[j] = x[k + j];
    *reinterpret_cast<Pack<T, width>*>(p + k) = pack;
  }
}

/// The words of elements i to i + W of a call that draws: lane i mod 4 of counter offset + i / 4.
template <int W> __device__ __forceinline__ void draw(uint64_t seed, uint64_t offset, int64_t i, uint32_t (&words)[W]) {
  if constexpr (W % 4 == 0) {
#pragma unroll
    for (int k = 0; k < W; k += 4) {
      const Philox::Block block = Philox::block(seed, offset + uint64_t(i + k) / 4);
#pragma unroll
      for (int j = 0; j < 4; ++j) words[k + j] = block.word[j];
    }
  } else {
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const Philox::Block block = Philox::block(seed, offset + uint64_t(i + k) / 4);
      const int lane = int((i + k) % 4);
      words[k] = lane == 0 ? block.word[0] : lane == 1 ? block.word[1] : lane == 2 ? block.word[2] : block.word[3];
    }
  }
}

/// Reductions of a row: `start` is what nothing gives.
template <class T> struct RowSum {
  static constexpr T start() { return T(0); }
  __device__ T operator()(T a, T b) const { return wrap_add(a, b); }
};
template <class T> struct RowMax {
  static constexpr T start() {
    if constexpr (std::is_floating_point_v<T>) return -std::numeric_limits<T>::infinity();
    else return std::numeric_limits<T>::min();
  }
  __device__ T operator()(T a, T b) const { return Larger()(a, b); }
};
/// Over the threads of a warp or block that share a row.
template <bool kBlock, class T, class Op> __device__ __forceinline__ T row_fold(T v, Op op) {
  using Word = std::conditional_t<sizeof(T) == 8 || std::is_floating_point_v<T>, T, int32_t>;  // what shuffles take
  const auto join = [op](Word a, Word b) { return Word(op(T(a), T(b))); };
  if constexpr (kBlock) {
    __shared__ Word shared[32];
    return T(block_fold(Word(v), Word(Op::start()), shared, join));
  } else {
    return T(warp_fold(Word(v), join));
  }
}

}  // namespace tapir::inline v0::cuda_kernels
