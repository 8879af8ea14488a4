#include "../../../cuda_kernels/vendor/sort.h"

#include <algorithm>
#include <vector>

#include "../../../cuda_kernels/launch.h"

// What CUB answers on a GPU, on the host: device memory can be read in a kernel alone, so a thread of one does the work.
namespace tapir::inline v0::cuda_kernels {

template <class K, class P> __global__ void sort_here(Pairs<K, P> from, Pairs<K, P> to, int64_t n, int bits) {
  struct Item {
    K key;
    P position;
  };
  std::vector<Item> items;
  for (int64_t i = 0; i < n; ++i) items.push_back({from.keys[i], from.positions[i]});
  const K counts = bits >= int(8 * sizeof(K)) ? ~K(0) : (K(1) << bits) - 1;
  std::stable_sort(items.begin(), items.end(),
                   [&](const Item& a, const Item& b) { return (a.key & counts) < (b.key & counts); });
  for (int64_t i = 0; i < n; ++i) to.keys[i] = items[size_t(i)].key, to.positions[i] = items[size_t(i)].position;
}

Pairs<uint32_t, uint32_t> sort_pairs(Context& ctx, Pairs<uint32_t, uint32_t> from, Pairs<uint32_t, uint32_t> other,
                                     int64_t n, int bits) {
  launch(ctx, "sort", {dim3(1), dim3(1)}, sort_here<uint32_t, uint32_t>, from, other, n, bits);
  return other;
}
Pairs<uint64_t, int64_t> sort_pairs(Context& ctx, Pairs<uint64_t, int64_t> from, Pairs<uint64_t, int64_t> other, int64_t n,
                                    int bits) {
  launch(ctx, "sort", {dim3(1), dim3(1)}, sort_here<uint64_t, int64_t>, from, other, n, bits);
  return other;
}

}  // namespace tapir::inline v0::cuda_kernels
