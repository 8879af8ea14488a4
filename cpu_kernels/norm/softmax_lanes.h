#pragma once
#include "../moments.h"
#include "../pieces.h"

// Note [Lanes]
// Softmax and cross entropy work on lanes: the elements along one dimension. There are two ways through memory. A long lane is
// taken by itself: read where it lies, or brought into a buffer if it has to be converted or gathered. Neighbouring lanes that lie
// side by side, or that are too short to fill a vector, are taken together, kTileWidth at most: the inner loop runs across them.
namespace tapir::inline v0::cpu {

inline constexpr int64_t kTileWidth = 256;   // lanes
inline constexpr int64_t kShortLane = 32;    // elements
inline constexpr int64_t kLaneGrain = 8192;  // elements: some 5 us of exp()

/// Lanes of a tile of which each element takes `bytes`: as many as fit well in the L2 cache.
inline int64_t tile_width(int64_t size, int64_t bytes) {
  return std::clamp<int64_t>(131072 / bytes / std::max<int64_t>(1, size) / 16 * 16, 16, kTileWidth);
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
