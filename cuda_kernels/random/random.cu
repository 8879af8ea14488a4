#include <cmath>
#include <limits>

#include "../../core/dispatch.h"
#include "../../core/generator.h"
#include "../../core/normal.h"
#include "../any.h"
#include "../kernel.h"
#include "../kernels.h"
#include "../launch.h"
#include "../layout.h"
#include "../vendor/sort.h"

// Random numbers and dropout: a thread makes the four words of one counter and from them four neighbours, so that element i of a call
// gets lane i mod 4 of counter offset + i / 4 as on every device. The formulas are those of docs/random.md.
namespace tapir::inline v0::cuda_kernels {
namespace {

/// What one call draws from: a key and a position, to which `base` (for replay) is added when the kernel runs.
struct Source {
  uint64_t seed, offset;
  const int64_t* base;  // may be null
  Source(uint64_t seed, uint64_t offset, V base) : seed(seed), offset(offset), base(base.as<const int64_t>()) {
    if (!base.defined()) this->base = nullptr;
  }
  __device__ uint64_t start() const { return offset + (base ? uint64_t(*base) : 0); }
};

/// The order in which threads take the elements of N operands: each has four neighbours of the row-major order, which one counter
/// serves; neighbouring threads have neighbours in operand 0's memory.
template <int N> struct Order {
  Layout<N + 2> l;  // of fours in a row; behind the operands: the number of the first element, and its column
  int64_t columns, steps[N];
  bool line;  // element i lies at i in all operands, and one access moves four
};
/// Element i of the four lies at place(k, i) of operand k.
template <int N> struct Four {
  const Order<N>& order;
  int64_t first, column, at[N];
  __device__ bool whole() const { return order.line && column + 4 <= order.columns; }
  __device__ bool has(int i) const { return uint64_t(column + i) < uint64_t(order.columns); }
  __device__ int64_t place(int k, int i) const { return at[k] + i * order.steps[k]; }
};

/// f(counter, four) for all elements.
template <int N, class F>
__device__ __forceinline__ void for_fours(const Source& source, const Order<N>& order, F&& f) {
  const uint64_t start = source.start();
  for (const int64_t i : grid_stride(order.l.numel)) {
    int64_t at[N + 2];
    if (order.line) at[N] = at[N + 1] = 4 * i;
    else order.l.offsets(i, at);
    const int64_t skipped = at[N] % 4;  // they stand in the row before
    Four<N> four{order, at[N] - skipped, at[N + 1] - skipped, {}};
    for (int k = 0; k < N; ++k) four.at[k] = order.line ? 4 * i : at[k] - skipped * order.steps[k];
    if (four.column < order.columns) f(start + uint64_t(four.first / 4), four);
  }
}
template <class T> __device__ void store_four(T* to, const Four<1>& four, const T (&values)[4]) {
  if (four.whole()) {
    if constexpr (sizeof(T) == 8) {
      Pack<T, 2>* const place = reinterpret_cast<Pack<T, 2>*>(to + four.at[0]);
      place[0] = {{values[0], values[1]}}, place[1] = {{values[2], values[3]}};
    } else {
      *reinterpret_cast<Pack<T, 4>*>(to + four.at[0]) = {{values[0], values[1], values[2], values[3]}};
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (four.has(i)) to[four.place(0, i)] = values[i];
}

/// Numbers of `uniform`, made once on the host. The bits of a word that a float32 takes are 24; 16-bit floats hold fewer: the others
/// are dropped, so that none rounds to b.
template <class C> struct Range {
  C a, b, width, below, unit;
  int bits, unused = 0;
};
template <class T> __global__ void uniform_kernel(T* to, Order<1> order, Source source, Range<Compute<T>> r) {
  using C = Compute<T>;
  for_fours(source, order, [&](uint64_t counter, const auto& four) {
    const Philox::Block words = Philox::block(source.seed, counter);
    T values[4];
    if constexpr (std::is_same_v<C, double>) {
      const Philox::Block low = Philox::block(source.seed, counter, 1);
      for (int i = 0; i < 4; ++i) {
        const double v = std::fma(Philox::uniform(words.word[i], low.word[i]), r.width, r.a);
        values[i] = v < r.b || r.width <= 0 ? v : r.below;
      }
    } else {
      for (int i = 0; i < 4; ++i) {
        const float v = std::fma(float(int32_t(words.word[i] >> (32 - r.bits))) * r.unit, r.width, r.a);
        values[i] = narrow<T>(v <= r.below || r.width <= 0 ? v : r.below);
      }
    }
    store_four(to, four, values);
  });
}
template <class T>
__global__ void normal_kernel(T* to, Order<1> order, Source source, Compute<T> mean, Compute<T> deviation) {
  using C = Compute<T>;
  for_fours(source, order, [&](uint64_t counter, const auto& four) {
    const Philox::Block w = Philox::block(source.seed, counter);
    NormalPair<C> pairs[2];
    if constexpr (std::is_same_v<C, double>) {
      const Philox::Block low = Philox::block(source.seed, counter, 1);
      for (int i = 0; i < 2; ++i)
        pairs[i] = normal_pair<C>(w.word[2 * i], low.word[2 * i], w.word[2 * i + 1], low.word[2 * i + 1]);
    } else {
      for (int i = 0; i < 2; ++i) pairs[i] = normal_pair<C>(w.word[2 * i], w.word[2 * i + 1]);
    }
    T values[4];
    for (int i = 0; i < 2; ++i) {
      values[2 * i] = narrow<T>(mean + deviation * pairs[i].first);
      values[2 * i + 1] = narrow<T>(mean + deviation * pairs[i].second);
    }
    store_four(to, four, values);
  });
}

/// Integers in [low, low + range), 0 for 2^64, as any dtype.
__global__ void integer_kernel(void* to, DType dtype, Order<1> order, Source source, int64_t low, uint64_t range) {
  for_fours(source, order, [&](uint64_t counter, const auto& four) {
    const bool narrow = range - 1 < Philox::kNarrowRange;
    const Philox::Block words = Philox::block(source.seed, counter),
                        more = narrow ? words : Philox::block(source.seed, counter, 1);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (!four.has(i)) continue;
      const uint64_t v =
          narrow ? Philox::integer(words.word[i], range) : Philox::integer(words.word[i], more.word[i], range);
      store_any(to, four.place(0, i), dtype, int64_t(uint64_t(low) + v));
    }
  });
}
/// True with probability p, or with that of each element (operand 1 of the layout).
__global__ void bernoulli_kernel(void* to, DType dtype, Order<2> order, Source source, double p, const void* limits,
                                 DType limits_dtype, LateError* error) {
  for_fours(source, order, [&](uint64_t counter, const auto& four) {
    const Philox::Block words = Philox::block(source.seed, counter);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (!four.has(i)) continue;
      double limit = p;
      if (limits) {
        limit = load_any<double>(limits, four.place(1, i), limits_dtype);
        if (!(limit >= 0 && limit <= 1)) report_bad_value(error, four.first + i, 0, 0);
      }
      store_any(to, four.place(0, i), dtype, double(Philox::uniform(words.word[i])) < limit);
    }
  });
}

template <class K, class P> __global__ void permutation_keys(Pairs<K, P> to, int64_t n, Source source) {
  const uint64_t start = source.start();
  for (const int64_t first : grid_stride(n, 4)) {
    const Philox::Block words = Philox::block(source.seed, start + uint64_t(first / 4));
    for (int i = 0; i < 4 && first + i < n; ++i)
      to.keys[first + i] = words.word[i], to.positions[first + i] = P(first + i);
  }
}
template <class P> __global__ void permutation_kernel(void* to, DType dtype, Layout<1> l, const P* order) {
  for (const int64_t i : grid_stride(l.numel)) {
    int64_t at[1];
    l.offsets(i, at);
    store_any(to, at[0], dtype, int64_t(order[i]));
  }
}

/// `packs`: the operands begin at multiples of four elements.
template <int N> Order<N> order_of(const TensorView* const (&views)[N], bool packs) {
  const Layout<N> rows = layout_of<N>(views, false);
  const int rank = std::max(rows.rank, 1);
  Order<N> o{};
  o.columns = rows.rank ? rows.sizes[0] : 1, o.line = packs && rank == 1;
  for (int k = 0; k < N; ++k) o.steps[k] = rows.strides[k][0], o.line = o.line && (o.steps[k] == 1 || rows.numel == 1);
  int order[kMaxRank] = {};
  for (int d = 0; d < rank; ++d) {
    int at = d;
    for (; at > 0 && std::abs(rows.strides[0][d]) < std::abs(rows.strides[0][order[at - 1]]); --at)
      order[at] = order[at - 1];
    order[at] = d;
  }
  int64_t number[kMaxRank] = {4};
  for (int d = 1; d < rank; ++d) number[d] = (d == 1 ? 1 : number[d - 1]) * rows.sizes[d - 1];
  o.l.rank = rank;
  for (int i = 0; i < rank; ++i) {
    const int d = order[i];
    // A row that does not begin at a multiple of four has part of one more.
    o.l.sizes[i] = d ? rows.sizes[d] : (o.columns + (rank == 1 || o.columns % 4 == 0 ? 3 : 6)) / 4;
    o.l.numel *= o.l.sizes[i], o.l.strides[N][i] = number[d], o.l.strides[N + 1][i] = d ? 0 : 4;
    for (int k = 0; k < N; ++k) o.l.strides[k][i] = rows.strides[k][d] * (d ? 1 : 4);
  }
  o.l.small = o.l.numel < int64_t(1) << 31;
  for (int i = 0; o.l.small && i < rank; ++i) o.l.dividers[i] = Divider(uint32_t(o.l.sizes[i]));
  return o;
}

/// The largest number of that dtype below b.
template <class T> float below_half(float b) {
  T v(b);
  if (float(v) < b) return float(v);
  v.bits = v.bits & 0x8000 ? uint16_t(v.bits + 1) : v.bits ? uint16_t(v.bits - 1) : uint16_t(0x8001);
  return float(v);
}
template <class T> Range<Compute<T>> range_of(const RandomParams& p) {
  if constexpr (std::is_same_v<T, double>) return {p.a, p.b, p.b - p.a, std::nextafter(p.b, p.a), 0, 0};
  else {
    const float b = float(p.b);
    const int bits = std::is_same_v<T, Half> ? 11 : std::is_same_v<T, BFloat16> ? 8 : 24;
    float below = std::nextafter(b, -std::numeric_limits<float>::infinity());
    if constexpr (sizeof(T) == 2) below = below_half<T>(b);
    return {float(p.a), b, float(p.b - p.a), below, std::ldexp(1.0f, -bits), bits};
  }
}

/// The order in which a stable sort by their words would put the elements.
template <class K, class P> void permutation(Context& ctx, V out, const Layout<1>& l, const Source& source) {
  const int64_t n = l.numel;
  const Pairs<K, P> from{ctx.scratch_of<K>(n), ctx.scratch_of<P>(n)}, other{ctx.scratch_of<K>(n), ctx.scratch_of<P>(n)};
  launch(ctx, "random", grid_of((n + 3) / 4), permutation_keys<K, P>, from, n, source);
  const Pairs<K, P> sorted = sort_pairs(ctx, from, other, n, 32);
  launch(ctx, "random", grid_of(n), permutation_kernel<P>, out.data, out.dtype, l, sorted.positions);
}

/// Dropout of four neighbours by one word each: those of at least `limit` stay.
template <class T> __global__ void dropout_kernel(T* y, bool* mask, const T* x, Order<3> order, Source source,
                                                  uint32_t limit, Compute<T> scale) {
  for_fours(source, order, [&](uint64_t counter, const Four<3>& four) {
    const Philox::Block words = Philox::block(source.seed, counter);
    const auto stays = [&](int i) { return words.word[i] >> 8 >= limit; };
    if (four.whole()) {
      constexpr int W = sizeof(T) == 8 ? 2 : 4;  // that one access moves
#pragma unroll
      for (int k = 0; k < 4; k += W) {
        Pack<T, W> v = *reinterpret_cast<const Pack<T, W>*>(x + four.at[1] + k);
#pragma unroll
        for (int i = 0; i < W; ++i) v.of[i] = stays(k + i) ? narrow<T>(widen(v.of[i]) * scale) : narrow<T>(0);
        *reinterpret_cast<Pack<T, W>*>(y + four.at[0] + k) = v;
      }
      if (mask) *reinterpret_cast<Pack<bool, 4>*>(mask + four.at[2]) = {{stays(0), stays(1), stays(2), stays(3)}};
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // a word chosen later lies in local memory
      if (!four.has(i)) continue;
      y[four.place(0, i)] = stays(i) ? narrow<T>(widen(x[four.place(1, i)]) * scale) : narrow<T>(0);
      if (mask) mask[four.place(2, i)] = stays(i);
    }
  });
}

/// Packs of four elements lie at multiples of their size.
bool aligned(const void* data, int64_t element) { return reinterpret_cast<uintptr_t>(data) % (4 * element) == 0; }

}  // namespace

void random(Context& ctx, const entry::Random& c) {
  const TensorView& out = c.out;
  const RandomParams& params = c.params;
  if (out.numel() == 0) return;
  const Source source(params.seed, params.offset, c.base);
  const Order<1> order = order_of<1>({&out}, aligned(out.data, size_of(out.dtype)));
  const Grid grid = grid_of(order.l.numel);
  switch (params.op) {
    case RandomOp::Uniform:
      return for_any_float("random", out.dtype, [&]<class T>() {
        launch(ctx, "random", grid, uniform_kernel<T>, out.as<T>(), order, source, range_of<T>(params));
      });
    case RandomOp::Normal:
      return for_any_float("random", out.dtype, [&]<class T>() {
        launch(ctx, "random", grid, normal_kernel<T>, out.as<T>(), order, source, params.a, params.b);
      });
    case RandomOp::Integer:
      return launch(ctx, "random", grid, integer_kernel, out.data, out.dtype, order, source, params.low,
                    uint64_t(params.high) - uint64_t(params.low));
    case RandomOp::Bernoulli:
    case RandomOp::BernoulliTensor: {
      const bool given = params.op == RandomOp::BernoulliTensor;
      const TensorView limits = given ? c.p.expand(out.shape()) : out;
      const Order<2> both = order_of<2>({&out, &limits}, false);
      return launch(ctx, "random", grid_of(both.l.numel), bernoulli_kernel, out.data, out.dtype, both, source, params.a,
                    given ? limits.data : nullptr, limits.dtype, given ? late_error(ctx) : nullptr);
    }
    case RandomOp::Permutation: {
      const Layout<1> l = layout_of<1>({&out}, false);
      if (l.numel <= int64_t(UINT32_MAX)) return permutation<uint32_t, uint32_t>(ctx, out, l, source);
      return permutation<uint64_t, int64_t>(ctx, out, l, source);
    }
  }
}

void dropout(Context& ctx, const entry::Dropout& c) {
  const TensorView &y = c.y, &mask = c.mask, &x = c.x;
  const DropoutParams& params = c.params;
  if (y.numel() == 0) return;
  const Order<3> order = order_of<3>({&y, &x, mask.defined() ? &mask : &y},
                                     aligned(y.data, size_of(y.dtype)) && aligned(x.data, size_of(y.dtype)) &&
                                         (!mask.defined() || aligned(mask.data, 1)));
  const uint32_t limit = Philox::drop_limit(params.p);
  const double scale = Philox::keep_scale(params.p);
  for_any_float("dropout", y.dtype, [&]<class T>() {
    launch(ctx, "dropout", grid_of(order.l.numel), dropout_kernel<T>, y.as<T>(),
           mask.defined() ? mask.as<bool>() : nullptr, x.as<T>(), order, Source(params.seed, params.offset, c.base),
           limit, scale);
  });
}

}  // namespace tapir::inline v0::cuda_kernels
