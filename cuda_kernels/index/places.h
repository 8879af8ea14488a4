#pragma once
#include "../kernel.h"
#include "../launch.h"
#include "../layout.h"

// What indexing kernels share: some dimensions of a table are named by index tensors (positions), the rest is moved as it is.
namespace tapir::inline v0::cuda_kernels {

/// Sixteen bytes that are moved as one.
struct alignas(16) Bytes16 {
  uint64_t low, high;
};
/// f.operator()<T>() for a type of `bytes` bytes that is only moved.
template <class F> void for_width(int64_t bytes, F&& f) {
  switch (bytes) {
    case 1: return f.template operator()<uint8_t>();
    case 2: return f.template operator()<uint16_t>();
    case 4: return f.template operator()<uint32_t>();
    case 8: return f.template operator()<uint64_t>();
    default: return f.template operator()<Bytes16>();
  }
}

/// Dimensions [first, first + count) of a view; a number has none.
inline TensorView dimensions(V v, int64_t first, int64_t count) {
  TensorView part = v;
  part.rank = count;
  for (int64_t d = 0; !v.is_scalar && d < count; ++d)
    part.sizes[d] = v.sizes[first + d], part.strides[d] = v.strides[first + d];
  return part;
}

/// The place in [0, size) that an index names, or -1.
__device__ inline int64_t place_of(int64_t value, int64_t size, bool wrap) {
  const int64_t id = value + (wrap && value < 0 ? size : 0);
  return uint64_t(id) < uint64_t(size) ? id : -1;
}

/// Up to 16 index tensors and the dimensions that they name.
template <int K> struct Keys {
  const int64_t* ids[K];
  int64_t sizes[K], strides[K];
  int count;
  bool wrap;
};
/// to[p]: where in the table the rows of position p begin, -1 for a bad one. Operands of the layout: the offset that the position has
/// anyway, its number for messages, the index tensors.
template <int K> __global__ void table_offsets(int64_t* to, Keys<K> keys, Layout<K + 2> l, LateError* error) {
  for (const int64_t p : grid_stride(l.numel)) {
    int64_t at[K + 2];
    l.offsets(p, at);
    int64_t offset = at[0];
    for (int k = 0; k < K; ++k) {
      if (k >= keys.count) break;
      const int64_t value = keys.ids[k][at[k + 2]], id = place_of(value, keys.sizes[k], keys.wrap);
      if (id < 0) report_bad_value(error, at[1], value, keys.sizes[k]), offset = -1;
      else if (offset >= 0) offset += id * keys.strides[k];
    }
    to[p] = offset;
  }
}

template <int K> void launch_table_offsets(Context& ctx, const char* op, int64_t* to, V base, V number, V table,
                                           std::span<const TensorView> indices, bool wrap) {
  Keys<K> keys{};
  keys.count = int(indices.size()), keys.wrap = wrap;
  const TensorView absent{};
  const TensorView* views[K + 2];
  std::fill_n(views, K + 2, &absent);
  views[0] = &base, views[1] = &number;
  for (size_t k = 0; k < indices.size(); ++k) {
    views[k + 2] = &indices[k];
    keys.ids[k] = indices[k].as<int64_t>(), keys.sizes[k] = table.sizes[k], keys.strides[k] = table.strides[k];
  }
  const Layout<K + 2> l = layout_of<K + 2>(views, false);
  launch(ctx, op, grid_of(l.numel), table_offsets<K>, to, keys, l, indices.empty() ? nullptr : late_error(ctx));
}
/// The offsets of all positions, in row-major order; `base` has their shape. The first dimensions of `table` are the named ones.
inline int64_t* make_table_offsets(Context& ctx, const char* op, V base, V number, V table,
                                   std::span<const TensorView> indices, bool wrap) {
  int64_t* const to = ctx.scratch_of<int64_t>(base.numel());
  if (indices.size() <= 1) launch_table_offsets<1>(ctx, op, to, base, number, table, indices, wrap);
  else launch_table_offsets<kMaxRank>(ctx, op, to, base, number, table, indices, wrap);
  return to;
}

/// The shape of the positions, and row-major numbers as strides.
inline TensorView numbered(V shape) {
  TensorView v = shape;
  int64_t step = 1;
  for (int64_t d = v.rank; d-- > 0;) v.strides[d] = step, step *= v.sizes[d];
  return v;
}
inline TensorView at_zero(V shape) {
  TensorView v = shape;
  for (int64_t d = 0; d < v.rank; ++d) v.strides[d] = 0;
  return v;
}

/// How many neighbouring elements of the rest one access of up to 16 bytes moves. `steps`: what else offsets are made of.
template <size_t S> int64_t neighbours(const Layout<2>& rest, int64_t element, const void* const (&data)[2],
                                       const std::span<const int64_t> (&steps)[S]) {
  if (rest.rank == 0 || rest.strides[0][0] != 1 || rest.strides[1][0] != 1) return 1;
  for (int64_t count = 16 / element; count > 1; count /= 2) {
    bool fits = rest.sizes[0] % count == 0;
    for (const void* p : data) fits = fits && reinterpret_cast<uintptr_t>(p) % size_t(count * element) == 0;
    for (int k = 0; k < 2; ++k)
      for (int d = 1; d < rest.rank; ++d) fits = fits && rest.strides[k][d] % count == 0;
    for (const auto& list : steps)
      for (int64_t step : list) fits = fits && step % count == 0;
    if (fits) return count;
  }
  return 1;
}
/// Counts in packs of `count` elements from now on; `inner`: they lie along dimension 0.
template <int N> void widen(Layout<N>& l, int64_t count, bool inner) {
  for (int k = 0; k < N; ++k)
    for (int d = inner ? 1 : 0; d < l.rank; ++d) l.strides[k][d] /= count;
  if (!inner || count == 1) return;
  l.sizes[0] /= count, l.numel /= count;
  if (l.small) l.dividers[0] = Divider(uint32_t(l.sizes[0]));
}

/// n / d and n % d, by a multiplication where numbers are small.
struct Split {
  int64_t by;
  Divider divider;
  uint32_t small;  // as wide as the rest: what a kernel is given has no gaps
  Split(int64_t by, int64_t total) : by(by), small(total < int64_t(1) << 31) {
    if (small) divider = Divider(uint32_t(by));
  }
  __device__ int64_t quotient(int64_t n) const { return small ? int64_t(divider.quotient(uint32_t(n))) : n / by; }
};

}  // namespace tapir::inline v0::cuda_kernels
