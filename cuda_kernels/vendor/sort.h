#pragma once
#include <bit>
#include <cstdint>

#include "../../core/backend.h"

// The small functions before CUB. Temporary memory is the context's scratch.
namespace tapir::inline v0::cuda_kernels {

/// Keys and what belongs to them, in device memory.
template <class K, class P> struct Pairs {
  K* keys;
  P* positions;
};

/// How many bits `n` takes.
inline int bits_of(uint64_t n) { return 64 - std::countl_zero(n); }

/// Sorts n pairs by the lowest `bits` bits of their keys, ascending; equal keys keep their order. Works in both places and returns the
/// one that holds the result.
Pairs<uint32_t, uint32_t> sort_pairs(Context&, Pairs<uint32_t, uint32_t> from, Pairs<uint32_t, uint32_t> other,
                                     int64_t n, int bits);
Pairs<uint64_t, int64_t> sort_pairs(Context&, Pairs<uint64_t, int64_t> from, Pairs<uint64_t, int64_t> other, int64_t n,
                                    int bits);

}  // namespace tapir::inline v0::cuda_kernels
