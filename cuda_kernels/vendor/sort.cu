#include "sort.h"

#include <cub/device/device_radix_sort.cuh>

#include "../runtime/device.h"

namespace tapir::inline v0::cuda_kernels {

template <class K, class P>
static Pairs<K, P> radix_sort(Context& ctx, Pairs<K, P> from, Pairs<K, P> other, int64_t n, int bits) {
  const OnDevice on(ctx.device);
  cub::DoubleBuffer<K> keys(from.keys, other.keys);
  cub::DoubleBuffer<P> positions(from.positions, other.positions);
  size_t bytes = 0;
  check_cuda(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, positions, n, 0, bits, stream_of(ctx)), "sort");
  void* const temporary = ctx.scratch(int64_t(bytes) + 1);
  check_cuda(cub::DeviceRadixSort::SortPairs(temporary, bytes, keys, positions, n, 0, bits, stream_of(ctx)), "sort");
  return {keys.Current(), positions.Current()};
}

Pairs<uint32_t, uint32_t> sort_pairs(Context& ctx, Pairs<uint32_t, uint32_t> from, Pairs<uint32_t, uint32_t> other,
                                     int64_t n, int bits) {
  return radix_sort(ctx, from, other, n, bits);
}
Pairs<uint64_t, int64_t> sort_pairs(Context& ctx, Pairs<uint64_t, int64_t> from, Pairs<uint64_t, int64_t> other,
                                    int64_t n, int bits) {
  return radix_sort(ctx, from, other, n, bits);
}

}  // namespace tapir::inline v0::cuda_kernels
