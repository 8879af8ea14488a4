#include "../../../cuda_kernels/vendor/sort.h"

#include <algorithm>
#include <vector>

#include "../library_call.h"

// What CUB answers on a GPU.
namespace tapir::inline v0::cuda_kernels {

template <class K, class P>
static Pairs<K, P> stable_sort(Context& ctx, Pairs<K, P> from, Pairs<K, P> to, int64_t n, int bits) {
  struct Item {
    K key;
    P position;
  };
  cuda_emulation::on_stream(static_cast<cudaStream_t>(ctx.stream), [=](cudaStream_t stream) {
    cuda_emulation::LibraryCall call("sort_pairs", stream);
    const size_t key_bytes = size_t(n) * sizeof(K), position_bytes = size_t(n) * sizeof(P);
    call.reads(from.keys, key_bytes), call.reads(from.positions, position_bytes);
    call.writes(to.keys, key_bytes), call.writes(to.positions, position_bytes);
    const size_t bytes = 2 * (key_bytes + position_bytes);
    if (call.counted("sort", 0, std::to_string(n) + " pairs, " + std::to_string(bits) + " bits") &&
        bytes > cuda_emulation::kCounted)
      return call.end();
    std::vector<Item> items;
    items.reserve(size_t(n));
    for (int64_t i = 0; i < n; ++i) items.push_back({from.keys[i], from.positions[i]});
    const K counts = bits >= int(8 * sizeof(K)) ? K(~K(0)) : K((K(1) << bits) - 1);
    std::stable_sort(items.begin(), items.end(),
                     [&](const Item& a, const Item& b) { return (a.key & counts) < (b.key & counts); });
    for (int64_t i = 0; i < n; ++i) to.keys[i] = items[size_t(i)].key, to.positions[i] = items[size_t(i)].position;
    call.end();
  });
  return to;
}

Pairs<uint32_t, uint32_t> sort_pairs(Context& ctx, Pairs<uint32_t, uint32_t> from, Pairs<uint32_t, uint32_t> other,
                                     int64_t n, int bits) {
  return stable_sort(ctx, from, other, n, bits);
}
Pairs<uint64_t, int64_t> sort_pairs(Context& ctx, Pairs<uint64_t, int64_t> from, Pairs<uint64_t, int64_t> other,
                                    int64_t n, int bits) {
  return stable_sort(ctx, from, other, n, bits);
}

}  // namespace tapir::inline v0::cuda_kernels
