// Note [Attention by tiles]
// A block owns a tile of rows and streams tiles of the other side through shared memory; scores never leave the chip.
// Forward (Milakov and Gimelshein 2018, arXiv 1805.02867; Dao et al. 2022, arXiv 2205.14135): rows are queries, each keeps its running
// maximum and sum. Backward: the weights are e^(score - lse) again, and with delta = sum(dout out)
//   dv = P^T dout,   dS = scale P (dout v^T - delta),   dq = dS k,   dk = dS^T q,
// each a pass of its own whose rows are queries (dq) or keys (dk, dv): every sum has one owner and a fixed order. 16 x 16 threads hold
// kRows x kRows scores each. All products are in float (double for float64). Where warp_attention*.cu serves, these do not.
#include "../../core/dispatch.h"
#include "../launch.h"
#include "problem.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

constexpr int kThreads = 256, kStep = 32;               // kStep: how deep operands are read at a time
template <class C> constexpr int kRows = kPackSize<C>;  // of a thread: one access of 16 bytes
template <class C> constexpr int kTile = 16 * kRows<C>;

template <class C, class F> __device__ void with_float(DType dtype, F&& f) {
  if constexpr (std::is_same_v<C, double>) f.template operator()<double>();
  else if (dtype == kFloat32) f.template operator()<float>();
  else if (dtype == kFloat16) f.template operator()<Half>();
  else f.template operator()<BFloat16>();
}

/// Elements column to column + 3 of a row; 0 outside.
template <class C, class T> __device__ Pack<C, 4> four_of(const Matrix& m, int row, int column) {
  Pack<C, 4> out{};
  if (row >= m.rows || column >= m.columns) return out;
  const T* const from = static_cast<const T*>(m.data) + m.offset + row * m.row + column * m.column;
  if (m.pack >= 4) {
    const Pack<T, 4> v = *reinterpret_cast<const Pack<T, 4>*>(from);
    for (int i = 0; i < 4; ++i) out.of[i] = widen(v.of[i]);
  } else {
    for (int i = 0; i < 4; ++i)
      if (column + i < m.columns) out.of[i] = widen(from[i * m.column]);
  }
  return out;
}

/// Where row `row` of column `k` of a tile stands: columns are kTile apart; groups of rows are swapped, so that writing four columns at
/// once and reading a group meet no bank twice.
template <class C> __device__ int slot(int k, int row) { return k * kTile<C> + (row ^ (k / 4 % 8 * kRows<C>)); }

/// kTile rows and kStep columns of a matrix, transposed.
template <class C> __device__ void load_columns(C* to, DType dtype, const Matrix& m, int row0, int column0) {
  with_float<C>(dtype, [&]<class T>() {
    for (int e = int(threadIdx.x); e < kTile<C> * (kStep / 4); e += kThreads) {
      const int row = e / (kStep / 4), k = e % (kStep / 4) * 4;
      const Pack<C, 4> v = four_of<C, T>(m, row0 + row, column0 + k);
      for (int i = 0; i < 4; ++i) to[slot<C>(k + i, row)] = v.of[i];
    }
  });
}
/// kStep rows and W columns of a matrix.
template <class C, int W> __device__ void load_rows(C* to, DType dtype, const Matrix& m, int row0, int column0) {
  with_float<C>(dtype, [&]<class T>() {
    for (int e = int(threadIdx.x); e < kStep * (W / 4); e += kThreads) {
      const int row = e / (W / 4), column = e % (W / 4) * 4;
      const Pack<C, 4> v = four_of<C, T>(m, row0 + row, column0 + column);
      for (int i = 0; i < 4; ++i) to[row * W + column + i] = v.of[i];
    }
  });
}

template <class C> using Scores = C[kRows<C>][kRows<C>];
template <class C> __device__ Pack<C, kRows<C>> pack_at(const C* p) {
  return *reinterpret_cast<const Pack<C, kRows<C>>*>(p);
}

/// s = a b^T for the rows of both from a0 and b0 on; `shared` has room for two tiles of kStep columns.
template <class C>
__device__ void product(Scores<C>& s, C* shared, DType dtype, const Matrix& a, int a0, const Matrix& b, int b0) {
  constexpr int R = kRows<C>;
  C* const other = shared + kTile<C> * kStep;
  const int y = int(threadIdx.x) / 16 * R, x = int(threadIdx.x) % 16 * R;
  for (int i = 0; i < R; ++i)
    for (int j = 0; j < R; ++j) s[i][j] = 0;
  for (int d = 0; d < a.columns; d += kStep) {
    __syncthreads();
    load_columns(shared, dtype, a, a0, d), load_columns(other, dtype, b, b0, d);
    __syncthreads();
    for (int k = 0; k < kStep; ++k) {
      const Pack<C, R> left = pack_at(shared + slot<C>(k, y)), right = pack_at(other + slot<C>(k, x));
      for (int i = 0; i < R; ++i)
        for (int j = 0; j < R; ++j) s[i][j] += left.of[i] * right.of[j];
    }
  }
}

/// sums += weights x, for W columns of x from column0 on; weights are the block's scores, which every thread brings.
template <class C, int W> __device__ void accumulate(C (&sums)[kRows<C>][W / 16], const Scores<C>& weights, C* tile,
                                                     C* shared, DType dtype, const Matrix& x, int row0, int column0) {
  constexpr int R = kRows<C>;
  const int own_y = int(threadIdx.x) / 16 * R, own_x = int(threadIdx.x) % 16 * R;
  __syncthreads();  // the tile before is used up
  for (int j = 0; j < R; ++j) {
    Pack<C, R> column;
    for (int i = 0; i < R; ++i) column.of[i] = weights[i][j];
    *reinterpret_cast<Pack<C, R>*>(tile + slot<C>(own_x + j, own_y)) = column;
  }
  for (int k0 = 0; k0 < kTile<C> && row0 + k0 < x.rows; k0 += kStep) {
    __syncthreads();
    load_rows<C, W>(shared, dtype, x, row0 + k0, column0);
    __syncthreads();
    for (int k = 0; k < kStep; ++k) {
      const Pack<C, R> w = pack_at(tile + slot<C>(k0 + k, own_y));
      for (int m = 0; m < W / (16 * R); ++m) {
        const Pack<C, R> v = pack_at(shared + k * W + m * 16 * R + own_x);
        for (int i = 0; i < R; ++i)
          for (int j = 0; j < R; ++j) sums[i][m * R + j] += w.of[i] * v.of[j];
      }
    }
  }
}

/// Writes the thread's part of kTile rows and W columns.
template <class C, int W>
__device__ void store_tile(const C (&sums)[kRows<C>][W / 16], DType dtype, const Matrix& to, int row0, int column0) {
  constexpr int R = kRows<C>;
  const int y = int(threadIdx.x) / 16 * R, x = int(threadIdx.x) % 16 * R;
  with_float<C>(dtype, [&]<class T>() {
    T* const data = static_cast<T*>(const_cast<void*>(to.data)) + to.offset;
    for (int i = 0; i < R; ++i)
      for (int m = 0; m < W / 16; ++m) {
        const int row = row0 + y + i, column = column0 + m / R * 16 * R + x + m % R;
        if (row < to.rows && column < to.columns) data[row * to.row + column * to.column] = narrow<T>(sums[i][m]);
      }
  });
}

/// kDrops: apart, for dropout takes registers.
template <class C, int W, bool kDrops> __global__ void __launch_bounds__(kThreads)
    attention_forward(Problem<C> p, int64_t total) {
  constexpr int R = kRows<C>, T = kTile<C>;
  p.shorten();
  C *const tile = dynamic_shared<C>(), *const shared = tile + T * T;
  const int y = int(threadIdx.x) / 16 * R, x = int(threadIdx.x) % 16 * R;
  for (int64_t number = blockIdx.x; number < total; number += gridDim.x) {
    const Work work(number, p.heads, p.queries, T, p.width, W);
    const int64_t b = work.b, h = work.head, g = p.group(h);
    const Matrix q = p.matrix(p.q, b, h, p.queries, p.depth), k = p.matrix(p.k, b, g, p.keys, p.depth),
                 v = p.matrix(p.v, b, g, p.keys, p.width), out = p.matrix(p.out, b, h, p.queries, p.width);
    C sums[R][W / 16] = {}, top[R], total_weight[R];
    for (int i = 0; i < R; ++i) top[i] = kHidden<C>, total_weight[i] = 0;
    const int seen = p.causal && work.row + T + p.past < p.keys ? work.row + T + p.past : p.keys;
    for (int j0 = 0; j0 < seen; j0 += T) {
      Scores<C> s;
      product<C>(s, shared, p.dtype, q, work.row, k, j0);
      for (int i = 0; i < R; ++i) {
        C most = top[i], weight = 0;  // over the 16 threads that share the row
        for (int j = 0; j < R; ++j) {
          s[i][j] = p.score(s[i][j], b, h, work.row + y + i, j0 + x + j);
          most = s[i][j] > most ? s[i][j] : most;
        }
        most = warp_fold(
            most, [](C a, C c) { return a > c ? a : c; }, 16);
        const C shift = most == kHidden<C> ? C(0) : most;  // nothing seen yet
        for (int j = 0; j < R; ++j) weight += s[i][j] = math::exp(s[i][j] - shift);
        const C factor = math::exp(top[i] - shift);
        total_weight[i] = total_weight[i] * factor + warp_fold(weight, Plus{}, 16), top[i] = most;
        for (int m = 0; m < W / 16; ++m) sums[i][m] *= factor;
      }
      if constexpr (kDrops) {
#pragma unroll
        for (int i = 0; i < R; ++i)
#pragma unroll
          for (int j = 0; j < R; ++j) s[i][j] = p.thinned(s[i][j], b, h, work.row + y + i, j0 + x + j);
      }
      accumulate<C, W>(sums, s, tile, shared, p.dtype, v, j0, work.column);
    }
    for (int i = 0; i < R; ++i) {
      const C share = total_weight[i] == 0 ? C(0) : 1 / total_weight[i];  // a query that sees nothing
      for (int m = 0; m < W / 16; ++m) sums[i][m] *= share;
      if (p.lse && x == 0 && work.column == 0 && work.row + y + i < p.queries)
        *p.lse_at(b, h, work.row + y + i) = total_weight[i] == 0 ? kHidden<C> : top[i] + math::log(total_weight[i]);
    }
    store_tile<C, W>(sums, p.dtype, out, work.row, work.column);
  }
}

/// delta = sum(dout out) of each query; a warp to a row.
template <class C> __global__ void attention_delta(Problem<C> p) {
  const int64_t rows = p.batch * p.heads * p.queries, warps = int64_t(gridDim.x) * (blockDim.x / 32);
  for (int64_t row = blockIdx.x * int64_t(blockDim.x / 32) + threadIdx.x / 32; row < rows; row += warps) {
    const int64_t h = row / p.queries, i = row - h * p.queries;
    const Matrix out = p.matrix(p.out, h / p.heads, h % p.heads, p.queries, p.width),
                 dout = p.matrix(p.dout, h / p.heads, h % p.heads, p.queries, p.width);
    C sum = 0;
    for (int w = int(threadIdx.x % 32); w < p.width; w += 32)
      sum += load_float<C>(out.data, out.offset + i * out.row + w * out.column, p.dtype) *
             load_float<C>(dout.data, dout.offset + i * dout.row + w * dout.column, p.dtype);
    sum = warp_fold(sum, Plus{});
    if (threadIdx.x % 32 == 0) p.delta[row] = sum;
  }
}

enum class Gradient { Query, Key, Value };

/// What the block's rows weigh: products become weights P (of dv) or dS. `flipped`: rows are keys, columns are queries.
template <Gradient of, class C> __device__ void weigh(const Problem<C>& p, Scores<C>& s, const Scores<C>& d, int64_t b,
                                                      int64_t h, int row, int column) {
  constexpr bool flipped = of != Gradient::Query;
#pragma unroll
  for (int i = 0; i < kRows<C>; ++i) {
    const int query = (flipped ? column : row) + i;
    const C lse = query < p.queries ? *p.lse_at(b, h, query) : C(0), shift = lse == kHidden<C> ? C(0) : lse;
    C delta = 0;
    if (of != Gradient::Value && query < p.queries) delta = p.delta[(b * p.heads + h) * p.queries + query];
#pragma unroll
    for (int j = 0; j < kRows<C>; ++j) {
      C& weight = flipped ? s[j][i] : s[i][j];
      const C score = p.score(weight, b, h, query, (flipped ? row : column) + j);
      weight = score == kHidden<C> && lse == lse
                   ? C(0)
                   : math::exp(score - shift);  // a hidden key has weight 0 whatever its value
      if (weight == 0) continue;
      C part = of == Gradient::Value ? weight : flipped ? d[j][i] : d[i][j];
      if (p.limit) part = p.thinned(part, b, h, query, (flipped ? row : column) + j);
      weight = of == Gradient::Value ? part : p.scale * weight * (part - delta);
    }
  }
}

template <Gradient of, class C, int W> __global__ void __launch_bounds__(kThreads, 2)
    attention_gradient(Problem<C> p, int64_t total) {
  constexpr int R = kRows<C>, T = kTile<C>;
  C *const tile = dynamic_shared<C>(), *const shared = tile + T * T;
  constexpr bool flipped = of != Gradient::Query;  // known to the compiler: a matrix chosen later lies in local memory
  const int y = int(threadIdx.x) / 16 * R, x = int(threadIdx.x) % 16 * R;
  const int rows = flipped ? p.keys : p.queries, columns = of == Gradient::Value ? p.width : p.depth;
  const int64_t owners = flipped ? p.groups : p.heads, repeats = flipped ? p.heads / p.groups : 1;
  for (int64_t number = blockIdx.x; number < total; number += gridDim.x) {
    const Work work(number, owners, rows, T, columns, W);
    const int64_t b = work.b;
    C sums[R][W / 16] = {};
    for (int64_t h = work.head * repeats; h < (work.head + 1) * repeats; ++h) {
      const int64_t g = p.group(h);
      const Matrix q = p.matrix(p.q, b, h, p.queries, p.depth), k = p.matrix(p.k, b, g, p.keys, p.depth),
                   v = p.matrix(p.v, b, g, p.keys, p.width), dout = p.matrix(p.dout, b, h, p.queries, p.width);
      // Causal: queries see keys up to their own number, keys are seen by queries from theirs on.
      int first = 0, last = flipped ? p.queries : p.keys;
      if (p.causal && flipped) first = work.row;
      else if (p.causal && work.row + T < last) last = work.row + T;
      for (int c0 = first; c0 < last; c0 += T) {
        Scores<C> s, d;
        product<C>(s, shared, p.dtype, flipped ? k : q, work.row, flipped ? q : k, c0);
        if (of != Gradient::Value) product<C>(d, shared, p.dtype, flipped ? v : dout, work.row, flipped ? dout : v, c0);
        weigh<of, C>(p, s, d, b, h, work.row + y, c0 + x);
        accumulate<C, W>(sums, s, tile, shared, p.dtype,
                         of == Gradient::Query ? k
                         : of == Gradient::Key ? q
                                               : dout,
                         c0, work.column);
      }
    }
    const Heads& to = of == Gradient::Query ? p.dq : of == Gradient::Key ? p.dk : p.dv;
    store_tile<C, W>(sums, p.dtype, p.matrix(to, b, work.head, rows, columns), work.row, work.column);
  }
}

template <class C, int W> Grid grid_of_tiles(int64_t total) {
  const int bytes = int(sizeof(C)) * (kTile<C> * kTile<C> + std::max(2 * kTile<C> * kStep, kStep * W));
  return {dim3(unsigned(std::min<int64_t>(total, 1 << 16))), dim3(kThreads), size_t(bytes)};
}

template <class C, int W> void run_forward(Context& ctx, const Problem<C>& p) {
  const int64_t total = Work::count(p.batch, p.heads, p.queries, kTile<C>, p.width, W);
  launch(ctx, "attention", grid_of_tiles<C, W>(total),
         p.limit ? attention_forward<C, W, true> : attention_forward<C, W, false>, p, total);
}
template <Gradient of, class C, int W> void run_gradient(Context& ctx, const Problem<C>& p) {
  const bool by_key = of != Gradient::Query;
  const int64_t total = Work::count(p.batch, by_key ? p.groups : p.heads, by_key ? p.keys : p.queries, kTile<C>,
                                    of == Gradient::Value ? p.width : p.depth, W);
  launch(ctx, "attention_backward", grid_of_tiles<C, W>(total), attention_gradient<of, C, W>, p, total);
}
template <Gradient of, class C> void gradient(Context& ctx, const Problem<C>& p, const Heads& to) {
  if (!to.data) return;
  if constexpr (std::is_same_v<C, float>)
    if ((of == Gradient::Value ? p.width : p.depth) > 64) return run_gradient<of, C, 128>(ctx, p);
  run_gradient<of, C, 64>(ctx, p);
}

/// Is it for warp_attention()?
template <class C> bool suits_warps(const Context& ctx, const Problem<C>& p) {
  return p.depth > 0 && p.width > 0 && std::max(p.depth, p.width) <= warp_columns(p.dtype) &&
         has_warp_matrix(ctx.device);
}

template <class C> void forward(Context& ctx, const Problem<C>& p) {
  if (one_query_attention(ctx, p)) return;
  if constexpr (std::is_same_v<C, float>) {
    if (suits_warps(ctx, p)) return warp_attention(ctx, p);
    if (p.width > 64) return run_forward<C, 128>(ctx, p);
  }
  run_forward<C, 64>(ctx, p);
}
template <class C> void backward(Context& ctx, Problem<C> p) {
  const int64_t rows = p.batch * p.heads * p.queries;
  p.delta = ctx.scratch_of<C>(std::max<int64_t>(1, rows));
  launch(ctx, "attention_backward", grid_of(32 * rows), attention_delta<C>, p);
  if constexpr (std::is_same_v<C, float>)
    if (suits_warps(ctx, p)) return warp_attention_backward(ctx, p);
  gradient<Gradient::Query>(ctx, p, p.dq);
  gradient<Gradient::Key>(ctx, p, p.dk);
  gradient<Gradient::Value>(ctx, p, p.dv);
}

}  // namespace

void tiled_attention(Context& ctx, const entry::Attention& c) {
  const TensorView& mask = c.mask;
  if (c.q.sizes[0] * c.q.sizes[1] * c.q.sizes[2] == 0) return;
  for_floats("attention", compute_type(c.q.dtype), [&]<class C>() {
    Problem<C> p = problem_of<C>(c.q, c.k, c.v, is_length(mask) ? TensorView() : mask, c.lse, c.base, c.params);
    p.out = Heads(c.out);
    if (is_length(mask)) p.length = mask.as<int64_t>(), p.error = late_error(ctx);
    forward(ctx, p);
  });
}

void tiled_attention_backward(Context& ctx, const entry::AttentionBackward& c) {
  if (c.k.sizes[0] * c.k.sizes[1] == 0) return;
  for_floats("attention_backward", compute_type(c.q.dtype), [&]<class C>() {
    Problem<C> p = problem_of<C>(c.q, c.k, c.v, c.mask, c.lse, c.base, c.params);
    p.out = Heads(c.out), p.dout = Heads(c.dout), p.dq = Heads(c.dq), p.dk = Heads(c.dk), p.dv = Heads(c.dv);
    backward(ctx, p);
  });
}

}  // namespace tapir::inline v0::cuda_kernels
