// Note [Attention of one query]
// As of a token that is decoded. A group of lanes takes keys and their values, kEach columns to a lane, all packs of several keys asked for
// at once; it keeps its own maximum and sums (attention.cu, Note [Attention by tiles]). They are joined at the end, always in the same order: groups of
// a warp, warps, and where many keys are shared by several blocks their parts, by a second kernel. Where few heads leave multiprocessors idle, two
// blocks share the columns of the values. A row that is put into the keys and values (entry PutAttention) is read where it comes from by all
// blocks, so that none waits for the one that writes it.
#include <algorithm>

#include "../../core/dispatch.h"
#include "../index/places.h"
#include "early_launch.h"
#include "problem.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kEach = 8;             // columns of a lane
constexpr int kWidest = 32 * kEach;  // columns of q and v at most
constexpr int kAheadKeys = 128;      // of a block, that come near before it may begin
/// What warps leave: sums, the largest score, the sum of the weights.
template <class C> struct alignas(16) OfWarp { C sums[kWidest], top, total; };

/// Row `index` of the keys and values becomes what lies at k and v (batch, group, 1, column); without data there those stay.
struct PutRow {
  const int64_t* index = nullptr;  // null: nothing is put
  int64_t size = 0;
  Heads k, v;
  bool wrap = false;
  LateError* error = nullptr;
};

/// How blocks share a head: parts of the keys, and pieces of `columns` columns of the values.
struct Shares {
  int parts = 1, pieces = 1, columns = 0, lanes = 1;  // lanes: of a group
};

/// As OfWarp for each part: (head, part, width + 2).
template <class C> __device__ C* part_at(C* parts, const Shares& s, int64_t head, int part, int width) {
  return parts + (head * s.parts + part) * (width + 2);
}

template <class T, int P> struct Columns {
  Pack<T, P> packs[kEach / P];
  __device__ __forceinline__ Compute<T> at(int i) const { return widen(packs[i / P].of[i % P]); }
};
/// The columns of a row from `first` on, 0 from `end` on.
template <class T, int P>
__device__ __forceinline__ void load_columns(const T* row, int64_t step, int first, int end, Columns<T, P>& to) {
#pragma unroll
  for (int i = 0; i < kEach; i += P) {
    to.packs[i / P] = {};
    if (first + i >= end) continue;
    if constexpr (P > 1) to.packs[i / P] = *reinterpret_cast<const Pack<T, P>*>(row + first + i);
    else to.packs[i].of[0] = row[(first + i) * step];
  }
}

/// What a group of lanes has seen: sums for its columns of the values.
template <class C> struct Running {
  C sums[kEach] = {}, top = kHidden<C>, total = 0;
  /// As if `most` had been the largest score; nothing seen yet counts as 0.
  __device__ C rescale(C most) {
    const C shift = most == kHidden<C> ? C(0) : most, factor = math::exp(top - shift);
    for (C& sum : sums) sum *= factor;
    total *= factor, top = most;
    return shift;
  }
};
template <class C> __device__ C larger(C a, C b) { return a > b ? a : b; }

/// One head's rows.
template <class T> struct Rows {
  const T* data;
  int64_t row, column;
  const T* put;  // null: none is
  int64_t put_column;
  __device__ Rows(const Heads& x, const Heads& put, bool puts, int64_t b, int64_t h)
      : data(static_cast<const T*>(x.data) + b * x.batch + h * x.head), row(x.row), column(x.column),
        put(puts && put.data ? static_cast<const T*>(put.data) + b * put.batch + h * put.head : nullptr),
        put_column(put.column) {}
  template <int P> __device__ void load(int64_t j, int64_t id, int first, int end, Columns<T, P>& to) const {
    const bool own = put && j == id;
    load_columns<T, P>(own ? put : data + j * row, own ? put_column : column, first, end, to);
  }
  __device__ void write(int64_t id, int columns) const {
    if (!put) return;
    T* const to = const_cast<T*>(data) + id * row;
    for (int i = int(threadIdx.x); i < columns; i += kThreads) to[i * column] = put[i * put_column];
  }
};

/// Keys first, first + groups, ... below `last` by a group; all lanes of a warp loop alike.
template <class T, int P, class C>
__device__ __forceinline__ Running<C> see_keys(const Problem<C>& p, const Rows<T>& keys, const Rows<T>& values,
                                               int64_t b, int64_t h, int64_t id, const Shares& s, int first, int last,
                                               int column, int end) {
  constexpr int U = P * sizeof(T) < 16 || sizeof(T) == 8 ? 1 : 8 / int(sizeof(T));
  const int d = int(threadIdx.x) % s.lanes * kEach, group = int(threadIdx.x) / s.lanes, groups = kThreads / s.lanes;
  Columns<T, P> q;
  load_columns(static_cast<const T*>(p.q.data) + b * p.q.batch + h * p.q.head, p.q.column, d, p.depth, q);
  Running<C> r;
  for (int at = first; at + group / (32 / s.lanes) * (32 / s.lanes) < last; at += groups * U) {
    Columns<T, P> k[U], v[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int j = at + u * groups + group;
      keys.load(j, id, d, j < last ? p.depth : 0, k[u]), values.load(j, id, column + d, j < last ? end : 0, v[u]);
    }
    C score[U], most = r.top;
#pragma unroll
    for (int u = 0; u < U; ++u) {
      score[u] = 0;
#pragma unroll
      for (int i = 0; i < kEach; ++i) score[u] += q.at(i) * k[u].at(i);
    }
    for (int bit = s.lanes / 2; bit > 0; bit /= 2)
#pragma unroll
      for (int u = 0; u < U; ++u) score[u] += shuffle_xor(score[u], bit);
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int j = at + u * groups + group;
      score[u] = j < last ? p.score(score[u], b, h, 0, j) : kHidden<C>;
      most = larger(score[u], most);
    }
    const C shift = r.rescale(most);
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const C weight = math::exp(score[u] - shift);
      r.total += weight;
#pragma unroll
      for (int i = 0; i < kEach; ++i) r.sums[i] += weight * v[u].at(i);
    }
  }
  return r;
}

/// Over the groups of each warp.
template <class C> __device__ void join_groups(Running<C>& r, const Shares& s, OfWarp<C>& to) {
  C most = r.top;
  for (int bit = s.lanes; bit < 32; bit *= 2) most = larger(shuffle_xor(most, bit), most);
  r.rescale(most);
  for (int bit = s.lanes; bit < 32; bit *= 2) {
    r.total += shuffle_xor(r.total, bit);
#pragma unroll
    for (int i = 0; i < kEach; ++i) r.sums[i] += shuffle_xor(r.sums[i], bit);
  }
  const int lane = int(threadIdx.x) % 32;
  if (lane >= s.lanes) return;
#pragma unroll
  for (int i = 0; i < kEach; i += kPackSize<C>) {
    Pack<C, kPackSize<C>> part;
#pragma unroll
    for (int l = 0; l < kPackSize<C>; ++l) part.of[l] = r.sums[i + l];
    *reinterpret_cast<Pack<C, kPackSize<C>>*>(to.sums + lane * kEach + i) = part;
  }
  if (lane == 0) to.top = most, to.total = r.total;
}

/// Of `count` warps or parts: the sum of what sum(i) gives, with the largest scores top(i) and totals total(i).
template <class C> struct Joined {
  C sum = 0, top = kHidden<C>, total = 0;
  template <class Sum, class Top, class Total>
  __device__ Joined(int count, Sum&& sum_of, Top&& top_of, Total&& total_of) {
    for (int i = 0; i < count; ++i) top = larger(top_of(i), top);
    const C shift = top == kHidden<C> ? C(0) : top;
    for (int i = 0; i < count; ++i) {
      const C factor = math::exp(top_of(i) - shift);
      sum += sum_of(i) * factor, total += total_of(i) * factor;
    }
  }
  /// A query that sees nothing gives 0 and -inf.
  __device__ C mean() const { return total == 0 ? C(0) : sum / total; }
  __device__ C lse() const { return total == 0 ? kHidden<C> : top + math::log(total); }
};

/// Keys and values of the block's head come near: those of the first places, whether the head has them or not.
template <class T, class C> __device__ void fetch_rows(const Problem<C>& p, int64_t head) {
  constexpr int kRun = 32 / int(sizeof(T));
  const int64_t b = head / p.heads, g = p.group(head % p.heads);
  const int rows = p.keys < kAheadKeys ? p.keys : kAheadKeys;
  const auto fetch = [&](const Heads& x, int columns) {
    const int runs = (columns + kRun - 1) / kRun;
    const T* const from = static_cast<const T*>(x.data) + b * x.batch + g * x.head;
    for (int i = int(threadIdx.x); i < rows * runs; i += kThreads)
      fetch_ahead(from + i / runs * x.row + i % runs * kRun);
  };
  fetch(p.k, p.depth), fetch(p.v, p.width);
}

template <class T, int P, class C> __global__ void __launch_bounds__(kThreads, 1)
    attention_of_one(Problem<C> p, PutRow put, Shares s, C* parts) {
  __shared__ OfWarp<C> warps[kWarps];
  const int64_t each = int64_t(s.parts) * s.pieces;
  let_next_begin();
  if (s.parts == 1 && P > 1) fetch_rows<T>(p, blockIdx.x / each);
  wait_for_previous();
  const int64_t id = put.index ? place_of(*put.index, put.size, put.wrap) : -1;
  if (put.index && id < 0 && blockIdx.x == 0 && threadIdx.x == 0) report_bad_value(put.error, 0, *put.index, put.size);
  p.shorten();
  const int seen = p.causal && p.past + 1 < p.keys ? p.past + 1 : p.keys, size = (seen + s.parts - 1) / s.parts;
  for (int64_t number = blockIdx.x; number < p.batch * p.heads * each; number += gridDim.x) {
    const int64_t head = number / each, b = head / p.heads, h = head % p.heads, g = p.group(h);
    const int part = int(number % each) / s.pieces, column = int(number % each) % s.pieces * s.columns;
    const int end = column + s.columns, first = part * size, last = first + size < seen ? first + size : seen;
    const Rows<T> keys(p.k, put.k, id >= 0, b, g), values(p.v, put.v, id >= 0, b, g);
    Running<C> r = see_keys<T, P>(p, keys, values, b, h, id, s, first, last, column, end);
    join_groups(r, s, warps[threadIdx.x / 32]);
    __syncthreads();
    C* const own = parts ? part_at(parts, s, head, part, p.width) : nullptr;
    T* const out = static_cast<T*>(p.out.data) + b * p.out.batch + h * p.out.head;
    for (int w = int(threadIdx.x); w < s.columns; w += kThreads) {
      const Joined<C> j(
          kWarps, [&](int i) { return warps[i].sums[w]; }, [&](int i) { return warps[i].top; },
          [&](int i) { return warps[i].total; });
      if (own) own[w] = j.sum;
      else out[(column + w) * p.out.column] = narrow<T>(j.mean());
      if (own && w == 0) own[p.width] = j.top, own[p.width + 1] = j.total;
      if (p.lse && !own && column + w == 0) *p.lse_at(b, h, 0) = j.lse();
    }
    if (h % (p.heads / p.groups) == 0 && part == 0 && column == 0) keys.write(id, p.depth), values.write(id, p.width);
    __syncthreads();
  }
}
/// A block to a head.
template <class T, class C> __global__ void __launch_bounds__(kThreads)
    join_parts(Problem<C> p, Shares s, const C* parts) {
  let_next_begin(), wait_for_previous();
  for (int64_t head = blockIdx.x; head < p.batch * p.heads; head += gridDim.x) {
    const int64_t b = head / p.heads, h = head % p.heads;
    T* const out = static_cast<T*>(p.out.data) + b * p.out.batch + h * p.out.head;
    const auto part = [&](int i, int at) { return part_at(parts, s, head, i, p.width)[at]; };
    for (int w = int(threadIdx.x); w < p.width; w += kThreads) {
      const Joined<C> j(
          s.parts, [&](int i) { return part(i, w); }, [&](int i) { return part(i, p.width); },
          [&](int i) { return part(i, p.width + 1); });
      out[w * p.out.column] = narrow<T>(j.mean());
      if (p.lse && w == 0) *p.lse_at(b, h, 0) = j.lse();
    }
  }
}

/// A part of its own for each 64 KiB of keys and values where a head has many, but no more than four blocks for a multiprocessor: alone, a
/// block reads some 100 GB/s, and to join parts takes a kernel.
template <class C> Shares shares_of(Context& ctx, const Problem<C>& p) {
  constexpr int64_t kAlone = 192 << 10;
  const int64_t heads = p.batch * p.heads, processors = multiprocessors(ctx.device),
                bytes = int64_t(p.keys) * (p.depth + p.width) * size_of(p.dtype);
  Shares s;
  if (bytes > kAlone) s.parts = int(std::clamp<int64_t>(4 * processors / heads, 1, bytes >> 16));
  if (s.parts == 1 && 2 * heads <= processors && p.width % (2 * kEach) == 0) s.pieces = 2;
  s.columns = p.width / s.pieces;
  while (s.lanes * kEach < std::max(p.depth, s.columns)) s.lanes *= 2;
  return s;
}

template <class T, int P, class C> void run_packs(Context& ctx, const Problem<C>& p, const PutRow& put) {
  const Shares s = shares_of(ctx, p);
  const int64_t heads = p.batch * p.heads;
  C* const parts = s.parts > 1 ? ctx.scratch_of<C>(heads * s.parts * (p.width + 2)) : nullptr;
  const auto blocks = [&](int64_t n) { return early(ctx, Grid{grid_of(n, 1).blocks, dim3(kThreads)}); };
  launch(ctx, "attention", blocks(heads * s.parts * s.pieces), attention_of_one<T, P, C>, p, put, s, parts);
  if (parts) launch(ctx, "attention", blocks(heads), join_parts<T, C>, p, s, parts);
}
template <class C> void run(Context& ctx, const Problem<C>& p, const PutRow& put) {
  int64_t pack = std::min({p.q.pack, p.k.pack, p.v.pack});
  for (const Heads* x : {&put.k, &put.v})
    if (x->data) pack = std::min(pack, x->pack);
  const auto as = [&]<class T>() {
    constexpr int P = kPackSize<T>;
    if (pack >= P) return run_packs<T, P>(ctx, p, put);
    if constexpr (P > 4)
      if (pack >= 4) return run_packs<T, 4>(ctx, p, put);
    run_packs<T, 1>(ctx, p, put);
  };
  if constexpr (std::is_same_v<C, double>) as.template operator()<double>();
  else if (p.dtype == kFloat32) as.template operator()<float>();
  else if (p.dtype == kFloat16) as.template operator()<Half>();
  else as.template operator()<BFloat16>();
}

/// x, whose dimensions are the key and in any order batch, group, column and perhaps a pair, as (batch, group, key, column); number `which`
/// of the pair.
TensorView heads_of(V x, const int64_t (&dims)[4], int64_t which) {
  TensorView v = x;
  v.rank = 4;
  const int64_t from[] = {dims[0], dims[1], 0, dims[2]};
  for (int64_t d = 0; d < 4; ++d) v.sizes[d] = x.sizes[from[d]], v.strides[d] = x.strides[from[d]];
  if (x.rank == 5) v.data = x.as<char>() + which * x.strides[dims[3]] * size_of(x.dtype);
  return v;
}
bool same_heads(V a, V b) {
  bool same = a.data == b.data && a.dtype == b.dtype;
  for (int64_t d = 0; d < 4; ++d)
    same = same && a.sizes[d] == b.sizes[d] && (a.sizes[d] == 1 || a.strides[d] == b.strides[d]);
  return same;
}
/// Do the bytes between their first and last elements meet?
bool may_meet(V a, V b) {
  const auto end = [](V v) {
    int64_t last = 0;
    for (int64_t d = 0; d < v.rank; ++d) last += (v.sizes[d] - 1) * v.strides[d];
    return static_cast<const char*>(v.data) + (last + 1) * size_of(v.dtype);
  };
  return a.numel() > 0 && b.numel() > 0 && a.data < end(b) && b.data < end(a);
}
/// Is the table the keys, the values, or a pair of both? What is not lies elsewhere.
bool row_of(const entry::PutAttention& c, PutRow& put) {
  const TensorView &table = c.table, &source = c.source;
  const bool pair = table.rank == 5;
  if (!(pair || table.rank == 4) || source.is_scalar || source.rank != table.rank || source.sizes[0] != 1) return false;
  for (int64_t d = 1; d < table.rank; ++d)
    if (source.sizes[d] != table.sizes[d]) return false;
  int64_t dims[] = {1, 2, 3, 4};
  bool is_keys, is_values;
  do {
    is_keys = same_heads(heads_of(table, dims, 0), c.k), is_values = same_heads(heads_of(table, dims, pair), c.v);
    if (pair) is_keys = is_values = is_keys && is_values && table.sizes[dims[3]] == 2;
  } while (!is_keys && !is_values && std::next_permutation(dims, dims + table.rank - 1));
  if (is_keys) put.k = Heads(heads_of(source, dims, 0));
  if (is_values) put.v = Heads(heads_of(source, dims, pair));
  put.index = c.index.as<int64_t>(), put.size = table.sizes[0], put.wrap = c.params.wrap;
  return (is_keys || is_values) && (is_keys || !may_meet(table, c.k)) && (is_values || !may_meet(table, c.v));
}

template <class C> bool suits(const Problem<C>& p) {
  return p.queries == 1 && !p.limit && p.depth <= kWidest && p.width <= kWidest && p.width > 0;
}

}  // namespace

template <class C> bool one_query_attention(Context& ctx, const Problem<C>& p) {
  if (suits(p)) run(ctx, p, {});
  return suits(p);
}
template bool one_query_attention(Context&, const Problem<float>&);
template bool one_query_attention(Context&, const Problem<double>&);

void put_attention(Context& ctx, const entry::PutAttention& c) {
  const AttentionParams params{.scale = c.params.scale, .causal = c.params.causal};
  PutRow put;
  bool done = false;
  if (c.q.numel() > 0 && row_of(c, put))
    for_floats("put_attention", compute_type(c.q.dtype), [&]<class C>() {
      Problem<C> p = problem_of<C>(c.q, c.k, c.v, {}, {}, {}, params);
      p.out = Heads(c.out), p.length = c.keys.as<int64_t>();
      if (!(done = suits(p))) return;
      p.error = put.error = late_error(ctx);  // one place: compile() names one
      run(ctx, p, put);
    });
  if (done) return;
  const TensorView index[] = {c.index};
  index_put(ctx, {c.table, c.source, index, {.wrap = c.params.wrap}});
  const int place = ctx.late_error;
  attention(ctx, {.out = c.out, .q = c.q, .k = c.k, .v = c.v, .mask = c.keys, .params = params});
  ctx.late_error = place;  // the first that may be refused is the one that compile() names
}

}  // namespace tapir::inline v0::cuda_kernels
