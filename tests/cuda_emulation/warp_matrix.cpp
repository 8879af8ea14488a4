// What lanes bring to an operation on matrices is shown by address: their stacks stand still meanwhile.
#include "include/warp_matrix.h"

#include <bit>

#include "count.h"
#include "fibers.h"

namespace cuda_emulation {
namespace {
template <class S> const S& shown(uint64_t value) { return *reinterpret_cast<const S*>(value); }
template <class S> S& own(uint64_t value) { return *reinterpret_cast<S*>(value); }

struct Rows {
  const void* row;
  const uint32_t* words[4];
};
struct Words {
  uint32_t of[4], turned[4];
};
struct Factors {
  const float *a, *b;
  float* d;
};
struct IntFactors {
  const uint32_t *a, *b;
  int32_t* d;
};
}  // namespace

void place_matrices(const uint32_t* (&words)[4], const void* row, const Site& site) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0)
    fail("a row of a matrix at no multiple of 16 bytes, at " + line(site));
  Rows rows{row, {}};
  const auto place = [](const uint64_t(&values)[32], unsigned, unsigned lane, uint64_t mine) {
    for (unsigned m = 0; m < 4; ++m)
      own<Rows>(mine).words[m] = static_cast<const uint32_t*>(shown<Rows>(values[8 * m + lane / 4]).row) + lane % 4;
    return mine;
  };
  cuda_emulation::exchange(~0u, reinterpret_cast<uint64_t>(&rows), 0, place, false, site);
  std::memcpy(words, rows.words, sizeof rows.words);
}

void transpose_matrices(uint32_t (&words)[4], const Site& site) {
  if (counting()) return;
  Words w{};
  std::memcpy(w.of, words, sizeof words);
  const auto turn = [](const uint64_t(&values)[32], unsigned, unsigned lane, uint64_t mine) {
    const unsigned g = lane / 4, t = lane % 4;
    for (unsigned m = 0; m < 4; ++m) {
      const auto at = [&](unsigned row) {  // of column g
        return shown<Words>(values[4 * row + g / 2]).of[m] >> g % 2 * 16 & 0xffff;
      };
      own<Words>(mine).turned[m] = at(2 * t) | at(2 * t + 1) << 16;
    }
    return mine;
  };
  cuda_emulation::exchange(~0u, reinterpret_cast<uint64_t>(&w), 0, turn, false, site);
  std::memcpy(words, w.turned, sizeof words);
}

void multiply_add(float (&d)[4], const float (&a)[8], const float (&b)[4], const Site& site) {
  if (counting()) return lane_id() == 0 ? count_operations(2 * 16 * 8 * 16) : void();
  Factors f{a, b, d};
  const auto multiply = [](const uint64_t(&values)[32], unsigned, unsigned lane, uint64_t mine) {
    const unsigned g = lane / 4, t = lane % 4;
    for (unsigned i = 0; i < 4; ++i) {
      float sum = own<Factors>(mine).d[i];
      for (unsigned from = 0; from < 4; ++from) {
        const float* const left = shown<Factors>(values[4 * g + from]).a + 2 * (i / 2);
        const float* const right = shown<Factors>(values[4 * (2 * t + i % 2) + from]).b;
        sum += left[0] * right[0] + left[1] * right[1] + left[4] * right[2] + left[5] * right[3];
      }
      own<Factors>(mine).d[i] = sum;
    }
    return mine;
  };
  cuda_emulation::exchange(~0u, reinterpret_cast<uint64_t>(&f), 0, multiply, false, site);
}

void multiply_add(float (&d)[4], const float (&a)[4], const float (&b)[2], const Site& site) {
  if (counting()) return lane_id() == 0 ? count_operations(2 * 16 * 8 * 16) : void();  // half the rate of 16 bits
  const auto is_rounded = [](float x) { return (std::bit_cast<uint32_t>(x) & 0x1fffu) == 0; };
  for (const float x : a)
    if (!is_rounded(x)) fail("a number of tensor cores' TF32 that was not rounded to it, at " + line(site));
  for (const float x : b)
    if (!is_rounded(x)) fail("a number of tensor cores' TF32 that was not rounded to it, at " + line(site));
  Factors f{a, b, d};
  const auto multiply = [](const uint64_t(&values)[32], unsigned, unsigned lane, uint64_t mine) {
    const unsigned g = lane / 4, t = lane % 4;
    for (unsigned i = 0; i < 4; ++i)
      for (unsigned from = 0; from < 4; ++from)
        for (unsigned half = 0; half < 2; ++half)
          own<Factors>(mine).d[i] += shown<Factors>(values[4 * g + from]).a[i / 2 + 2 * half] *
                                     shown<Factors>(values[4 * (2 * t + i % 2) + from]).b[half];
    return mine;
  };
  cuda_emulation::exchange(~0u, reinterpret_cast<uint64_t>(&f), 0, multiply, false, site);
}

void multiply_add(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const Site& site) {
  if (counting()) return lane_id() == 0 ? count_operations(2 * 16 * 8 * 16) : void();  // twice the rate of 16 bits
  IntFactors f{a, b, d};
  const auto multiply = [](const uint64_t(&values)[32], unsigned, unsigned lane, uint64_t mine) {
    const unsigned g = lane / 4, t = lane % 4;
    for (unsigned i = 0; i < 4; ++i)
      for (unsigned from = 0; from < 4; ++from)
        for (unsigned half = 0; half < 2; ++half) {
          const uint32_t left = shown<IntFactors>(values[4 * g + from]).a[i / 2 + 2 * half],
                         right = shown<IntFactors>(values[4 * (2 * t + i % 2) + from]).b[half];
          own<IntFactors>(mine).d[i] = __dp4a(int(left), int(right), own<IntFactors>(mine).d[i]);
        }
    return mine;
  };
  cuda_emulation::exchange(~0u, reinterpret_cast<uint64_t>(&f), 0, multiply, false, site);
}
}  // namespace cuda_emulation
