#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "vec.h"

// Note [Long sums]
// Each addition to a float32 sum rounds it: of 10^6 terms of 0.1, one chain of additions loses 1 %. So a long sum is made of parts, of at
// most kChain terms a lane, which are added in double. In 16 bits a sum is soon too large for its terms (1000 terms of 0.1 give 32 in bfloat16):
// all additions to one place are made in double and rounded once (index/places.h).
namespace tapir::inline v0::cpu {

inline constexpr int64_t kChain = 256;

/// A sum over [0, n), in float32 in parts of `size` terms, which are added in double: part(first, last).
template <class Part> double sum_of_parts(int64_t n, int64_t size, Part&& part) {
  double sum = 0;
  for (int64_t i = 0; i < n; i += size) sum += double(part(i, std::min(i + size, n)));
  return sum;
}

/// Sums of `width` neighbouring columns of `size` rows. The caller adds each row to `sum` and says so. Integers wrap: no parts.
template <class C, int64_t kMost> class ColumnSums {
 public:
  ColumnSums(int64_t width, int64_t size) : width_(width), size_(size) {
    std::fill_n(sum, width, C(0));
    if (has_parts()) std::fill_n(total_, width, 0.);
  }
  /// Row k has been added; after the last one, `sum` holds the sums.
  void end_row(int64_t k) {
    if (!has_parts() || (k % kTerms != kTerms - 1 && k != size_ - 1)) return;
    for (int64_t j = 0; j < width_; ++j) total_[j] += double(sum[j]), sum[j] = 0;
    if (k == size_ - 1) std::copy_n(total_, width_, sum);
  }
  alignas(64) C sum[kMost];

 private:
  static constexpr int64_t kTerms = 32;  // rows of a part: its end costs as much as two of them
  bool has_parts() const { return std::is_floating_point_v<C> && size_ > kTerms; }
  int64_t width_, size_;
  alignas(64) double total_[kMost];
};

}  // namespace tapir::inline v0::cpu
