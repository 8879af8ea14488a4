#include <bit>
#include <cstring>
#include <limits>

#include "../../core/arithmetic.h"
#include "../../core/convert.h"
#include "../../core/dispatch.h"
#include "../kernels.h"
#include "../vendor/sort.h"
#include "early_launch.h"
#include "places.h"

// Note [Writing by index tensors]
// Positions may meet in one row of the table, and the result must be the same in every run: of what is assigned, the last one in row-major
// order wins, sums have a fixed order. Where positions can meet, they are sorted by their offset in the table, stably. Then runs of equal
// offsets are combined tile by tile: a run inside a tile goes to the table; of one that crosses its border the tile leaves a part, and
// parts, two per tile, are sorted positions again: the same kernel combines them, until one tile holds all. Parts are kept in the type that
// sums are formed in. Short lines of scatter need no sort: a thread goes along each.
namespace tapir::inline v0::cuda_kernels {
namespace {

/// What elements of T are combined in: integers and bool in int64, which wraps as they do.
template <class T> using Sum = std::conditional_t<std::is_integral_v<T>, int64_t, Compute<T>>;

template <class T> __device__ Sum<T> summand(T v) {
  if constexpr (std::is_integral_v<T>) return int64_t(v);
  else return widen(v);
}
template <class T> __device__ T element(Sum<T> v) {
  if constexpr (std::is_integral_v<T>) return cast<T>(v);
  else return narrow<T>(v);
}

template <class C> __device__ C combined(ScatterOp op, C a, C b) {
  switch (op) {
    case ScatterOp::Assign: return b;
    case ScatterOp::Add: return wrap_add(a, b);
    case ScatterOp::Multiply: return wrap_mul(a, b);
    case ScatterOp::Max: return b > a || b != b ? b : a;
    default: return b < a || b != b ? b : a;
  }
}
/// Combined with anything, gives that.
template <class C> __device__ C neutral(ScatterOp op) {
  using Limits = std::numeric_limits<C>;
  switch (op) {
    case ScatterOp::Add: return C(-0.0);
    case ScatterOp::Multiply: return C(1);
    case ScatterOp::Max: return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    default: return Limits::has_infinity ? Limits::infinity() : Limits::max();
  }
}

/// What is written: elements, or one number.
template <class T> struct Source {
  const T* data;    // null: the number
  uint64_t number;  // its bits
  explicit Source(V v) : data(v.is_scalar ? nullptr : v.as<T>()), number(0) {
    const T value = v.is_scalar ? cast<T>(v.scalar) : T{};
    std::memcpy(&number, &value, sizeof(T));
  }
  __device__ T at(int64_t i) const {
    if (data) return data[i];
    T value;
    memcpy(static_cast<void*>(&value), &number, sizeof(T));
    return value;
  }
};

/// A thread goes along a line of the index, `n` long. Operands of the layout, without their steps along it: out, index, source.
struct Line {
  Layout<3> starts;
  int64_t n, out_step, index_step, source_step, bound;
  int64_t behind;  // elements of a row-major index behind one of the line
};
template <class T>
__global__ void scatter_lines(T* out, const int64_t* ids, Source<T> source, Line l, ScatterOp op, LateError* error) {
  using C = Sum<T>;
  for (const int64_t line : grid_stride(l.starts.numel)) {
    int64_t at[3];
    l.starts.offsets(line, at);
    for (int64_t j = 0; j < l.n; ++j) {
      const int64_t id = ids[at[1] + j * l.index_step];
      if (uint64_t(id) >= uint64_t(l.bound)) {
        report_bad_value(error, (line / l.behind * l.n + j) * l.behind + line % l.behind, id, l.bound);
        continue;
      }
      T& slot = out[at[0] + id * l.out_step];
      const T value = source.at(at[2] + j * l.source_step);
      slot = op == ScatterOp::Assign ? value : element<T>(combined<C>(op, summand(slot), summand(value)));
    }
  }
}

/// Positions in the order of their offsets in the table, or parts that tiles of them have left.
struct Order {
  const void *offsets, *positions;  // uint32 both, or uint64 and int64; positions: null for parts
  int64_t wide, count;
  __device__ int64_t offset(int64_t i) const {  // -1: a bad position; those come last
    if (wide) return int64_t(static_cast<const uint64_t*>(offsets)[i]);
    const uint32_t offset = static_cast<const uint32_t*>(offsets)[i];
    return offset == ~uint32_t(0) ? -1 : int64_t(offset);
  }
  __device__ int64_t position(int64_t i) const {
    return wide ? static_cast<const int64_t*>(positions)[i] : int64_t(static_cast<const uint32_t*>(positions)[i]);
  }
};
template <class K, class P> __global__ void write_order(Pairs<K, P> to, const int64_t* offsets, int64_t n) {
  for (const int64_t i : grid_stride(n)) to.keys[i] = K(offsets[i]), to.positions[i] = P(i);
}
/// Positions that are not the last one of their row become bad ones.
__global__ void drop_overwritten(int64_t* offsets, Order order) {
  for (const int64_t i : grid_stride(order.count - 1))
    if (order.offset(i) == order.offset(i + 1)) offsets[order.position(i)] = -1;
}

/// One element that several threads may write, all the same value.
template <class T> __device__ void store_agreed(T* to, T value) {
  using Bits = std::conditional_t<
      sizeof(T) == 8, uint64_t,
      std::conditional_t<sizeof(T) == 4, uint32_t, std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;
  *reinterpret_cast<volatile Bits*>(to) = std::bit_cast<Bits>(value);
}
/// Writes the rows of all good positions. rest: table, source. agreed: positions that meet bring the same value.
template <class T> __global__ void put_kernel(T* table, const int64_t* offsets, Source<T> source, Layout<1> positions,
                                              Layout<2> rest, Split split, bool agreed) {
  const int64_t total = positions.numel * rest.numel;
  for (const int64_t i : grid_stride(total)) {
    const int64_t position = split.quotient(i), to = offsets[position];
    if (to < 0) continue;
    int64_t at[1], inner[2];
    positions.offsets(position, at), rest.offsets(i - position * split.by, inner);
    const T value = source.at(at[0] + inner[1]);
    if (agreed) store_agreed(table + to + inner[0], value);
    else table[to + inner[0]] = value;
  }
}

/// What a pass combines: positions of the source, or parts (a row of rest.numel each).
template <class T> struct Pass {
  Source<T> source;
  Order order{};
  const Sum<T>* parts = nullptr;  // null in the first pass
  Layout<1> positions{};
  Layout<2> rest{};
  int64_t tile = 0;                  // entries
  uint64_t* next_offsets = nullptr;  // two for each tile; null where one tile holds all
  Sum<T>* next_parts = nullptr;

  __device__ Sum<T> value(int64_t i, int64_t r, int64_t inner) const {
    if (parts) return parts[i * rest.numel + r];
    int64_t at[1];
    positions.offsets(order.position(i), at);
    return summand(source.at(at[0] + inner));
  }
};
template <class T> __global__ void combine_tiles(T* table, Pass<T> p, ScatterOp op, Split split) {
  using C = Sum<T>;
  const int64_t n = p.order.count, tiles = (n + p.tile - 1) / p.tile, total = tiles * p.rest.numel;
  for (const int64_t e : grid_stride(total)) {
    const int64_t tile = split.quotient(e), r = e - tile * split.by, first = tile * p.tile,
                  last = first + p.tile < n ? first + p.tile : n;
    int64_t inner[2];
    p.rest.offsets(r, inner);
    const int64_t first_offset = p.order.offset(first), last_offset = p.order.offset(last - 1);
    const bool goes_back = first > 0 && p.order.offset(first - 1) == first_offset,
               goes_on = last < n && p.order.offset(last) == last_offset;
    C left[2] = {neutral<C>(op), neutral<C>(op)};
    for (int64_t i = first; i < last;) {
      const int64_t begin = i, offset = p.order.offset(i);
      C sum = p.value(i++, r, inner[1]);
      while (i < last && p.order.offset(i) == offset) sum = combined<C>(op, sum, p.value(i++, r, inner[1]));
      const bool ends = i == last && goes_on;
      if (begin == first && (goes_back || ends))
        left[0] = sum;  // by a number, not [begin != first]: that takes local memory
      else if (ends) left[1] = sum;
      else if (offset >= 0) {
        T& slot = table[offset + inner[0]];
        slot = element<T>(combined<C>(op, summand(slot), sum));
      }
    }
    if (!p.next_parts) continue;
    if (r == 0) p.next_offsets[2 * tile] = uint64_t(first_offset), p.next_offsets[2 * tile + 1] = uint64_t(last_offset);
    for (int s = 0; s < 2; ++s) p.next_parts[(2 * tile + s) * p.rest.numel + r] = left[s];
  }
}

/// Rows of a table that positions name, and what goes there.
struct Updates {
  int64_t* offsets;      // of positions, in the table
  int64_t offset_bound;  // all are smaller
  TensorView positions;  // the source at the positions
  Layout<2> rest;        // table, source
};

template <class K, class P> Order sorted_as(Context& ctx, const Updates& u, int64_t n) {
  const Pairs<K, P> from{ctx.scratch_of<K>(n), ctx.scratch_of<P>(n)}, other{ctx.scratch_of<K>(n), ctx.scratch_of<P>(n)};
  launch(ctx, "scatter", grid_of(n), write_order<K, P>, from, u.offsets, n);
  // A bad position has all bits set: so many that no offset has.
  const Pairs<K, P> sorted = sort_pairs(ctx, from, other, n, bits_of(uint64_t(u.offset_bound)));
  return {sorted.keys, sorted.positions, sizeof(K) == 8, n};
}
Order sorted(Context& ctx, const Updates& u) {
  const int64_t n = u.positions.numel();
  if (u.offset_bound < int64_t(UINT32_MAX) && n < int64_t(UINT32_MAX)) return sorted_as<uint32_t, uint32_t>(ctx, u, n);
  return sorted_as<uint64_t, int64_t>(ctx, u, n);
}

/// One element for every position: then it does not matter which one wins.
bool is_constant(V positions) {
  bool constant = true;
  for (int64_t d = 0; !positions.is_scalar && d < positions.rank; ++d)
    constant = constant && (positions.sizes[d] == 1 || positions.strides[d] == 0);
  return constant;
}

void assign(Context& ctx, V table, V source, const Updates& u) {
  const int64_t n = u.positions.numel(), total = n * u.rest.numel;
  const bool agreed = is_constant(u.positions);
  if (n > 1 && !agreed) launch(ctx, "scatter", grid_of(n), drop_overwritten, u.offsets, sorted(ctx, u));
  const Layout<1> positions = layout_of<1>({&u.positions}, false);
  for_all("scatter", table.dtype, [&]<class T>() {
    launch(ctx, "scatter", grid_of(total), put_kernel<T>, table.as<T>(), u.offsets, Source<T>(source), positions,
           u.rest, Split(u.rest.numel, total), agreed);
  });
}

/// One row of the table, as a cache of keys gets for a token: the place is found by the threads that write.
template <class T> __global__ void put_one(T* table, const int64_t* index, int64_t size, int64_t step, bool wrap,
                                           Source<T> source, Layout<2> rest, LateError* error) {
  let_next_begin(), wait_for_previous();
  const int64_t id = place_of(*index, size, wrap);
  if (id < 0) {
    if (blockIdx.x == 0 && threadIdx.x == 0) report_bad_value(error, 0, *index, size);
    return;
  }
  for (const int64_t i : grid_stride(rest.numel)) {
    int64_t at[2];
    rest.offsets(i, at);
    table[id * step + at[0]] = source.at(at[1]);
  }
}

template <class T> void combine_as(Context& ctx, V table, V source, const Updates& u, ScatterOp op) {
  Pass<T> p{.source = Source<T>(source)};
  p.positions = layout_of<1>({&u.positions}, false), p.rest = u.rest;
  p.order = sorted(ctx, u), p.tile = u.rest.numel >= 32 ? 64 : 16;
  // Two places for parts, each read by the pass after the one that wrote it; later passes have fewer.
  const auto tiles = [&] { return (p.order.count + p.tile - 1) / p.tile; };
  uint64_t* offsets[2] = {};
  Sum<T>* parts[2] = {};
  for (int pass = 0;; ++pass) {
    const int64_t now = tiles(), total = now * u.rest.numel;
    const bool ends = now == 1;
    if (!ends && pass < 2) {
      offsets[pass] = ctx.scratch_of<uint64_t>(2 * now);
      parts[pass] = ctx.scratch_of<Sum<T>>(2 * total);
    }
    p.next_offsets = ends ? nullptr : offsets[pass % 2], p.next_parts = ends ? nullptr : parts[pass % 2];
    launch(ctx, "scatter", grid_of(total), combine_tiles<T>, table.as<T>(), p, op, Split(u.rest.numel, total));
    if (ends) return;
    p.order = {p.next_offsets, nullptr, true, 2 * now}, p.parts = p.next_parts;
  }
}
void combine(Context& ctx, V table, V source, const Updates& u, ScatterOp op) {
  for_all("scatter", table.dtype, [&]<class T>() { combine_as<T>(ctx, table, source, u, op); });
}

void scatter_by_lines(Context& ctx, V out, V index, V source, const ScatterParams& params) {
  const int64_t dim = params.dim;
  TensorView to = out, ids = index, from = source;
  Line l{};
  l.n = index.rank ? index.sizes[dim] : 1, l.bound = out.rank ? out.sizes[dim] : 1, l.behind = 1;
  l.out_step = out.rank ? out.strides[dim] : 0, l.index_step = index.rank ? index.strides[dim] : 0;
  l.source_step = source.is_scalar || !index.rank ? 0 : source.strides[dim];
  for (int64_t d = dim + 1; d < index.rank; ++d) l.behind *= index.sizes[d];
  if (index.rank) ids.sizes[dim] = to.sizes[dim] = from.sizes[dim] = 1;
  l.starts = layout_of<3>({&ids, &to, &from}, false);
  std::swap(l.starts.strides[0], l.starts.strides[1]);  // the kernel names out first; the index alone knows the extents
  for_all("scatter", out.dtype, [&]<class T>() {
    launch(ctx, "scatter", grid_of(l.starts.numel), scatter_lines<T>, out.as<T>(), index.as<int64_t>(),
           Source<T>(source), l, params.op, late_error(ctx));
  });
}

/// The dimensions of `v` of which bit d of `dims` is set, with the extents of `shape`.
TensorView chosen(V v, V shape, uint32_t dims) {
  TensorView part = v;
  part.rank = 0;
  for (int64_t d = 0; d < shape.rank; ++d) {
    if (!(dims >> d & 1)) continue;
    part.sizes[part.rank] = shape.sizes[d], part.strides[part.rank] = v.is_scalar ? 0 : v.strides[d];
    ++part.rank;
  }
  return part;
}

}  // namespace

void scatter(Context& ctx, const entry::Scatter& c) {
  const TensorView &out = c.out, &index = c.index, &source = c.source;
  if (index.numel() == 0) return;
  const int64_t dim = c.params.dim, n = index.rank ? index.sizes[dim] : 1, lines = index.numel() / n;
  if (n <= 64 || lines >= 1 << 16) return scatter_by_lines(ctx, out, index, source, c.params);
  // Dimensions that the index repeats along are moved as rows.
  uint32_t rest = 0;
  for (int64_t d = 0; d < index.rank; ++d)
    if (d != dim && index.strides[d] == 0) rest |= 1u << d;
  TensorView base = out, number = numbered(index);
  base.strides[dim] = 0;
  Updates u{};
  for (int64_t d = 0; d < index.rank; ++d)
    if (!(rest >> d & 1))
      u.offset_bound += std::max<int64_t>(0, (d == dim ? out : index).sizes[d] - 1) * out.strides[d];
  ++u.offset_bound;
  const TensorView positions = chosen(index, index, ~rest), named = dimensions(out, dim, 1);
  u.offsets = make_table_offsets(ctx, "scatter", chosen(base, index, ~rest), chosen(number, index, ~rest), named,
                                 {&positions, 1}, false);
  u.positions = chosen(source, index, ~rest);
  const TensorView table_rest = chosen(out, index, rest), source_rest = chosen(source, index, rest);
  u.rest = layout_of<2>({&table_rest, &source_rest});
  if (c.params.op == ScatterOp::Assign) assign(ctx, out, source, u);
  else combine(ctx, out, source, u, c.params.op);
}

void index_put(Context& ctx, const entry::IndexPut& c) {
  const TensorView &out = c.out, &source = c.source;
  const int64_t keys = int64_t(c.indices.size());
  TensorView shape = out;  // of the positions
  if (keys) shape = c.indices[0];
  else shape.rank = 0;
  const TensorView rest_out = dimensions(out, keys, out.rank - keys),
                   rest_source = dimensions(source, shape.rank, out.rank - keys), named = dimensions(out, 0, keys);
  Updates u{};
  u.rest = layout_of<2>({&rest_out, &rest_source});
  if (shape.numel() == 0 || u.rest.numel == 0) return;
  if (keys == 1 && shape.numel() == 1 && !c.params.accumulate)
    return for_all("index_put", out.dtype, [&]<class T>() {
      launch(ctx, "index_put", early(ctx, grid_of(u.rest.numel)), put_one<T>, out.as<T>(), shape.as<int64_t>(),
             out.sizes[0], out.strides[0], c.params.wrap, Source<T>(source), u.rest, late_error(ctx));
    });
  u.positions = dimensions(source, 0, shape.rank);
  if (source.is_scalar) u.positions = shape, u.positions = at_zero(u.positions);
  u.offset_bound = 1;
  for (int64_t d = 0; d < keys; ++d) u.offset_bound += std::max<int64_t>(0, out.sizes[d] - 1) * out.strides[d];
  u.offsets = make_table_offsets(ctx, "index_put", at_zero(shape), numbered(shape), named, c.indices, c.params.wrap);
  if (c.params.accumulate) combine(ctx, out, source, u, ScatterOp::Add);
  else assign(ctx, out, source, u);
}

}  // namespace tapir::inline v0::cuda_kernels
