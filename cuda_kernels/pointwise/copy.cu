#include <bit>

#include "../../core/arithmetic.h"
#include "../kernels.h"
#include "early_launch.h"
#include "pointwise.h"

// Copies with and without a change of dtype, fill and range.
namespace tapir::inline v0::cuda_kernels {
namespace {

/// Elements by their width alone: nothing is computed with them.
template <class F> void for_width(int64_t bytes, F&& f) {
  switch (bytes) {
    case 1: return f.template operator()<uint8_t>();
    case 2: return f.template operator()<uint16_t>();
    case 4: return f.template operator()<uint32_t>();
    default: return f.template operator()<uint64_t>();
  }
}

// ---- of one dtype ----

/// `l` counts packs; only the last one of a one-dimensional layout may be short. No x: `number` is written.
template <class W> __global__ void copy_packs_kernel(Layout<2> l, int64_t numel, W* out, const W* x, W number) {
  let_next_begin(), wait_for_previous();
  constexpr int width = kWidth<W>;
  for (const int64_t i : grid_stride(l.numel)) {
    int64_t at[2] = {i * width, i * width};
    if (l.rank > 1 || l.strides[1][0] == 0) l.offsets(i, at);
    const int count = numel - i * width < width ? int(numel - i * width) : width;
    W values[width];
    if (x && l.strides[1][0] != 0) {
      load_pack(x + at[1], count, values);
    } else {
      const W value = x ? x[at[1]] : number;
#pragma unroll
      for (int j = 0; j < width; ++j) values[j] = value;
    }
    store_pack(out + at[0], count, values);
  }
}
template <class W> __global__ void copy_strided_kernel(Layout<2> l, W* out, const W* x, W number) {
  let_next_begin(), wait_for_previous();
  for (const int64_t i : grid_stride(l.numel)) {
    int64_t at[2];
    l.offsets(i, at);
    out[at[0]] = x ? x[at[1]] : number;
  }
}

/// Planes of rows x columns elements: `out` is dense along the columns, x along the rows.
struct Planes {
  int64_t rows, columns, out_row, x_column;  // extents; elements from a row of out, a column of x, to the next
  int64_t down, across;                      // tiles
  Layout<2> outer;
};
template <class W> inline constexpr int kSide = sizeof(W) <= 2 ? 64 : 32;
constexpr int kTransposeThreads = 256;

/// A tile passes through shared memory, so that both sides are read and written along what is dense. Odd rows: no two elements
/// of a column lie in one bank.
template <class W> __global__ void transpose_kernel(Planes p, W* out, const W* x) {
  constexpr int side = kSide<W>, rows = kTransposeThreads / side;
  __shared__ W tile[side][side + 1];
  const int64_t column = threadIdx.x % side, row = threadIdx.x / side;
  for (int64_t t = blockIdx.x; t < p.outer.numel * p.down * p.across; t += gridDim.x) {
    int64_t at[2];
    p.outer.offsets(t / (p.down * p.across), at);
    const int64_t i = t / p.across % p.down * side, j = t % p.across * side;
    for (int64_t r = row; r < side; r += rows)
      if (i + column < p.rows && j + r < p.columns) tile[r][column] = x[at[1] + (i + column) + (j + r) * p.x_column];
    __syncthreads();
    for (int64_t r = row; r < side; r += rows)
      if (i + r < p.rows && j + column < p.columns) out[at[0] + (i + r) * p.out_row + j + column] = tile[column][r];
    __syncthreads();  // before the tile is filled again
  }
}

/// Dimension 0 is the columns and d the rows, where that makes planes worth tiles.
bool as_planes(const Layout<2>& l, int side, Planes& p) {
  if (l.rank < 2 || l.strides[0][0] != 1 || l.strides[1][0] <= 1 || l.sizes[0] < 8) return false;
  int d = 1;
  while (d < l.rank && (l.strides[1][d] != 1 || l.sizes[d] < 8)) ++d;
  if (d == l.rank) return false;
  p.rows = l.sizes[d], p.columns = l.sizes[0], p.out_row = l.strides[0][d], p.x_column = l.strides[1][0];
  p.down = (p.rows + side - 1) / side, p.across = (p.columns + side - 1) / side;
  for (int from = 1; from < l.rank; ++from) {
    if (from == d) continue;
    const int to = p.outer.rank++;
    p.outer.sizes[to] = l.sizes[from], p.outer.numel *= l.sizes[from];
    p.outer.strides[0][to] = l.strides[0][from], p.outer.strides[1][to] = l.strides[1][from];
    if (l.small) p.outer.dividers[to] = l.dividers[from];
  }
  p.outer.small = l.small;
  return true;
}

/// From x, or of `number` where x has no elements.
template <class W> void copy_words(Context& ctx, const char* op, V out, V x, W number) {
  const TensorView* const views[] = {&out, &x};
  Layout<2> l = layout_of(views);
  const int64_t numel = l.numel, size[] = {sizeof(W), sizeof(W)};
  if (numel == 0) return;
  const void* const data[] = {out.data, x.data};
  W* const to = out.as<W>();
  const W* const from = x.as<const W>();
  Planes planes;
  if (pack_layout(l, kWidth<W>, data, size))
    launch(ctx, op, early(ctx, grid_of(l.numel)), copy_packs_kernel<W>, l, numel, to, from, number);
  else if (from && as_planes(l, kSide<W>, planes))
    launch(ctx, op, grid_of(planes.outer.numel * planes.down * planes.across * kTransposeThreads, kTransposeThreads),
           transpose_kernel<W>, planes, to, from);
  else launch(ctx, op, early(ctx, grid_of(numel)), copy_strided_kernel<W>, l, to, from, number);
}

// ---- of two dtypes: 4 elements at a time, or one ----
constexpr int kConverted = 4;

template <class To>
__global__ void convert_packs_kernel(Layout<2> l, int64_t numel, To* out, const void* x, DType from) {
  for (const int64_t i : grid_stride(l.numel)) {
    int64_t at[2] = {i * kConverted, i * kConverted};
    if (l.rank > 1 || l.strides[1][0] == 0) l.offsets(i, at);
    const int count = numel - i * kConverted < kConverted ? int(numel - i * kConverted) : kConverted;
    Compute<To> y[kConverted];
    for_dtype(from, [&]<class From>() {
      const From* p = static_cast<const From*>(x) + at[1];
      Compute<From> values[kConverted];
      if (l.strides[1][0] != 0) {
        load_pack(p, count, values);
      } else {
        for (auto& v : values) v = widen(*p);
      }
#pragma unroll
      for (int j = 0; j < kConverted; ++j) y[j] = cast<Compute<To>>(values[j]);
    });
    store_pack(out + at[0], count, y);
  }
}
template <class To> __global__ void convert_strided_kernel(Layout<2> l, To* out, const void* x, DType from) {
  for (const int64_t i : grid_stride(l.numel)) {
    int64_t at[2];
    l.offsets(i, at);
    out[at[0]] = narrow<To>(load_any<Compute<To>>(x, at[1], from));
  }
}
void convert(Context& ctx, V out, V x) {
  const TensorView* const views[] = {&out, &x};
  Layout<2> l = layout_of(views);
  const int64_t numel = l.numel, size[] = {size_of(out.dtype), size_of(x.dtype)};
  if (numel == 0) return;
  const void* const data[] = {out.data, x.data};
  for_all("copy", out.dtype, [&]<class To>() {
    if (pack_layout(l, kConverted, data, size))
      launch(ctx, "copy", grid_of(l.numel), convert_packs_kernel<To>, l, numel, out.as<To>(), x.data, x.dtype);
    else launch(ctx, "copy", grid_of(numel), convert_strided_kernel<To>, l, out.as<To>(), x.data, x.dtype);
  });
}

template <class T> __global__ void range_kernel(int64_t n, T* out, int64_t stride, bool integer, int64_t start,
                                                int64_t by, double first, double step) {
  let_next_begin(), wait_for_previous();
  for (const int64_t i : grid_stride(n)) {
    if (integer) out[i * stride] = narrow<T>(cast<Compute<T>>(wrap_add(start, wrap_mul(i, by))));
    else out[i * stride] = narrow<T>(cast<Compute<T>>(first + double(i) * step));
  }
}

}  // namespace

void copy(Context& ctx, const entry::Copy& c) {
  const TensorView &out = c.out, &x = c.x;
  if (x.is_scalar) return fill(ctx, {out, x.scalar});
  const TensorView from = x.expand(out.shape());
  if (out.dtype != x.dtype) return convert(ctx, out, from);
  for_width(size_of(out.dtype), [&]<class W>() { copy_words<W>(ctx, "copy", out, from, W(0)); });
}

void fill(Context& ctx, const entry::Fill& c) {
  for_all("fill", c.out.dtype, [&]<class T>() {
    const T number = cast<T>(c.value);
    for_width(sizeof(T), [&]<class W>() {
      if constexpr (sizeof(W) == sizeof(T))
        copy_words<W>(ctx, "fill", c.out, TensorView(c.value, c.out.dtype), std::bit_cast<W>(number));
    });
  });
}

void range(Context& ctx, const entry::Range& c) {
  const TensorView& out = c.out;
  const RangeParams& p = c.params;
  const int64_t n = out.numel();
  const bool integer = !p.start.is_float() && !p.step.is_float() && !is_floating(out.dtype);
  for_all("range", out.dtype, [&]<class T>() {
    launch(ctx, "range", early(ctx, grid_of(n)), range_kernel<T>, n, out.as<T>(),
           out.rank ? out.strides[0] : int64_t(0), integer, p.start.to_int(), p.step.to_int(), p.start.to_double(),
           p.step.to_double());
  });
}

}  // namespace tapir::inline v0::cuda_kernels
