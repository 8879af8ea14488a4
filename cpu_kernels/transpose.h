#pragma once
#include <cstdint>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace tapir::inline v0::cpu {

/// Elements on a side of a block, for elements of `size` bytes: a row of the block is a cache line, so that a transposition reads
/// and writes whole lines once, however the strides fall in the cache.
constexpr int64_t block_side(int64_t size) { return 64 / size; }

/// to[i][j] = from[j][i] for 4 x 4 elements of 4 bytes, in registers.
#if defined(__x86_64__)
inline constexpr bool kTransposes = true;
inline void transpose_four(float* to, int64_t to_step, const char* from, int64_t from_step) {
  __m128 r[4];
  for (int j = 0; j < 4; ++j) r[j] = _mm_loadu_ps(reinterpret_cast<const float*>(from + j * from_step));
  _MM_TRANSPOSE4_PS(r[0], r[1], r[2], r[3]);
  for (int i = 0; i < 4; ++i) _mm_storeu_ps(to + i * to_step, r[i]);
}
#elif defined(__aarch64__)
inline constexpr bool kTransposes = true;
inline void transpose_four(float* to, int64_t to_step, const char* from, int64_t from_step) {
  float32x4_t r[4];
  for (int j = 0; j < 4; ++j) r[j] = vld1q_f32(reinterpret_cast<const float*>(from + j * from_step));
  const float32x4_t s[4] = {vzip1q_f32(r[0], r[2]), vzip2q_f32(r[0], r[2]), vzip1q_f32(r[1], r[3]),
                            vzip2q_f32(r[1], r[3])};
  for (int i = 0; i < 2; ++i) {
    vst1q_f32(to + 2 * i * to_step, vzip1q_f32(s[i], s[2 + i]));
    vst1q_f32(to + (2 * i + 1) * to_step, vzip2q_f32(s[i], s[2 + i]));
  }
}
#else
inline constexpr bool kTransposes = false;
inline void transpose_four(float*, int64_t, const char*, int64_t) {}
#endif

/// The same for kSquare x kSquare elements.
#if defined(__AVX__)
inline constexpr int64_t kSquare = 8;
inline void transpose_square(float* to, int64_t to_step, const char* from, int64_t from_step) {
  __m256 r[8], s[8];
  for (int j = 0; j < 8; ++j) r[j] = _mm256_loadu_ps(reinterpret_cast<const float*>(from + j * from_step));
  for (int j = 0; j < 8; j += 2) {
    s[j] = _mm256_unpacklo_ps(r[j], r[j + 1]);
    s[j + 1] = _mm256_unpackhi_ps(r[j], r[j + 1]);
  }
  for (int j = 0; j < 8; j += 4)
    for (int h = 0; h < 2; ++h) {
      r[j + 2 * h] = _mm256_shuffle_ps(s[j + h], s[j + 2 + h], 0x44);
      r[j + 2 * h + 1] = _mm256_shuffle_ps(s[j + h], s[j + 2 + h], 0xee);
    }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i * to_step, _mm256_permute2f128_ps(r[i], r[4 + i], 0x20));
    _mm256_storeu_ps(to + (4 + i) * to_step, _mm256_permute2f128_ps(r[i], r[4 + i], 0x31));
  }
}
#else
inline constexpr int64_t kSquare = 4;
inline void transpose_square(float* to, int64_t to_step, const char* from, int64_t from_step) {
  transpose_four(to, to_step, from, from_step);
}
#endif

/// to[i * step + j] = element i of the run that starts `from_step` bytes after that of j - 1; i, j < block_side(sizeof(W)).
template <class W> void load_block(W* to, int64_t step, const char* from, int64_t from_step) {
  constexpr int64_t side = block_side(sizeof(W));
  if constexpr (kTransposes && sizeof(W) == 4) {
    for (int64_t j = 0; j < side; j += kSquare)
      for (int64_t i = 0; i < side; i += kSquare)
        transpose_square(reinterpret_cast<float*>(to) + i * step + j, step, from + j * from_step + i * 4, from_step);
    return;
  }
  for (int64_t j = 0; j < side; ++j) {
    const W* run = reinterpret_cast<const W*>(from + j * from_step);
    for (int64_t i = 0; i < side; ++i) to[i * step + j] = run[i];
  }
}

/// The same for rows x columns elements.
template <class W>
void load_part(W* to, int64_t step, const char* from, int64_t from_step, int64_t rows, int64_t columns) {
  int64_t top = 0;
  if constexpr (kTransposes && sizeof(W) == 4)
    for (; top + 4 <= rows; top += 4) {
      int64_t j = 0;
      for (; j + 4 <= columns; j += 4)
        transpose_four(reinterpret_cast<float*>(to) + top * step + j, step, from + j * from_step + top * 4, from_step);
      for (; j < columns; ++j)
        for (int64_t i = top; i < top + 4; ++i) to[i * step + j] = reinterpret_cast<const W*>(from + j * from_step)[i];
    }
  for (int64_t i = top; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) to[i * step + j] = reinterpret_cast<const W*>(from + j * from_step)[i];
}

}  // namespace tapir::inline v0::cpu
