// Note [Blockwise attention]
// Scores are made and used up for a few queries and a block of keys at a time, in the nearest cache, so that memory grows with the length
// of the sequence and not with its square. Forward (Milakov and Gimelshein 2018, arXiv 1805.02867; Dao et al. 2022, arXiv 2205.14135):
// each row keeps its running maximum and sum, and what it has summed so far is scaled when the maximum grows.
// Backward: the weights are e^(score - lse) again, and with delta = sum(dout out)
//   dv = P^T dout,   dS = scale P (dout v^T - delta),   dq = dS k,   dk = dS^T q.
// Dropout: P in dv and the products dout v^T in dS are those of the elements that stay, by 1 / (1 - p); delta needs no change.
// A thread has whole heads of k and v, so that no two write one sum, and results are the same for any number of threads.
// A few queries, as in decoding, make no panels: keys and values are read where they lie, once each.
#include <cmath>
#include <limits>

#include "../../core/denormals.h"
#include "../../core/dispatch.h"
#include "../../core/math.h"
#include "../kernels.h"
#include "../matmul/gemv.h"
#include "../moments.h"
#include "../pieces.h"
#include "../random/philox.h"
#include "operands.h"

namespace tapir::inline v0::cpu {
namespace {

int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

constexpr int64_t kKeys = 288;           // of a block
constexpr int64_t kStride = kKeys + 16;  // of rows of scores: their lines spread over the cache

/// Extents, and those of blocks: whole panels, whichever side of a product they stand on.
template <class T> struct Extents {
  using P = Products<T>;
  static_assert(kKeys % P::kRows == 0 && kKeys % P::kColumns == 0);
  int64_t batch, heads, groups, queries, keys, depth, width, rows;  // rows: of a block of queries
  int64_t wide_depth, wide_width, columns;                          // whole panels of columns; those of a block of keys
  int64_t depth_words, width_words;
  Extents(V q, V k, V v, int64_t most_rows)
      : batch(q.sizes[0]), heads(q.sizes[1]), groups(k.sizes[1]), queries(q.sizes[2]), keys(k.sizes[2]),
        depth(q.sizes[3]), width(v.sizes[3]), rows(std::clamp<int64_t>(up(queries, P::kRows), P::kRows, most_rows)),
        wide_depth(up(depth, P::kColumns)), wide_width(up(width, P::kColumns)),
        columns(std::min(kKeys, up(keys, P::kColumns))), depth_words(P::words(depth)), width_words(P::words(width)) {}
};

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
  /// Products of query i with keys j0, j0 + 1, ... become scores; by causality it sees these `columns`. (A pass of its own: a product that
  /// is scaled where its maximum is taken off would be rounded otherwise than the maximum was, if the compiler makes one step of both.)
  void make_scores(C* s, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t columns) const {
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

/// Which weights stay, and what they are multiplied by then; as cpu::dropout() drops those of a tensor (B, H, S, T).
struct Dropout {
  uint32_t limit = 0;  // 0: all stay as they are
  double scale = 1;
  uint64_t seed, offset;
  int64_t heads, queries, keys;
  Dropout(const AttentionParams& p, V base, V q, V k)
      : seed(p.seed), offset(p.offset), heads(q.sizes[1]), queries(q.sizes[2]), keys(k.sizes[2]) {
    if (p.dropout_p == 0) return;
    limit = Philox::drop_limit(p.dropout_p), scale = Philox::keep_scale(p.dropout_p);
    if (base.defined()) offset += uint64_t(*base.as<int64_t>());
  }
  /// x[j] times 0 or scale for the n <= kKeys weights of query i from key j0 on.
  template <class C> void apply(C* x, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t n) const {
    alignas(64) uint32_t words[kKeys + 8];
    const int64_t first = ((b * heads + h) * queries + i) * keys + j0, early = first % 4;
    words_of(seed, offset, first - early, n + early, 0, words);
    const C factor = C(scale);
    for (int64_t j = 0; j < n; ++j) x[j] = words[early + j] >> 8 >= limit ? x[j] * factor : C(0);
  }
};

/// e^x of x <= 0 or NaN, 1 above; 0 where the result were below 2^-126. (Two ways to sum a product can give a score that is above the maximum of
/// its row.)
Vec<float> exp_of_negative(Vec<float> x) {
  using Bits = Vec<int32_t>;
  constexpr float shift = 12582912.0f;  // as in math::exp
  x = x < -87.33654f ? Vec<float>{} - 88.0f : x > 0.0f ? Vec<float>{} : x;
  const Vec<float> shifted = x * 1.44269504f + shift, n = shifted - shift;
  const Vec<float> r = n * 2.12194440e-4f + (n * -0.693359375f + x);
  Vec<float> p = r * (1.0f / 5040) + 1.0f / 720;
  for (float c : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) p = p * r + c;
  const Bits power = reinterpret_cast<Bits>(shifted) - std::bit_cast<int32_t>(shift) + 127;
  return p * reinterpret_cast<Vec<float>>(power << 23);
}
Vec<double> exp_of_negative(Vec<double> x) {
  for (int l = 0; l < kLanes<double>; ++l) x[l] = x[l] > 0 ? 1 : std::exp(x[l]);
  return x;
}
/// x with `filler` in the lanes from n on.
template <class C> Vec<C> first_lanes(Vec<C> x, int64_t n, C filler) {
  using Number = std::conditional_t<sizeof(C) == 4, int32_t, int64_t>;
  if (n >= kLanes<C>) return x;
  Vec<Number> lane;
  for (int l = 0; l < kLanes<C>; ++l) lane[l] = l;
  return lane < Number(n) ? x : Vec<C>{} + filler;
}
/// f(step), of a step that is 1 with a constant.
template <class F> void by_step(int64_t step, F&& f) {
  if (step == 1) f(std::integral_constant<int64_t, 1>());
  else f(step);
}

/// One row of scores becomes weights e^(s - top), zeros behind them up to a whole vector; top and sum run on. Returns what to
/// scale the sums so far by.
template <class C> C run_on(C* s, int64_t n, C& top, C& sum) {
  constexpr int lanes = kLanes<C>;
  Vec<C> most = Vec<C>{} + top, total = {};
  for (int64_t j = 0; j < n; j += lanes) {
    const Vec<C> x = first_lanes<C>(load(s + j), n - j, top);
    most = x > most ? x : most;
  }
  C highest = most[0];
  for (int l = 1; l < lanes; ++l) highest = most[l] > highest ? most[l] : highest;
  const C shift = highest == Visibility<C>::kHidden ? C(0) : highest;  // nothing seen yet
  for (int64_t j = 0; j < n; j += lanes) {
    const Vec<C> e = first_lanes<C>(exp_of_negative(load(s + j) - shift), n - j, 0);
    store(s + j, e), total += e;
  }
  const C before = exp_of_negative(Vec<C>{} + (top - shift))[0];
  sum = sum * before + sum_lanes<C>(total), top = highest;
  return before;
}

template <class T> class Forward {
  using P = Products<T>;
  using C = Compute<T>;
  using Word = typename P::Word;

 public:
  /// past: of causal attention, how many keys come before that of query 0.
  Forward(const entry::Attention& c, int64_t past)
      : e_(c.q, c.k, c.v, 288), out_(c.out), q_(c.q), k_(c.k), v_(c.v), lse_(c.lse), see_(c.mask, c.params),
        drops_(c.params, c.base, c.q, c.k) {
    see_.past = past;
  }

  void run(Context& ctx) {
    if constexpr (std::is_same_v<C, float>)
      if (e_.queries <= kFew && k_.column == 1 && v_.column == 1) return run_rows(ctx);
    const int64_t blocks = (e_.queries + e_.rows - 1) / e_.rows, total = e_.batch * e_.heads * blocks;
    const int64_t size = up(e_.rows * (e_.depth_words + e_.wide_width + 2) + 2 * P::kRows * kStride +
                                e_.columns * (2 * e_.depth_words + e_.width_words + e_.wide_width),
                            16);
    const int64_t work = e_.rows * std::max<int64_t>(1, e_.keys) * (e_.depth + e_.width + 8);
    for_pieces<C>(ctx, total, std::max<int64_t>(1, (1 << 18) / work), size, [&](C* own, int64_t first, int64_t last) {
      for (int64_t at = first; at < last; ++at) {
        const int64_t n = at % blocks;  // long and short blocks of causal attention take turns
        block(own, at / blocks / e_.heads, at / blocks % e_.heads, (n % 2 ? blocks - 1 - n / 2 : n / 2) * e_.rows);
      }
    });
  }

 private:
  static constexpr int64_t kFew = 4;

  void run_rows(Context& ctx) {
    const int64_t total = e_.batch * e_.heads * e_.queries, size = up(e_.keys, 16) + up(e_.depth + e_.width, 16);
    const int64_t work = std::max<int64_t>(1, e_.keys) * (e_.depth + e_.width + 8);
    for_pieces<C>(ctx, total, std::max<int64_t>(1, (1 << 17) / work), size, [&](C* own, int64_t first, int64_t last) {
      for (int64_t at = first; at < last; ++at)
        one_row(own, at / e_.queries / e_.heads, at / e_.queries % e_.heads, at % e_.queries);
    });
  }
  void one_row(C* scores, int64_t b, int64_t h, int64_t i) const {
    constexpr int kAtOnce = 4;
    const int64_t g = h / (e_.heads / e_.groups), n = see_.seen(i, 0, e_.keys);
    C *query = scores + up(e_.keys, 16), *sums = query + e_.depth, top = see_.kHidden, total = 0;
    const T *q = q_.at(b, h, i), *k = k_.at(b, g, 0);
    for (int64_t d = 0; d < e_.depth; ++d) query[d] = C(q[d * q_.column]);
    int64_t j = 0;
    for (; j + kAtOnce <= n; j += kAtOnce) dot_columns<kAtOnce>(e_.depth, k + j * k_.row, k_.row, query, scores + j);
    for (; j < n; ++j) dot_columns<1>(e_.depth, k + j * k_.row, k_.row, query, scores + j);
    see_.make_scores(scores, b, h, i, 0, n);
    run_on(scores, n, top, total);
    for (int64_t j0 = 0; drops_.limit && j0 < n; j0 += kKeys)
      drops_.apply(scores + j0, b, h, i, j0, std::min(kKeys, n - j0));
    sum_rows(n, e_.width, v_.at(b, g, 0), v_.row, scores, sums);
    write_row(b, h, i, sums, top, total);
  }
  void write_row(int64_t b, int64_t h, int64_t i, const C* sums, C top, C total) const {
    T* const o = out_.at(b, h, i);
    const C scale = total == 0 ? C(0) : 1 / total;  // a query that sees nothing
    by_step(out_.column, [&](auto step) {
      for (int64_t w = 0; w < e_.width; ++w) o[w * step] = T(sums[w] * scale);
    });
    if (lse_.data) *lse_.at(b, h, i) = total == 0 ? see_.kHidden : top + std::log(total);
  }

  struct Memory {  // of one thread
    C *sums, *top, *total, *scores;
    Word *weights, *query, *rows, *keys, *values;
  };

  void block(C* memory, int64_t b, int64_t h, int64_t i0) const {
    const int64_t rows = std::min(e_.rows, e_.queries - i0), g = h / (e_.heads / e_.groups);
    Memory m;
    const auto take = [&](int64_t n) { return std::exchange(memory, memory + n); };
    const auto take_words = [&](int64_t n) { return reinterpret_cast<Word*>(take(n)); };
    m.sums = take(e_.rows * e_.wide_width), m.top = take(e_.rows), m.total = take(e_.rows);
    m.scores = take(P::kRows * kStride), m.weights = take_words(P::kRows * kStride);
    m.query = take_words(e_.rows * e_.depth_words), m.keys = take_words(e_.columns * e_.depth_words);
    m.values = take_words(e_.columns * e_.wide_width);
    m.rows = take_words(e_.columns * std::max(e_.depth_words, e_.width_words));
    if constexpr (P::kTogether == 1) m.weights = m.scores;
    const auto query = P::rows_of(q_.at(b, h, i0), q_.row, q_.column, rows, e_.depth, up(rows, P::kRows), m.query);
    std::fill_n(m.sums, e_.rows * e_.wide_width, C(0));
    std::fill_n(m.top, rows, see_.kHidden), std::fill_n(m.total, rows, C(0));
    for (int64_t j0 = 0; j0 < e_.keys; j0 += kKeys) {
      const int64_t n = see_.seen(i0 + rows - 1, j0, std::min(kKeys, e_.keys - j0));
      if (n == 0) break;
      P::pack_turned(m.keys, P::rows_of(k_.at(b, g, j0), k_.row, k_.column, n, e_.depth, n, m.rows), n, e_.depth_words);
      P::pack(m.values, P::rows_of(v_.at(b, g, j0), v_.row, v_.column, n, e_.width, n, m.rows), n, e_.width);
      for (int64_t i = 0; i < rows; i += P::kRows)
        panel(m, {query.data + i * query.stride, query.stride}, b, h, i0, i, std::min<int64_t>(rows - i, P::kRows), j0,
              n);
    }
    for (int64_t i = 0; i < rows; ++i) write_row(b, h, i0 + i, m.sums + i * e_.wide_width, m.top[i], m.total[i]);
  }
  /// Queries i0 + i to i0 + i + rows - 1 with keys j0 to j0 + n - 1.
  void panel(const Memory& m, typename P::Rows query, int64_t b, int64_t h, int64_t i0, int64_t i, int64_t rows,
             int64_t j0, int64_t n) const {
    const int64_t reach = see_.seen(i0 + i + rows - 1, j0, n);
    if (reach == 0) return;
    C* const sums = m.sums + i * e_.wide_width;
    P::template multiply<false>(reach, 0, e_.depth_words, query.data, query.stride, m.keys,
                                P::kColumns * e_.depth_words, m.scores, kStride, true);
    for (int64_t r = 0; r < rows; ++r) {
      C* const s = m.scores + r * kStride;
      const int64_t at = i0 + i + r, seen = see_.seen(at, j0, n);
      see_.make_scores(s, b, h, at, j0, seen);
      const C factor = run_on(s, seen, m.top[i + r], m.total[i + r]);
      if (drops_.limit) drops_.apply(s, b, h, at, j0, seen);
      for (int64_t j = up(seen, kLanes<C>); j < reach; j += kLanes<C>) store(s + j, Vec<C>{});
      P::round_row(m.weights + r * kStride, s, reach);
      for (int64_t w = 0; factor != 1 && w < e_.wide_width; ++w) sums[r * e_.wide_width + w] *= factor;
    }
    P::template multiply<false>(e_.width, 0, P::words(reach), m.weights, kStride, m.values, P::kColumns * P::words(n),
                                sums, e_.wide_width, false);
  }

  Extents<T> e_;
  Heads<T> out_, q_, k_, v_;
  Heads<C> lse_;
  Visibility<T> see_;
  Dropout drops_;
};

template <class T> class Backward {
  using P = Products<T>;
  using C = Compute<T>;
  using Word = typename P::Word;

 public:
  explicit Backward(const entry::AttentionBackward& c)
      : e_(c.q, c.k, c.v, 96), dq_(c.dq), dk_(c.dk), dv_(c.dv), dout_(c.dout), out_(c.out), q_(c.q), k_(c.k), v_(c.v),
        lse_(c.lse), see_(c.mask, c.params), drops_(c.params, c.base, c.q, c.k), all_queries_(up(e_.queries, P::kRows)),
        all_keys_(up(e_.keys, P::kRows)) {}

  void run(Context& ctx) {
    const int64_t total = e_.batch * e_.groups, widest = std::max(e_.depth_words, e_.width_words);
    const int64_t size = up(all_keys_ * (e_.wide_depth + e_.wide_width) + all_queries_ * (e_.wide_depth + 1) +
                                e_.columns * (e_.depth_words + e_.width_words + e_.wide_depth + widest) +
                                e_.rows * (e_.depth_words + e_.width_words + e_.wide_depth + e_.wide_width) +
                                (P::kTogether == 1 ? 2 : 4) * e_.rows * kStride,
                            16);
    for_pieces<C>(ctx, total, 1, size, [&](C* own, int64_t first, int64_t last) {
      for (int64_t at = first; at < last; ++at) group(own, at / e_.groups, at % e_.groups);
    });
  }

 private:
  struct Memory {  // of one thread: sums, then operands
    C *dk, *dv, *dq, *delta, *weights, *dscores;
    Word *keys, *key_steps, *values, *key_rows, *query, *query_steps, *grad, *grad_steps;
    Word *weights_turned, *dscores_turned, *dscore_rows;
  };

  void group(C* memory, int64_t b, int64_t g) const {
    Memory m;
    const auto take = [&](int64_t n) { return std::exchange(memory, memory + n); };
    const auto take_words = [&](int64_t n) { return reinterpret_cast<Word*>(take(n)); };
    m.dk = take(all_keys_ * e_.wide_depth), m.dv = take(all_keys_ * e_.wide_width);
    m.dq = take(all_queries_ * e_.wide_depth), m.delta = take(all_queries_);
    m.weights = take(e_.rows * kStride), m.dscores = take(e_.rows * kStride);
    m.keys = take_words(e_.columns * e_.depth_words), m.values = take_words(e_.columns * e_.width_words);
    m.key_steps = take_words(e_.columns * e_.wide_depth);
    m.key_rows = take_words(e_.columns * std::max(e_.depth_words, e_.width_words));
    m.query = take_words(e_.rows * e_.depth_words), m.query_steps = take_words(e_.rows * e_.wide_depth);
    m.grad = take_words(e_.rows * e_.width_words), m.grad_steps = take_words(e_.rows * e_.wide_width);
    if constexpr (P::kTogether == 1) {
      m.weights_turned = m.weights, m.dscores_turned = m.dscore_rows = m.dscores;
    } else {
      m.weights_turned = take_words(e_.rows / 2 * kStride), m.dscores_turned = take_words(e_.rows / 2 * kStride);
      m.dscore_rows = take_words(e_.rows * kStride);
    }
    std::fill_n(m.dk, all_keys_ * (e_.wide_depth + e_.wide_width), C(0));
    const int64_t repeats = e_.heads / e_.groups;
    for (int64_t h = g * repeats; h < (g + 1) * repeats; ++h) {
      std::fill_n(m.dq, all_queries_ * e_.wide_depth, C(0));
      for (int64_t i = 0; i < e_.queries; ++i) {
        const T *o = out_.at(b, h, i), *d = dout_.at(b, h, i);
        if (out_.column == 1) fetch(o + P::kAhead * out_.row, e_.width);
        if (dout_.column == 1) fetch(d + P::kAhead * dout_.row, e_.width);
        C sum = 0;
        const auto products = [&](auto of_o, auto of_d) {
#pragma omp simd reduction(+ : sum)
          for (int64_t w = 0; w < e_.width; ++w) sum += C(o[w * of_o]) * C(d[w * of_d]);
        };
        by_step(out_.column, [&](auto x) { by_step(dout_.column, [&](auto y) { products(x, y); }); });
        m.delta[i] = sum;
      }
      for (int64_t j0 = 0; j0 < e_.keys; j0 += kKeys) keys(m, b, h, g, j0);
      write(dq_, b, h, m.dq, e_.queries, e_.depth, e_.wide_depth);
    }
    write(dk_, b, g, m.dk, e_.keys, e_.depth, e_.wide_depth);
    write(dv_, b, g, m.dv, e_.keys, e_.width, e_.wide_width);
  }

  /// One block of keys with all queries.
  void keys(const Memory& m, int64_t b, int64_t h, int64_t g, int64_t j0) const {
    const int64_t n = std::min(kKeys, e_.keys - j0);
    P::pack_turned(m.values, P::rows_of(v_.at(b, g, j0), v_.row, v_.column, n, e_.width, n, m.key_rows), n,
                   e_.width_words);
    const auto key = P::rows_of(k_.at(b, g, j0), k_.row, k_.column, n, e_.depth, n, m.key_rows);
    P::pack_turned(m.keys, key, n, e_.depth_words);
    P::pack(m.key_steps, key, n, e_.depth);
    for (int64_t i0 = 0; i0 < e_.queries; i0 += e_.rows) {
      const int64_t rows = std::min(e_.rows, e_.queries - i0), whole = up(rows, P::kRows);
      if (see_.seen(i0 + rows - 1, j0, n) == 0) continue;
      const auto query = P::rows_of(q_.at(b, h, i0), q_.row, q_.column, rows, e_.depth, whole, m.query);
      const auto grad = P::rows_of(dout_.at(b, h, i0), dout_.row, dout_.column, rows, e_.width, whole, m.grad);
      P::pack(m.query_steps, query, rows, e_.depth), P::pack(m.grad_steps, grad, rows, e_.width);
      for (int64_t i = 0; i < rows; i += P::kRows) {
        const int64_t last = std::min(rows, i + P::kRows) - 1, reach = see_.seen(i0 + last, j0, n);
        const auto scores = [&](typename P::Rows x, int64_t words, const Word* packed, C* to) {
          P::template multiply<false>(reach, 0, words, x.data + i * x.stride, x.stride, packed, P::kColumns * words,
                                      to + i * kStride, kStride, true);
        };
        scores(query, e_.depth_words, m.keys, m.weights), scores(grad, e_.width_words, m.values, m.dscores);
        for (int64_t r = i; r <= last; ++r) make_dscores(m, b, h, i0, r, j0, n);
        for (int64_t r = i; r <= last; ++r) P::round_row(m.dscore_rows + r * kStride, m.dscores + r * kStride, reach);
        P::template multiply<false>(e_.depth, 0, P::words(reach), m.dscore_rows + i * kStride, kStride, m.key_steps,
                                    P::kColumns * P::words(n), m.dq + (i0 + i) * e_.wide_depth, e_.wide_depth, false);
      }
      P::round_turned(m.weights_turned, m.weights, kStride, rows, n);
      P::round_turned(m.dscores_turned, m.dscores, kStride, rows, n);
      const int64_t steps = P::words(rows);
      for (int64_t j = 0; j < n; j += P::kRows) {
        const int64_t begin = see_.blind(i0, rows, j0 + j) / P::kTogether;
        const auto sum = [&](const Word* turned, const Word* packed, int64_t columns, C* to, int64_t ld) {
          P::template multiply<true>(columns, begin, steps - begin, turned + j, kStride, packed, P::kColumns * steps,
                                     to + (j0 + j) * ld, ld, false);
        };
        if (begin == steps) continue;
        sum(m.weights_turned, m.grad_steps, e_.width, m.dv, e_.wide_width);
        sum(m.dscores_turned, m.query_steps, e_.depth, m.dk, e_.wide_depth);
      }
    }
  }

  /// Row i of the block: products become weights, products dout v^T become dS. A hidden key has weight 0 whatever its value.
  void make_dscores(const Memory& m, int64_t b, int64_t h, int64_t i0, int64_t i, int64_t j0, int64_t n) const {
    C *const p = m.weights + i * kStride, *const ds = m.dscores + i * kStride;
    const int64_t seen = see_.seen(i0 + i, j0, n);
    see_.make_scores(p, b, h, i0 + i, j0, seen);
    const C scale = see_.scale, delta = m.delta[i0 + i];
    const C lse = *lse_.at(b, h, i0 + i), shift = lse == see_.kHidden ? C(0) : lse;
    constexpr int lanes = kLanes<C>;
    const Vec<C> zero = {};
    if (drops_.limit) drops_.apply(ds, b, h, i0 + i, j0, seen);
    for (int64_t j = 0; j < seen; j += lanes) {
      const Vec<C> w = first_lanes<C>(exp_of_negative(load(p + j) - shift), seen - j, 0);
      store(p + j, w), store<C>(ds + j, w == 0 ? zero : scale * w * (load(ds + j) - delta));
    }
    if (drops_.limit) drops_.apply(p, b, h, i0 + i, j0, seen);
    for (int64_t j = up(seen, lanes); j < n; j += lanes) store(p + j, zero), store(ds + j, zero);
  }

  void write(const Heads<T>& to, int64_t b, int64_t h, const C* from, int64_t rows, int64_t n, int64_t ld) const {
    if (!to.data) return;
    for (int64_t i = 0; i < rows; ++i) {
      T* const row = to.at(b, h, i);
      if (to.column == 1) fetch(row + P::kAhead * to.row, n);
      by_step(to.column, [&](auto step) {
        for (int64_t w = 0; w < n; ++w) row[w * step] = T(from[i * ld + w]);
      });
    }
  }

  Extents<T> e_;
  Heads<T> dq_, dk_, dv_, dout_, out_, q_, k_, v_;
  Heads<C> lse_;
  Visibility<T> see_;
  Dropout drops_;
  int64_t all_queries_, all_keys_;
};

}  // namespace

static void attention(Context& ctx, const entry::Attention& c, int64_t past) {
  if (c.q.sizes[0] * c.q.sizes[1] * c.q.sizes[2] == 0) return;
  const detail::FlushDenormals flush(c.q.dtype);  // as in softmax
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

void put_attention(Context& ctx, const entry::PutAttention& c) {
  const TensorView index[] = {c.index};
  index_put(ctx, {c.table, c.source, index, {.wrap = c.params.wrap}});
  if (ctx.error.set) return;
  attention(ctx, {.out = c.out,
                  .q = c.q,
                  .k = c.k,
                  .v = c.v,
                  .mask = c.keys,
                  .params = {.scale = c.params.scale, .causal = c.params.causal}});
}

void attention_backward(Context& ctx, const entry::AttentionBackward& c) {
  if (c.k.sizes[0] * c.k.sizes[1] == 0) return;
  const detail::FlushDenormals flush(c.q.dtype);
  for_any_float("attention_backward", c.q.dtype, [&]<class T>() { Backward<T>(c).run(ctx); });
}

}  // namespace tapir::inline v0::cpu
