#pragma once
#include <limits>

#include "../../core/generator.h"
#include "../any.h"
#include "../kernel.h"
#include "attention.h"

// What kernels of attention are given: operands of any strides, masks, a length on the device, dropout.
namespace tapir::inline v0::cuda_kernels {

template <class C> constexpr C kHidden = -std::numeric_limits<C>::infinity();

/// One operand (batch, head, row, column).
struct Heads {
  void* data = nullptr;
  int64_t batch = 0, head = 0, row = 0, column = 0;
  int64_t pack = 1;  // so many neighbours of a row can be read at once: 8 (of 16 bits), 4 or 1
  Heads() = default;
  explicit Heads(V x) {
    if (!x.defined()) return;
    data = x.data, batch = x.strides[0], head = x.strides[1], row = x.strides[2];
    column = x.rank > 3 ? x.strides[3] : 0;
    if (x.rank <= 3 || column != 1) return;
    for (const int64_t n : {4, 8})
      if (x.sizes[3] % n == 0 && batch % n == 0 && head % n == 0 && row % n == 0 &&
          reinterpret_cast<uintptr_t>(data) % size_t(n * size_of(x.dtype)) == 0)
        pack = n;
  }
};
/// Rows of one head.
struct Matrix {
  const void* data;
  int64_t offset, row, column;
  int rows, columns;
  int pack;
};

template <class C> struct Problem {
  DType dtype;
  int64_t batch, heads, groups;
  int queries, keys, depth, width;
  const int64_t* length;  // (optional) of the keys; `error` where it is more than there are
  LateError* error;
  int past;  // causal: how many keys come before that of query 0
  C scale;
  bool causal, mask_hides;  // mask_hides: it is bool
  Heads q, k, v, mask, out, dout, dq, dk, dv;
  uint32_t limit;  // dropout: weights of a word below it are 0, the others times `stay`; 0: all stay as they are
  C stay = 1;
  uint64_t seed, offset;
  const int64_t* base;  // (optional) added to the offset
  C *lse, *delta;       // delta, and in backward lse: (batch, head, query) without gaps
  int64_t lse_batch, lse_head, lse_row;

  __device__ Matrix matrix(const Heads& x, int64_t b, int64_t h, int rows, int columns) const {
    return {x.data, b * x.batch + h * x.head, x.row, x.column, rows, columns, int(x.pack)};
  }
  __device__ int64_t group(int64_t h) const { return h / (heads / groups); }
  __device__ C* lse_at(int64_t b, int64_t h, int64_t i) const {
    return lse + b * lse_batch + h * lse_head + i * lse_row;
  }
  /// Reads the length: keys becomes it.
  __device__ void shorten() {
    if (!length) return;
    const int64_t n = *length;
    if (n < 0 || n > keys) {
      if (blockIdx.x == 0 && threadIdx.x == 0) report_bad_value(error, 0, n, keys);
      return;
    }
    keys = int(n), past = keys - queries;
  }
  /// The product of query i with key j becomes a score.
  __device__ C score(C product, int64_t b, int64_t h, int i, int j) const {
    if (i >= queries || j >= keys || (causal && j > i + past)) return kHidden<C>;
    const C s = product * scale;
    if (!mask.data) return s;
    const int64_t at = b * mask.batch + h * mask.head + i * mask.row + j * mask.column;
    if (mask_hides) return static_cast<const bool*>(mask.data)[at] ? s : kHidden<C>;
    return s + load_float<C>(mask.data, at, dtype);
  }
  /// The random words of query i and the four keys that key j is one of; that of j alone.
  __device__ Philox::Block words(int64_t b, int64_t h, int i, int j) const { return words_at(place(b, h, i, j)); }
  __device__ uint32_t word(int64_t b, int64_t h, int i, int j) const {
    const uint64_t at = place(b, h, i, j);
    const Philox::Block of = words_at(at);
    const int lane = int(at % 4);
    return lane < 2 ? (lane ? of.word[1] : of.word[0]) : lane == 2 ? of.word[2] : of.word[3];
  }
  __device__ Philox::Block words_at(uint64_t place) const {
    return Philox::block(seed, offset + (base ? uint64_t(*base) : 0) + place / 4);
  }
  __device__ uint64_t place(int64_t b, int64_t h, int i, int j) const {
    return uint64_t(((b * heads + h) * queries + i) * keys + j);
  }
  /// What dropout makes of x, which belongs to the weight of query i and key j.
  __device__ C thinned(C x, int64_t b, int64_t h, int i, int j) const {
    return word(b, h, i, j) >> 8 >= limit ? x * stay : C(0);
  }
};

/// The work of a block: tile `tile` of head `head`, columns from `column` on. Long tiles (of causal attention) come first: the last ones,
/// where rows are keys (`ascending`) the first.
struct Work {
  int64_t b, head;
  int row, column;
  __device__ Work(int64_t number, int64_t heads, int rows, int tile_rows, int columns, int width,
                  bool ascending = false) {
    const int chunks = columns > width ? (columns + width - 1) / width : 1, tiles = (rows + tile_rows - 1) / tile_rows;
    column = int(number % chunks) * width, number /= chunks;
    head = number % heads, number /= heads;
    const int tile = int(number % tiles);
    row = (ascending ? tile : tiles - 1 - tile) * tile_rows, b = number / tiles;
  }
  static int64_t count(int64_t batch, int64_t heads, int rows, int tile_rows, int columns, int width) {
    return batch * heads * ((rows + tile_rows - 1) / tile_rows) * std::max(1, (columns + width - 1) / width);
  }
};

/// Blocks that share the keys of a tile of queries: each leaves, of each query, the sums of its part, its largest score and the sum of its
/// weights; join_rows() makes a result of them.
template <class C> struct KeySplit {
  int count = 1;
  C* numbers = nullptr;  // (row, part, width + 2)
  __device__ C* at(int64_t row, int part, int width) const { return numbers + (row * count + part) * (width + 2); }
  /// How many of `seen` keys a part has, in whole tiles.
  __device__ int share(int seen, int tile) const {
    return seen > 0 ? (seen + count * tile - 1) / (count * tile) * tile : 0;
  }
};

/// A mask that says how many keys there are.
inline bool is_length(V mask) { return mask.defined() && mask.dtype == kInt64; }

template <class C> Problem<C> problem_of(V q, V k, V v, V mask, V lse, V base, const AttentionParams& params) {
  Problem<C> p{};
  p.dtype = q.dtype, p.batch = q.sizes[0], p.heads = q.sizes[1], p.groups = k.sizes[1];
  p.queries = int(q.sizes[2]), p.keys = int(k.sizes[2]), p.depth = int(q.sizes[3]), p.width = int(v.sizes[3]);
  p.scale = C(params.scale), p.causal = params.causal, p.mask_hides = mask.dtype == kBool;
  if (params.dropout_p > 0) {
    p.limit = Philox::drop_limit(params.dropout_p), p.stay = C(Philox::keep_scale(params.dropout_p));
    p.seed = params.seed, p.offset = params.offset, p.base = base.defined() ? base.as<int64_t>() : nullptr;
  }
  p.q = Heads(q), p.k = Heads(k), p.v = Heads(v), p.mask = Heads(mask);
  if (lse.defined())
    p.lse = lse.as<C>(), p.lse_batch = lse.strides[0], p.lse_head = lse.strides[1], p.lse_row = lse.strides[2];
  return p;
}

}  // namespace tapir::inline v0::cuda_kernels
