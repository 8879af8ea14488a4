// Note [Blockwise attention]
// Scores are made and used up for blocks of queries and keys, in panels that the register kernel of gemm.h multiplies, so that memory
// grows with the length of the sequence and not with its square. Forward (Milakov and Gimelshein 2018, arXiv 1805.02867; Dao et al.
// 2022, arXiv 2205.14135): each row keeps its running maximum and sum, and what it has summed so far is scaled when the maximum grows.
// Backward: the weights are e^(score - lse) again, and with delta = sum(dout out)
//   dv = P^T dout,   dS = scale P (dout v^T - delta),   dq = dS k,   dk = dS^T q.
// A thread has whole heads of k and v, so that no two write one sum, and results are the same for any number of threads.
// A few queries, as in decoding, make no panels: keys and values are read where they lie, once each.
#include <cmath>
#include <limits>

#include "../../core/dispatch.h"
#include "../../core/math.h"
#include "../convert.h"
#include "../kernels.h"
#include "../matmul/gemm.h"
#include "../matmul/gemv.h"
#include "../moments.h"
#include "../pieces.h"

namespace tapir::inline v0::cpu {
namespace {

int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/// One operand (batch, head, row, column).
template <class T> struct Heads {
  T* data = nullptr;
  int64_t batch = 0, head = 0, row = 0, column = 0;
  Heads(V x) {
    if (!x.defined()) return;
    data = x.as<T>(), batch = x.strides[0], head = x.strides[1], row = x.strides[2];
    column = x.rank > 3 ? x.strides[3] : 0;
  }
  T* at(int64_t b, int64_t h, int64_t i) const { return data + b * batch + h * head + i * row; }
};

/// Extents, and those of blocks: whole panels, whichever side of a product they stand on.
template <class C> struct Extents {
  using P = Panel<C>;
  static constexpr int64_t kStep = 96;  // a multiple of kRows and of kColumns
  static_assert(kStep % P::kRows == 0 && kStep % P::kColumns == 0);
  int64_t batch, heads, groups, queries, keys, depth, width, rows, columns;  // rows, columns: of a block of scores
  int64_t wide_depth, wide_width;
  Extents(V q, V k, V v)
      : batch(q.sizes[0]), heads(q.sizes[1]), groups(k.sizes[1]), queries(q.sizes[2]), keys(k.sizes[2]),
        depth(q.sizes[3]), width(v.sizes[3]), rows(std::clamp<int64_t>(up(queries, P::kRows), P::kRows, 2 * kStep)),
        columns(std::clamp<int64_t>(up(keys, kStep), kStep, 3 * kStep)), wide_depth(up(depth, P::kColumns)),
        wide_width(up(width, P::kColumns)) {}
};

/// What counts of a panel of rows: its first `columns` columns, and the steps [begin, end) of what is summed.
struct Part {
  int64_t columns, begin, end;
};
/// c (m x n, rows ld apart) = or += a b of panels over k, of the rows from i on what part(i) says; what lies in c behind it up to whole
/// panels is written too.
template <class C, class F>
void multiply(int64_t m, int64_t n, int64_t k, const C* a, const C* b, C* c, int64_t ld, bool first, F&& part) {
  using P = Panel<C>;
  for (int64_t j = 0; j < n; j += P::kColumns)
    for (int64_t i = 0; i < m; i += P::kRows) {
      const auto [columns, begin, end] = part(i);
      if (j < columns && (first || begin < end))
        multiply_panels(end - begin, a + i * k + begin * P::kRows, b + j * k + begin * P::kColumns, c + i * ld + j, ld,
                        first);
    }
}

/// What makes scores of products: scale, mask, causality.
template <class T> struct Visibility {
  using C = Compute<T>;
  static constexpr C kHidden = -std::numeric_limits<C>::infinity();
  Heads<bool> hides;
  Heads<T> adds;
  C scale;
  bool causal;
  int64_t past = 0;  // causal: how many keys come before that of query 0
  Visibility(V mask, const AttentionParams& p)
      : hides(mask.defined() && mask.dtype == kBool ? mask : TensorView()),
        adds(mask.defined() && mask.dtype != kBool ? mask : TensorView()), scale(C(p.scale)), causal(p.causal) {}

  /// How many of `columns` keys from j0 on any of the queries up to `last` sees by causality.
  int64_t seen(int64_t last, int64_t j0, int64_t columns) const {
    return causal ? std::clamp<int64_t>(last + 1 + past - j0, 0, columns) : columns;
  }
  /// Of `rows` queries from i on, how many do not see key j: they come first.
  int64_t blind(int64_t i, int64_t rows, int64_t j) const { return causal ? std::clamp<int64_t>(j - i, 0, rows) : 0; }
  /// Products of query i with keys j0, j0 + 1, ... become scores; by causality it sees these `columns`.
  void finish(C* s, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t columns) const {
    for (int64_t j = 0; j < columns; ++j) s[j] *= scale;
    if (adds.data) {
      const T* m = adds.at(b, h, i) + j0 * adds.column;
      for (int64_t j = 0; j < columns; ++j) s[j] += C(m[j * adds.column]);
    } else if (hides.data) {
      const bool* m = hides.at(b, h, i) + j0 * hides.column;
      for (int64_t j = 0; j < columns; ++j) s[j] = m[j * hides.column] ? s[j] : kHidden;
    }
  }
};

/// One row of scores becomes weights e^(s - top), top and sum run on. Returns what to scale the sums so far by.
template <class C> C run_on(C* s, int64_t n, C& top, C& sum) {
  C most = top, total = 0;
#pragma omp simd reduction(max : most)
  for (int64_t j = 0; j < n; ++j) most = s[j] > most ? s[j] : most;
  const C shift = most == Visibility<C>::kHidden ? C(0) : most;  // nothing seen yet
#pragma omp simd reduction(+ : total)
  for (int64_t j = 0; j < n; ++j) {
    const C e = math::exp(s[j] - shift);
    s[j] = e, total += e;
  }
  const C factor = math::exp(top - shift);
  sum = sum * factor + total, top = most;
  return factor;
}

template <class T> class Forward {
  using C = Compute<T>;
  using P = Panel<C>;

 public:
  /// past: of causal attention, how many keys come before that of query 0.
  Forward(const entry::Attention& c, int64_t past)
      : e_(c.q, c.k, c.v), out_(c.out), q_(c.q), k_(c.k), v_(c.v), lse_(c.lse), see_(c.mask, c.params) {
    see_.past = past;
  }

  void run(Context& ctx) {
    if constexpr (std::is_same_v<C, float>)
      if (e_.queries <= kFew && k_.column == 1 && v_.column == 1) return run_rows(ctx);
    const int64_t blocks = (e_.queries + e_.rows - 1) / e_.rows, total = e_.batch * e_.heads * blocks;
    const int64_t size = up(
        e_.rows * (e_.depth + 2 * e_.columns + e_.wide_width + 2) + e_.columns * std::max(e_.depth, e_.wide_width), 16);
    const int64_t work = e_.rows * std::max<int64_t>(1, e_.keys) * (e_.depth + e_.width + 8);
    for_pieces<C>(ctx, total, std::max<int64_t>(1, (1 << 18) / work), size, [&](C* own, int64_t first, int64_t last) {
      for (int64_t at = first; at < last; ++at)
        block(own, at / blocks / e_.heads, at / blocks % e_.heads, at % blocks * e_.rows);
    });
  }

 private:
  static constexpr int64_t kFew = 4;

  void run_rows(Context& ctx) {
    const int64_t total = e_.batch * e_.heads * e_.queries, size = up(e_.keys + e_.depth + e_.width, 16);
    const int64_t work = std::max<int64_t>(1, e_.keys) * (e_.depth + e_.width + 8);
    for_pieces<C>(ctx, total, std::max<int64_t>(1, (1 << 17) / work), size, [&](C* own, int64_t first, int64_t last) {
      for (int64_t at = first; at < last; ++at)
        one_row(own, at / e_.queries / e_.heads, at / e_.queries % e_.heads, at % e_.queries);
    });
  }
  void one_row(C* scores, int64_t b, int64_t h, int64_t i) const {
    constexpr int kAtOnce = 4;
    const int64_t g = h / (e_.heads / e_.groups), n = see_.seen(i, 0, e_.keys);
    C *query = scores + e_.keys, *sums = query + e_.depth, top = see_.kHidden, total = 0;
    const T *q = q_.at(b, h, i), *k = k_.at(b, g, 0);
    for (int64_t d = 0; d < e_.depth; ++d) query[d] = C(q[d * q_.column]);
    int64_t j = 0;
    for (; j + kAtOnce <= n; j += kAtOnce) dot_columns<kAtOnce>(e_.depth, k + j * k_.row, k_.row, query, scores + j);
    for (; j < n; ++j) dot_columns<1>(e_.depth, k + j * k_.row, k_.row, query, scores + j);
    see_.finish(scores, b, h, i, 0, n);
    run_on(scores, n, top, total);
    sum_rows(n, e_.width, v_.at(b, g, 0), v_.row, scores, sums);
    write_row(b, h, i, sums, top, total);
  }
  void write_row(int64_t b, int64_t h, int64_t i, const C* sums, C top, C total) const {
    T* const o = out_.at(b, h, i);
    const C scale = total == 0 ? C(0) : 1 / total;  // a query that sees nothing
    for (int64_t w = 0; w < e_.width; ++w) o[w * out_.column] = T(sums[w] * scale);
    if (lse_.data) *lse_.at(b, h, i) = total == 0 ? see_.kHidden : top + std::log(total);
  }

  void block(C* memory, int64_t b, int64_t h, int64_t i0) const {
    const int64_t rows = std::min(e_.rows, e_.queries - i0), g = h / (e_.heads / e_.groups), ld = e_.wide_width;
    C *query = memory, *scores = query + e_.rows * e_.depth, *weights = scores + e_.rows * e_.columns,
      *sums = weights + e_.rows * e_.columns, *top = sums + e_.rows * ld, *total = top + e_.rows,
      *packed = total + e_.rows;
    pack_matrix<P::kRows>(query, q_.at(b, h, i0), q_.row, q_.column, rows, e_.depth);
    std::fill_n(sums, e_.rows * ld, C(0)), std::fill_n(top, rows, see_.kHidden), std::fill_n(total, rows, C(0));
    for (int64_t j0 = 0; j0 < e_.keys; j0 += e_.columns) {
      const int64_t n = see_.seen(i0 + rows - 1, j0, std::min(e_.columns, e_.keys - j0));
      if (n == 0) break;
      pack_matrix<P::kColumns>(packed, k_.at(b, g, j0), k_.row, k_.column, n, e_.depth);
      const auto reach = [&](int64_t i) { return see_.seen(i0 + i + P::kRows - 1, j0, n); };
      multiply(rows, n, e_.depth, query, packed, scores, e_.columns, true, [&](int64_t i) {
        return Part{reach(i), 0, e_.depth};
      });
      for (int64_t i = 0; i < rows; ++i) {
        C* const s = scores + i * e_.columns;
        const int64_t seen = see_.seen(i0 + i, j0, n);
        see_.finish(s, b, h, i0 + i, j0, seen);
        std::fill(s + seen, s + n, C(0));
        const C factor = run_on(s, seen, top[i], total[i]);
        for (int64_t w = 0; factor != 1 && w < ld; ++w) sums[i * ld + w] *= factor;
      }
      pack_matrix<P::kRows>(weights, scores, e_.columns, 1, rows, n);
      pack_matrix<P::kColumns>(packed, v_.at(b, g, j0), v_.column, v_.row, e_.width, n);
      multiply(rows, e_.width, n, weights, packed, sums, ld, false, [&](int64_t i) {
        return Part{e_.width, 0, reach(i)};
      });
    }
    for (int64_t i = 0; i < rows; ++i) write_row(b, h, i0 + i, sums + i * ld, top[i], total[i]);
  }

  Extents<C> e_;
  Heads<T> out_, q_, k_, v_;
  Heads<C> lse_;
  Visibility<T> see_;
};

template <class T> class Backward {
  using C = Compute<T>;
  using P = Panel<C>;

 public:
  explicit Backward(const entry::AttentionBackward& c)
      : e_(c.q, c.k, c.v), dq_(c.dq), dk_(c.dk), dv_(c.dv), dout_(c.dout), out_(c.out), q_(c.q), k_(c.k), v_(c.v),
        lse_(c.lse), see_(c.mask, c.params), all_queries_(up(e_.queries, e_.rows)), all_keys_(up(e_.keys, e_.columns)) {
  }

  void run(Context& ctx) {
    const int64_t total = e_.batch * e_.groups, square = e_.rows * e_.columns;
    const int64_t size = up(all_keys_ * (e_.wide_depth + e_.wide_width) + all_queries_ * (e_.wide_depth + 1) +
                                e_.columns * (2 * e_.wide_depth + e_.wide_width) +
                                e_.rows * 2 * (e_.wide_depth + e_.wide_width) + 3 * square,
                            16);
    for_pieces<C>(ctx, total, 1, size, [&](C* own, int64_t first, int64_t last) {
      for (int64_t at = first; at < last; ++at) group(own, at / e_.groups, at % e_.groups);
    });
  }

 private:
  struct Memory {  // of one thread: sums, then panels
    C *dk, *dv, *dq, *delta, *key, *key_steps, *value, *query, *query_steps, *grad, *grad_steps, *weights, *dscores,
        *panels;
  };

  void group(C* memory, int64_t b, int64_t g) const {
    Memory m;
    const auto take = [&](int64_t n) { return std::exchange(memory, memory + n); };
    m.dk = take(all_keys_ * e_.wide_depth), m.dv = take(all_keys_ * e_.wide_width);
    m.dq = take(all_queries_ * e_.wide_depth), m.delta = take(all_queries_);
    m.key = take(e_.columns * e_.wide_depth), m.key_steps = take(e_.columns * e_.wide_depth);
    m.value = take(e_.columns * e_.wide_width);
    m.query = take(e_.rows * e_.wide_depth), m.query_steps = take(e_.rows * e_.wide_depth);
    m.grad = take(e_.rows * e_.wide_width), m.grad_steps = take(e_.rows * e_.wide_width);
    m.weights = take(e_.rows * e_.columns), m.dscores = take(e_.rows * e_.columns);
    m.panels = take(e_.rows * e_.columns);
    std::fill_n(m.dk, all_keys_ * (e_.wide_depth + e_.wide_width), C(0));
    const int64_t repeats = e_.heads / e_.groups;
    for (int64_t h = g * repeats; h < (g + 1) * repeats; ++h) {
      std::fill_n(m.dq, all_queries_ * e_.wide_depth, C(0));
      for (int64_t i = 0; i < e_.queries; ++i) {
        const T *o = out_.at(b, h, i), *d = dout_.at(b, h, i);
        C sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t w = 0; w < e_.width; ++w) sum += C(o[w * out_.column]) * C(d[w * dout_.column]);
        m.delta[i] = sum;
      }
      for (int64_t j0 = 0; j0 < e_.keys; j0 += e_.columns) keys(m, b, h, g, j0);
      write(dq_, b, h, m.dq, e_.queries, e_.depth, e_.wide_depth);
    }
    write(dk_, b, g, m.dk, e_.keys, e_.depth, e_.wide_depth);
    write(dv_, b, g, m.dv, e_.keys, e_.width, e_.wide_width);
  }

  /// One block of keys with all queries.
  void keys(const Memory& m, int64_t b, int64_t h, int64_t g, int64_t j0) const {
    const int64_t n = std::min(e_.columns, e_.keys - j0);
    const T *k = k_.at(b, g, j0), *v = v_.at(b, g, j0);
    pack_matrix<P::kColumns>(m.key, k, k_.row, k_.column, n, e_.depth);
    pack_matrix<P::kColumns>(m.key_steps, k, k_.column, k_.row, e_.depth, n);
    pack_matrix<P::kColumns>(m.value, v, v_.row, v_.column, n, e_.width);
    for (int64_t i0 = 0; i0 < e_.queries; i0 += e_.rows) {
      const int64_t rows = std::min(e_.rows, e_.queries - i0);
      if (see_.seen(i0 + rows - 1, j0, n) == 0) continue;
      const T *q = q_.at(b, h, i0), *d = dout_.at(b, h, i0);
      pack_matrix<P::kRows>(m.query, q, q_.row, q_.column, rows, e_.depth);
      pack_matrix<P::kColumns>(m.query_steps, q, q_.column, q_.row, e_.depth, rows);
      pack_matrix<P::kRows>(m.grad, d, dout_.row, dout_.column, rows, e_.width);
      pack_matrix<P::kColumns>(m.grad_steps, d, dout_.column, dout_.row, e_.width, rows);
      const auto reach = [&](int64_t i) { return see_.seen(i0 + i + P::kRows - 1, j0, n); };
      const auto scores = [&](int64_t depth) {
        return [&reach, depth](int64_t i) { return Part{reach(i), 0, depth}; };
      };
      const auto keys_of = [&](int64_t i) { return Part{e_.depth, 0, reach(i)}; };
      const auto queries_of = [&](int64_t width) {
        return [&, width](int64_t j) { return Part{width, see_.blind(i0, rows, j0 + j), rows}; };
      };
      multiply(rows, n, e_.depth, m.query, m.key, m.weights, e_.columns, true, scores(e_.depth));
      multiply(rows, n, e_.width, m.grad, m.value, m.dscores, e_.columns, true, scores(e_.width));
      for (int64_t i = 0; i < rows; ++i) make_dscores(m, b, h, i0, i, j0, n);
      pack_matrix<P::kRows>(m.panels, m.weights, 1, e_.columns, n, rows);
      multiply(n, e_.width, rows, m.panels, m.grad_steps, m.dv + j0 * e_.wide_width, e_.wide_width, false,
               queries_of(e_.width));
      pack_matrix<P::kRows>(m.panels, m.dscores, 1, e_.columns, n, rows);
      multiply(n, e_.depth, rows, m.panels, m.query_steps, m.dk + j0 * e_.wide_depth, e_.wide_depth, false,
               queries_of(e_.depth));
      pack_matrix<P::kRows>(m.panels, m.dscores, e_.columns, 1, rows, n);
      multiply(rows, e_.depth, n, m.panels, m.key_steps, m.dq + i0 * e_.wide_depth, e_.wide_depth, false, keys_of);
    }
  }

  /// Row i of the block: scores become weights, products dout v^T become dS. A hidden key has weight 0 whatever its value.
  void make_dscores(const Memory& m, int64_t b, int64_t h, int64_t i0, int64_t i, int64_t j0, int64_t n) const {
    C *const p = m.weights + i * e_.columns, *const ds = m.dscores + i * e_.columns;
    const int64_t seen = see_.seen(i0 + i, j0, n);
    see_.finish(p, b, h, i0 + i, j0, seen);
    std::fill(p + seen, p + n, C(0)), std::fill(ds + seen, ds + n, C(0));
    const C lse = *lse_.at(b, h, i0 + i), shift = lse == see_.kHidden ? C(0) : lse, delta = m.delta[i0 + i];
#pragma omp simd
    for (int64_t j = 0; j < seen; ++j) {
      const C w = math::exp(p[j] - shift);
      p[j] = w, ds[j] = w == 0 ? C(0) : see_.scale * w * (ds[j] - delta);
    }
  }

  void write(const Heads<T>& to, int64_t b, int64_t h, const C* from, int64_t rows, int64_t n, int64_t ld) const {
    if (!to.data) return;
    for (int64_t i = 0; i < rows; ++i) {
      T* const row = to.at(b, h, i);
      for (int64_t w = 0; w < n; ++w) row[w * to.column] = T(from[i * ld + w]);
    }
  }

  Extents<C> e_;
  Heads<T> dq_, dk_, dv_, dout_, out_, q_, k_, v_;
  Heads<C> lse_;
  Visibility<T> see_;
  int64_t all_queries_, all_keys_;
};

}  // namespace

static void attention(Context& ctx, const entry::Attention& c, int64_t past) {
  if (c.q.sizes[0] * c.q.sizes[1] * c.q.sizes[2] == 0) return;
  for_any_float("attention", c.q.dtype, [&]<class T>() { Forward<T>(c, past).run(ctx); });
}

void attention(Context& ctx, const entry::Attention& c) {
  if (!c.mask.defined() || c.mask.dtype != kInt64) return attention(ctx, c, 0);
  const int64_t n = *c.mask.as<int64_t>();  // how many keys there are
  if (n < 0 || n > c.k.sizes[2]) return ctx.bad_value(0, n, c.k.sizes[2]);
  entry::Attention seen = c;
  seen.k.sizes[2] = seen.v.sizes[2] = n, seen.mask = {};
  attention(ctx, seen, n - c.q.sizes[2]);
}

void attention_backward(Context& ctx, const entry::AttentionBackward& c) {
  if (c.k.sizes[0] * c.k.sizes[1] == 0) return;
  for_any_float("attention_backward", c.q.dtype, [&]<class T>() { Backward<T>(c).run(ctx); });
}

}  // namespace tapir::inline v0::cpu
