#include <bit>

#include "../../core/dispatch.h"
#include "../any.h"
#include "../block_scan.h"
#include "../kernel.h"
#include "../kernels.h"
#include "../launch.h"
#include "../layout.h"
#include "../vendor/sort.h"

// Note [Sorting on a device]
// Elements are compared as unsigned keys of the same order (NaN above all, -0 and 0 equal, inverted where the order is descending), each
// with its position, so that any way of sorting is stable. Short lines: a block sorts several of them at once in shared memory, by
// Batcher's bitonic network. Long lines: all of them by one radix sort, the number of the line above the key; keys of 64 bits are
// sorted first and then, stably, by line. Where only a few elements of a long line are asked for, a block finds the key of the last
// of them, digit by digit from the top (counts of digits among keys that agree so far), and collects. Values are fetched from the
// positions.
namespace tapir::inline v0::cuda_kernels {
namespace {

constexpr int kItems = 2048;  // that a block sorts: lines of up to as many elements
constexpr int kThreads = 512, kSelectThreads = 1024;

template <class T> __device__ uint64_t key_of(T v) {
  if constexpr (std::integral<T> && !std::is_signed_v<T>) return uint64_t(v);
  else {
    using Bits = std::conditional_t<
        sizeof(T) == 8, uint64_t,
        std::conditional_t<sizeof(T) == 4, uint32_t, std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;
    constexpr Bits top = Bits(Bits(1) << (8 * sizeof(T) - 1)), all = Bits(~Bits(0));
    if constexpr (std::integral<T>) return Bits(Bits(v) ^ top);
    else {
      const auto number = widen(v);
      const Bits bits = number == 0 ? Bits(0) : std::bit_cast<Bits>(v);
      return number != number ? all : Bits(bits ^ (bits & top ? all : top));
    }
  }
}

/// What kernels know of the lines: where they begin (a layout of the other dimensions: x, values, indices) and how to step along them.
struct Lines {
  Layout<3> starts;
  const void* x;
  void* values;  // may be null
  int64_t* indices;
  DType dtype;
  int64_t n, kept, step, value_step, index_step;
  uint64_t flip, nan;  // keys: inverted where descending; that of a NaN, or 0 where there is none (never found)
  SortOp op;
  int64_t k;

  __device__ uint64_t key(int64_t start, int64_t i) const {
    return flip ^ for_dtype(dtype, [&]<class T>() { return key_of(static_cast<const T*>(x)[start + i * step]); });
  }
  __device__ void store(const int64_t (&at)[3], int64_t slot, int64_t position) const {
    indices[at[2] + slot * index_step] = position;
    if (!values) return;
    const int64_t from = at[0] + position * step, to = at[1] + slot * value_step;
    for_dtype(dtype, [&]<class T>() { static_cast<T*>(values)[to] = static_cast<const T*>(x)[from]; });
  }
  /// Where in the sorted line the element for `slot` stands; key_at(i) gives its keys.
  template <class F> __device__ int64_t rank(int64_t slot, F&& key_at) const {
    if (op == SortOp::Sort || op == SortOp::TopK) return slot;
    if (op == SortOp::Kth) return k;
    int64_t low = 0, high = nan ? n : 0;  // the first NaN: they are the largest
    if (!nan) low = n;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (key_at(middle) == nan) high = middle;
      else low = middle + 1;
    }
    if (op == SortOp::Median) return low < n ? low : (n - 1) / 2;
    return low == 0 ? 0 : (low - 1) / 2;
  }
};

/// Sorts `count` items of the block in lines of `width`, a power of two.
template <class Item> __device__ void sort_items(Item* items, int count, int width) {
  for (int size = 2; size <= width; size *= 2)
    for (int gap = size / 2; gap > 0; gap /= 2) {
      for (int i = int(threadIdx.x); i < count / 2; i += int(blockDim.x)) {
        const int low = 2 * i - (i & (gap - 1)), high = low + gap;  // every pair that differs in the bit `gap`
        const bool ascending = (low & size & (width - 1)) == 0;
        const Item a = items[low], b = items[high];
        if (a.after(b) == ascending) items[low] = b, items[high] = a;
      }
      __syncthreads();
    }
}

/// A key of up to 32 bits above its position, or of 64 bits beside it. Padding comes last.
struct Narrow {
  uint64_t word;
  static __device__ Narrow of(uint64_t key, uint32_t position) { return {key << 32 | position}; }
  static __device__ Narrow padding() { return {~uint64_t(0)}; }
  __device__ uint64_t key() const { return word >> 32; }
  __device__ uint32_t position() const { return uint32_t(word); }
  __device__ bool after(const Narrow& o) const { return word > o.word; }
};
struct Wide {
  uint64_t key_;
  uint64_t position_;
  static __device__ Wide of(uint64_t key, uint32_t position) { return {key, position}; }
  static __device__ Wide padding() { return {~uint64_t(0), ~uint64_t(0)}; }
  __device__ uint64_t key() const { return key_; }
  __device__ uint32_t position() const { return uint32_t(position_); }
  __device__ bool after(const Wide& o) const { return key_ > o.key_ || (key_ == o.key_ && position_ > o.position_); }
};

/// Each block sorts kItems / width lines; `width` is a power of two, at least n.
template <class Item> __global__ void __launch_bounds__(kThreads) sort_in_block(Lines l, int width) {
  Item* const items = dynamic_shared<Item>();
  const int per_block = kItems / width, shift = 31 - __clz(width);
  const int64_t groups = (l.starts.numel + per_block - 1) / per_block;
  for (int64_t group = blockIdx.x; group < groups; group += gridDim.x) {
    for (int i = int(threadIdx.x); i < kItems; i += kThreads) {
      const int64_t line = group * per_block + (i >> shift), position = i & (width - 1);
      items[i] = Item::padding();
      if (line >= l.starts.numel || position >= l.n) continue;
      int64_t at[3];
      l.starts.offsets(line, at);
      items[i] = Item::of(l.key(at[0], position), uint32_t(position));
    }
    __syncthreads();
    sort_items(items, kItems, width);
    const int64_t outputs = per_block * l.kept;
    for (int64_t o = threadIdx.x; o < outputs; o += kThreads) {
      const int64_t own = o / l.kept, line = group * per_block + own;
      if (line >= l.starts.numel) break;
      const Item* const sorted = items + (own << shift);
      int64_t at[3];
      l.starts.offsets(line, at);
      const int64_t rank = l.rank(o - own * l.kept, [&](int64_t i) { return sorted[i].key(); });
      l.store(at, o - own * l.kept, int64_t(sorted[rank].position()));
    }
    __syncthreads();
  }
}

/// The key at place `rank` of the sorted line, which has keys of `bits` bits; `rank` becomes its number among equal ones.
__device__ uint64_t select_key(const Lines& l, int64_t start, int bits, int64_t& rank, unsigned* counts) {
  uint64_t key = 0;
  for (int shift = bits - 8; shift >= 0; shift -= 8) {
    for (int i = int(threadIdx.x); i < 256; i += int(blockDim.x)) counts[i] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < l.n; i += blockDim.x) {
      const uint64_t other = l.key(start, i);
      if (shift + 8 == bits || other >> (shift + 8) == key) atomicAdd(&counts[other >> shift & 255], 1u);
    }
    __syncthreads();
    int digit = 0;
    for (; digit < 255 && rank >= int64_t(counts[digit]); ++digit) rank -= counts[digit];
    key = key << 8 | uint64_t(digit);
    __syncthreads();  // counts may be used again
  }
  return key;
}
/// Where in its sorted line the last element stands that is asked for.
__device__ int64_t last_rank(const Lines& l, int64_t start, int64_t* shared) {
  if (l.op == SortOp::TopK) return l.k - 1;
  if (l.op == SortOp::Kth) return l.k;
  int64_t nans = 0;
  for (int64_t i = threadIdx.x; l.nan && i < l.n; i += blockDim.x) nans += l.key(start, i) == l.nan;
  nans = block_fold<int64_t>(nans, 0, shared, Plus{});
  if (l.op == SortOp::Median) return nans ? l.n - nans : (l.n - 1) / 2;
  return l.n == nans ? 0 : (l.n - nans - 1) / 2;
}
/// A block to a line: the k first, sorted, or one element. `width` is a power of two, at least k.
template <class Item> __global__ void __launch_bounds__(kSelectThreads) select_in_block(Lines l, int bits, int width) {
  __shared__ unsigned counts[256], before_key;
  __shared__ int64_t shared[32];
  Item* const items = dynamic_shared<Item>();
  const bool many = l.op == SortOp::TopK;
  for (int64_t line = blockIdx.x; line < l.starts.numel; line += gridDim.x) {
    int64_t at[3];
    l.starts.offsets(line, at);
    int64_t rank = last_rank(l, at[0], shared);
    const int64_t last = rank;
    const uint64_t key = select_key(l, at[0], bits, rank, counts);
    if (threadIdx.x == 0) before_key = 0;
    for (int i = int(threadIdx.x); i < width; i += int(blockDim.x)) items[i] = Item::padding();
    __syncthreads();
    // Of equal ones those of the lowest positions count: positions go in order, a block's width at a time.
    int64_t equals = 0;
    for (int64_t first = 0; first < l.n && (many || equals <= rank); first += blockDim.x) {
      const int64_t i = first + threadIdx.x;
      const uint64_t own = i < l.n ? l.key(at[0], i) : 0;
      const bool is_equal = i < l.n && own == key;
      int64_t total;
      const int64_t number = equals + block_scan(is_equal, shared, total);
      equals += total;
      if (is_equal && !many && number == rank) l.store(at, 0, i);
      if (is_equal && many && number <= rank) items[last - rank + number] = Item::of(own, uint32_t(i));
      if (i < l.n && many && own < key) items[atomicAdd(&before_key, 1u)] = Item::of(own, uint32_t(i));
    }
    __syncthreads();
    if (!many) continue;
    sort_items(items, width, width);
    for (int64_t slot = threadIdx.x; slot < l.k; slot += blockDim.x) l.store(at, slot, int64_t(items[slot].position()));
    __syncthreads();
  }
}

/// The keys of all lines, one after another, each with the number of its line above it where there is room.
template <class K, class P> __global__ void write_keys(Lines l, Pairs<K, P> to, int line_shift) {
  const int64_t total = l.starts.numel * l.n;
  for (const int64_t i : grid_stride(total)) {
    const int64_t line = i / l.n;
    int64_t at[3];
    l.starts.offsets(line, at);
    uint64_t key = l.key(at[0], i - line * l.n);
    if (line_shift < 64) key |= uint64_t(line) << line_shift;
    to.keys[i] = K(key), to.positions[i] = P(i);
  }
}
/// For a second, stable sort: elements in the order of their keys are given the number of their line as a key.
__global__ void write_lines(Pairs<uint64_t, int64_t> pairs, int64_t total, int64_t n) {
  for (const int64_t i : grid_stride(total)) pairs.keys[i] = uint64_t(pairs.positions[i] / n);
}
template <class K, class P> __global__ void store_sorted(Lines l, Pairs<K, P> sorted) {
  const int64_t total = l.starts.numel * l.kept;
  for (const int64_t o : grid_stride(total)) {
    const int64_t line = o / l.kept, slot = o - line * l.kept, first = line * l.n;
    int64_t at[3];
    l.starts.offsets(line, at);
    const auto position = [&](int64_t i) { return int64_t(sorted.positions[first + i]) - first; };
    l.store(at, slot, position(l.rank(slot, [&](int64_t i) { return l.key(at[0], position(i)); })));
  }
}

template <class K, class P> Pairs<K, P> pairs_of(Context& ctx, int64_t n) {
  return {ctx.scratch_of<K>(n), ctx.scratch_of<P>(n)};
}
template <class K, class P> void sort_long(Context& ctx, const Lines& l, int key_bits, bool with_line) {
  const int64_t lines = l.starts.numel, total = lines * l.n;
  Pairs<K, P> from = pairs_of<K, P>(ctx, total), other = pairs_of<K, P>(ctx, total);
  launch(ctx, "sort", grid_of(total), write_keys<K, P>, l, from, with_line ? key_bits : 64);
  const int line_bits = bits_of(uint64_t(lines - 1));
  Pairs<K, P> sorted = sort_pairs(ctx, from, other, total, with_line ? key_bits + line_bits : key_bits);
  if constexpr (sizeof(K) == 8)
    if (!with_line && lines > 1) {
      launch(ctx, "sort", grid_of(total), write_lines, sorted, total, l.n);
      sorted = sort_pairs(ctx, sorted, sorted.keys == from.keys ? other : from, total, line_bits);
    }
  launch(ctx, "sort", grid_of(lines * l.kept), store_sorted<K, P>, l, sorted);
}

Lines lines_of(V values, V indices, V x, const SortParams& p) {
  TensorView line = x, value_line = values.defined() ? values : x, index_line = indices;
  const int64_t dim = p.dim;
  Lines l{};
  l.n = x.rank ? x.sizes[dim] : 1, l.kept = x.rank ? indices.sizes[dim] : 1;
  l.step = x.rank ? x.strides[dim] : 0, l.index_step = x.rank ? indices.strides[dim] : 0;
  l.value_step = x.rank && values.defined() ? values.strides[dim] : 0;
  if (x.rank) line.sizes[dim] = value_line.sizes[dim] = index_line.sizes[dim] = 1;
  l.starts = layout_of<3>({&line, &value_line, &index_line});
  l.x = x.data, l.values = values.defined() ? values.data : nullptr, l.indices = indices.as<int64_t>();
  l.dtype = x.dtype, l.op = p.op, l.k = p.k;
  const uint64_t all = ~uint64_t(0) >> (64 - 8 * size_of(x.dtype));
  l.flip = p.descending ? all : 0, l.nan = is_floating(x.dtype) ? all : 0;
  return l;
}

/// A power of two, at least n and 2.
int width_of(int64_t n) { return n < 2 ? 2 : 1 << bits_of(uint64_t(n - 1)); }

template <class Item> void sort_short(Context& ctx, const Lines& l) {
  const int width = width_of(l.n);
  const int64_t per_block = kItems / width, blocks = (l.starts.numel + per_block - 1) / per_block;
  const Grid grid{dim3(unsigned(std::min<int64_t>(blocks, 1 << 16))), dim3(kThreads), kItems * sizeof(Item)};
  launch(ctx, "sort", grid, sort_in_block<Item>, l, width);
}
template <class Item> void select(Context& ctx, const Lines& l, int bits) {
  const int width = l.op == SortOp::TopK ? width_of(l.k) : 0;
  const Grid grid{dim3(unsigned(std::min<int64_t>(l.starts.numel, 1 << 16))), dim3(kSelectThreads),
                  size_t(width) * sizeof(Item)};
  launch(ctx, "sort", grid, select_in_block<Item>, l, bits, width);
}
/// Few elements of lines that are many, or not so long that one multiprocessor would be too slow.
bool selects(const Lines& l) {
  return l.op != SortOp::Sort && (l.op != SortOp::TopK || l.k <= kItems) && l.n < int64_t(UINT32_MAX) &&
         (l.n <= 1 << 20 || l.starts.numel >= 16);
}

}  // namespace

void sort(Context& ctx, const entry::Sort& c) {
  if (c.x.numel() == 0 || c.indices.numel() == 0) return;
  const Lines l = lines_of(c.values, c.indices, c.x, c.params);
  const int bits = int(8 * size_of(c.x.dtype));
  if (l.n <= kItems) return bits <= 32 ? sort_short<Narrow>(ctx, l) : sort_short<Wide>(ctx, l);
  if (selects(l)) return bits <= 32 ? select<Narrow>(ctx, l, bits) : select<Wide>(ctx, l, bits);
  const int64_t total = l.starts.numel * l.n;
  const int with_line = bits + bits_of(uint64_t(l.starts.numel - 1));
  if (with_line <= 32 && total <= int64_t(UINT32_MAX)) return sort_long<uint32_t, uint32_t>(ctx, l, bits, true);
  sort_long<uint64_t, int64_t>(ctx, l, bits, with_line <= 64);
}

}  // namespace tapir::inline v0::cuda_kernels
