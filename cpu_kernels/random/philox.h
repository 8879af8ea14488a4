#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "../../core/generator.h"

namespace tapir::inline v0::cpu {

#if defined(__AVX512F__)
inline constexpr int64_t kCounters = 8;
#elif defined(__AVX2__)
inline constexpr int64_t kCounters = 4;
#else
inline constexpr int64_t kCounters = 2;
#endif
using Counters = uint64_t __attribute__((vector_size(8 * kCounters)));

/// The 64 bits of the product of each lane's lower half with a constant; g++ 12 makes three multiplications of it, or a slower one.
inline Counters half_product(Counters a, uint32_t b) {
  const Counters all = b + Counters{};
#if defined(__AVX512F__)
  return Counters(_mm512_maskz_mul_epu32(0xff, __m512i(a), __m512i(all)));
#elif defined(__AVX2__)
  return Counters(_mm256_mul_epu32(__m256i(a), __m256i(all)));
#elif defined(__SSE2__)
  return Counters(_mm_mul_epu32(__m128i(a), __m128i(all)));
#elif defined(__aarch64__)
  return Counters(vmull_u32(vmovn_u64(uint64x2_t(a)), vmovn_u64(uint64x2_t(all))));
#else
  return (a & 0xffffffffu) * all;
#endif
}

/// Philox's keys of each round, which stay in memory: more registers than there are would hold them.
struct RoundKeys {
  explicit RoundKeys(uint64_t seed) {
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
    for (auto& [a, b] : keys) a = k0, b = k1, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  struct {
    uint64_t a, b;
  } keys[10];
};

/// Lane j: lane index[j] of a and b together.
inline Counters chosen(Counters a, Counters b, Counters index) {
#if defined(__clang__)
  Counters y;
  for (int64_t j = 0; j < kCounters; ++j) y[j] = index[j] < kCounters ? a[index[j]] : b[index[j] - kCounters];
  return y;
#else
  return __builtin_shuffle(a, b, index);
#endif
}

/// The words of so many counters, from `counter` on. Philox::block with its four words in 64-bit lanes, whose upper halves are anything;
/// a round waits for the one before it, so four vectors go side by side.
inline constexpr int64_t kSides = 4, kWordsMade = kSides * kCounters * 4;
inline void make_words(const RoundKeys& keys, uint64_t counter, uint32_t plane, uint32_t* words) {
  constexpr uint64_t low = 0xffffffffu;
  Counters c0[kSides], c1[kSides], c2[kSides], c3[kSides], lane, first, second;
  for (int64_t j = 0; j < kCounters; ++j)
    lane[j] = uint64_t(j), first[j] = uint64_t(j / 2 + j % 2 * kCounters), second[j] = first[j] + kCounters / 2;
  for (int64_t s = 0; s < kSides; ++s) {
    c0[s] = lane + (counter + uint64_t(s * kCounters));
    c1[s] = c0[s] >> 32, c2[s] = Counters{} + plane, c3[s] = Counters{};
  }
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const auto [k0, k1] = keys.keys[round];
    for (int64_t s = 0; s < kSides; ++s) {
      const Counters p0 = half_product(c0[s], 0xD2511F53u), p1 = half_product(c2[s], 0xCD9E8D57u);
      c0[s] = (p1 >> 32) ^ c1[s] ^ k0, c2[s] = (p0 >> 32) ^ c3[s] ^ k1;
      c1[s] = p1, c3[s] = p0;
    }
  }
#pragma GCC unroll 4
  for (int64_t s = 0; s < kSides; ++s, words += 4 * kCounters) {
    const Counters a = (c0[s] & low) | c1[s] << 32, b = (c2[s] & low) | c3[s] << 32;
    const Counters x = chosen(a, b, first), y = chosen(a, b, second);
    std::memcpy(words, &x, sizeof(x)), std::memcpy(words + 2 * kCounters, &y, sizeof(y));
  }
}

/// The words of elements [first, first + count), first a multiple of 4; up to 3 words more are written.
inline void words_of(uint64_t seed, uint64_t offset, int64_t first, int64_t count, uint32_t plane, uint32_t* words) {
  const uint64_t counter = offset + uint64_t(first) / 4;
  const int64_t n = (count + 3) / 4 * 4;
  const RoundKeys keys(seed);
  for (int64_t i = 0; i < n; i += kWordsMade) {
    uint32_t rest[kWordsMade];
    const bool whole = i + kWordsMade <= n;
    make_words(keys, counter + uint64_t(i) / 4, plane, whole ? words + i : rest);
    if (!whole) std::memcpy(words + i, rest, size_t(n - i) * 4);
  }
}

}  // namespace tapir::inline v0::cpu
