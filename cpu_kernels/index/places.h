#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

#include "../../core/backend.h"

namespace tapir::inline v0::cpu {

/// A table of at most so many times the elements that are added is copied to wide numbers, which takes less time than to look up each place.
inline constexpr int64_t kCopiedTable = 16;

/// The different places that some positions name, numbered in the order of their first appearance: offsets in a hash table of scratch memory.
class Places {
 public:
  Places(Context& ctx, int64_t positions)
      : mask_(int64_t(std::bit_ceil(uint64_t(2 * positions))) - 1), slots_(ctx.scratch_of<int64_t>(mask_ + 1)),
        places_(ctx.scratch_of<Place>(positions)) {
    std::fill_n(slots_, mask_ + 1, int64_t(-1));
  }
  /// The number of the place at `offset`, which is met once more.
  int64_t meet(int64_t offset) {
    uint64_t mixed = uint64_t(offset) * 0x9e3779b97f4a7c15;  // equal steps must not meet in few slots
    mixed = (mixed ^ mixed >> 32) * 0xd6e8feb86659fd93;
    int64_t slot = int64_t(mixed >> 32 ^ mixed << 31) & mask_;
    while (slots_[slot] >= 0 && places_[slots_[slot]].offset != offset) slot = (slot + 1) & mask_;
    if (slots_[slot] < 0) slots_[slot] = size_, places_[size_++] = {offset, 0};
    ++places_[slots_[slot]].times;
    return slots_[slot];
  }
  int64_t size() const { return size_; }
  int64_t offset(int64_t place) const { return places_[place].offset; }
  int64_t times(int64_t place) const { return places_[place].times; }

 private:
  struct Place {
    int64_t offset, times;
  };
  int64_t mask_, size_ = 0;
  int64_t* slots_;
  Place* places_;
};

}  // namespace tapir::inline v0::cpu
