#pragma once
#include <cstdint>
#include <utility>

namespace tapir::inline v0 {

/// Philox 4x32-10: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3". Four words per counter value.
struct Philox {
  struct Block {
    uint32_t word[4];
  };
  /// The block of counter `counter` (64 bits) under key `seed`. `plane` is the third counter word: plane 0 holds an element's
  /// first word, plane 1 the second one that wide types take.
  static constexpr Block block(uint64_t seed, uint64_t counter, uint32_t plane = 0) {
    uint32_t c[4] = {uint32_t(counter), uint32_t(counter >> 32), plane, 0};
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t(0xD2511F53u) * c[0], p1 = uint64_t(0xCD9E8D57u) * c[2];
      const uint32_t n0 = uint32_t(p1 >> 32) ^ c[1] ^ k0, n2 = uint32_t(p0 >> 32) ^ c[3] ^ k1;
      c[1] = uint32_t(p1), c[3] = uint32_t(p0), c[0] = n0, c[2] = n2;
      k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return {{c[0], c[1], c[2], c[3]}};
  }
  /// [0, 1) with 24 bits.
  static constexpr float uniform(uint32_t word) { return float(word >> 8) * 0x1p-24f; }
  /// Dropout with probability p keeps elements whose word >> 8 is at least this: uniform(word) >= p, without a float; none at p = 1.
  static constexpr uint32_t drop_limit(double p) {
    const uint32_t below = uint32_t(p * 0x1p24);
    return below + (double(below) < p * 0x1p24);
  }
  /// What they are multiplied by.
  static constexpr double keep_scale(double p) { return p < 1 ? 1 / (1 - p) : 0; }
  /// [0, 1) with 53 bits; `low` is the element's word of plane 1.
  static constexpr double uniform(uint32_t word, uint32_t low) {
    return double(uint64_t(word) << 21 | low >> 11) * 0x1p-53;
  }
  /// Ranges above this take the word of plane 1 too, so that no value is more than 2^-16 more likely than another.
  static constexpr uint64_t kNarrowRange = uint64_t(1) << 16;
  /// An integer in [0, range), range <= kNarrowRange, from one word.
  static constexpr uint64_t integer(uint32_t word, uint64_t range) { return uint64_t(word) * range >> 32; }
  /// An integer in [0, range) from two words; range 0 stands for 2^64. The upper half of a 64 x 64 bit product.
  static constexpr uint64_t integer(uint32_t word, uint32_t low, uint64_t range) {
    if (range == 0) return uint64_t(word) << 32 | low;
    const uint64_t r0 = uint32_t(range), r1 = range >> 32;
    const uint64_t middle = uint64_t(word) * r0 + (uint64_t(low) * r0 >> 32),
                   other = uint64_t(low) * r1 + uint32_t(middle);
    return uint64_t(word) * r1 + (middle >> 32) + (other >> 32);
  }
};

/// Where random operations of one device take their numbers: a key and a position. A call that fills n elements takes
/// ceil(n / 4) counter values; element i is lane i mod 4 of counter offset + i / 4, on every device and thread count.
class Generator {
 public:
  constexpr explicit Generator(uint64_t seed = 0) : seed_(seed) {}
  uint64_t seed() const { return seed_; }
  uint64_t offset() const { return offset_; }
  void set_state(uint64_t seed, uint64_t offset) { seed_ = seed, offset_ = offset; }
  /// {seed, offset} for n elements; the offset moves on.
  std::pair<uint64_t, uint64_t> take(int64_t n) {
    const uint64_t at = offset_;
    offset_ += (uint64_t(n) + 3) / 4;
    return {seed_, at};
  }

 private:
  uint64_t seed_, offset_ = 0;
};

/// The generator that random operations of this thread use. Threads other than the main one start from their own key.
Generator& default_generator();
/// Restarts the default generator: the same numbers follow, on every device.
void manual_seed(uint64_t seed);

}  // namespace tapir::inline v0
