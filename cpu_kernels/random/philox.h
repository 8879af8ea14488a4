#pragma once
#include <cstdint>

#include "../../core/generator.h"

namespace tapir::inline v0::cpu {

/// The words of elements [first, first + count), first a multiple of 4; up to 3 words more are written. `words` is aligned to 8.
/// Philox::block for many counters: its four words stand in 64-bit lanes here, whose products vectorise.
inline void words_of(uint64_t seed, uint64_t offset, int64_t first, int64_t count, uint32_t plane, uint32_t* words) {
  using Pair [[gnu::may_alias]] = uint64_t;
  Pair* const pairs = reinterpret_cast<Pair*>(words);
  const uint64_t counter = offset + uint64_t(first) / 4;
  const int64_t blocks = (count + 3) / 4;
#pragma omp simd
  for (int64_t i = 0; i < blocks; ++i) {
    constexpr uint64_t low = 0xffffffffu;
    const uint64_t at = counter + uint64_t(i);
    uint64_t c0 = at & low, c1 = at >> 32, c2 = plane, c3 = 0;
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = c0 * 0xD2511F53u, p1 = c2 * 0xCD9E8D57u;
      c0 = (p1 >> 32) ^ c1 ^ k0, c2 = (p0 >> 32) ^ c3 ^ k1;
      c1 = p1 & low, c3 = p0 & low;
      k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    pairs[2 * i] = c0 | c1 << 32, pairs[2 * i + 1] = c2 | c3 << 32;
  }
}

}  // namespace tapir::inline v0::cpu
