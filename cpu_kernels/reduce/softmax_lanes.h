#pragma once
#include <limits>

#include "../../core/math.h"
#include "../long_sums.h"
#include "../moments.h"
#include "../pieces.h"
#include "lanes.h"

// Note [Lanes]
// Softmax and cross entropy work on lanes: the elements along one dimension. There are two ways through memory. A long lane is
// taken by itself: read where it lies, or brought into a buffer if it has to be converted or gathered. Neighbouring lanes that lie
// side by side, or that are too short to fill a vector, are taken together, kTileWidth at most: the inner loop runs across them.
namespace tapir::inline v0::cpu {

inline constexpr int64_t kTileWidth = 256;   // lanes
inline constexpr int64_t kShortLane = 32;    // elements
inline constexpr int64_t kLaneGrain = 4096;  // elements: some 4 us of exp()

/// Lanes of a tile of which each element takes `bytes`: as many as fit well in the L2 cache.
inline int64_t tile_width(int64_t size, int64_t bytes) {
  return std::clamp<int64_t>(131072 / bytes / std::max<int64_t>(1, size) / 16 * 16, 16, kTileWidth);
}

/// The largest of n elements; NaN does not count.
template <class C> C top_of(const C* x, int64_t n) {
  C top = -std::numeric_limits<C>::infinity();
#pragma omp simd reduction(max : top)
  for (int64_t i = 0; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

/// The sum of e^(x - top) of n elements, kStep of them side by side (Note [Long sums]); keep(i, count, e) takes those from the i-th on. Those behind the n-th
/// are e^-inf: the rest of a lane is a vector too.
template <class C, class Keep> double sum_exponentials(const C* x, int64_t n, C top, Keep&& keep) {
  constexpr int64_t kStep = 16;
  return sum_of_parts(n, 16 * kStep, [&](int64_t i, int64_t last) {
    C sum[kStep] = {}, e[kStep];
    for (; i + kStep <= last; i += kStep) {
#pragma omp simd
      for (int64_t j = 0; j < kStep; ++j) e[j] = math::exp(x[i + j] - top), sum[j] += e[j];
      keep(i, kStep, e);
    }
    if (i < last) {
      for (int64_t j = 0; j < kStep; ++j) e[j] = i + j < last ? x[i + j] - top : -std::numeric_limits<C>::infinity();
#pragma omp simd
      for (int64_t j = 0; j < kStep; ++j) e[j] = math::exp(e[j]), sum[j] += e[j];
      keep(i, last - i, e);
    }
    return join_lanes(sum, kStep, [](C a, C b) { return a + b; });
  });
}

/// Calls f(buffer, position, count, offsets) in parallel for the rows of `walk`; each thread's buffer holds `elements` of C.
template <class C, int K, class F>
void for_lanes(Context& ctx, const Walk<K>& walk, int64_t size, int64_t elements, F&& f) {
  const int64_t grain = std::max<int64_t>(1, kLaneGrain / std::max<int64_t>(1, size)), total = walk.total;
  for_pieces<C>(ctx, total, grain, elements, [&](C* buffer, int64_t first, int64_t last) {
    walk.run(first, last, [&](int64_t position, int64_t n, const std::array<int64_t, size_t(K)>& at) {
      f(buffer, position, n, at);
    });
  });
}

}  // namespace tapir::inline v0::cpu
