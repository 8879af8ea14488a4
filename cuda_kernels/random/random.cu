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

/// f(block, words) for all blocks of four elements of n: `block` begins at element 4 block.
template <class F> __device__ void for_blocks(const Source& source, int64_t n, F&& f) {
  const uint64_t start = source.start();
  const int64_t blocks = (n + 3) / 4;
  for (const int64_t b : grid_stride(blocks)) f(b, start + uint64_t(b));
}
/// The four values of block b become elements of `to`, in row-major order, whatever its strides.
template <class T> __device__ void store_block(T* to, const Layout<1>& l, bool dense, int64_t b, const T (&values)[4]) {
  if (dense && 4 * b + 4 <= l.numel) {
    if constexpr (sizeof(T) == 8) {
      Pack<T, 2>* const place = reinterpret_cast<Pack<T, 2>*>(to + 4 * b);
      place[0] = {{values[0], values[1]}}, place[1] = {{values[2], values[3]}};
    } else {
      *reinterpret_cast<Pack<T, 4>*>(to + 4 * b) = {{values[0], values[1], values[2], values[3]}};
    }
    return;
  }
  for (int lane = 0; lane < 4 && 4 * b + lane < l.numel; ++lane) {
    int64_t at[1];
    l.offsets(4 * b + lane, at);
    to[at[0]] = values[lane];
  }
}

/// Numbers of `uniform`, made once on the host. The bits of a word that a float32 takes are 24; 16-bit floats hold fewer: the others
/// are dropped, so that none rounds to b.
template <class C> struct Range {
  C a, b, width, below, unit;
  int bits, unused = 0;
};
template <class T> __global__ void uniform_kernel(T* to, Layout<1> l, bool dense, Source source, Range<Compute<T>> r) {
  using C = Compute<T>;
  for_blocks(source, l.numel, [&](int64_t b, uint64_t counter) {
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
    store_block(to, l, dense, b, values);
  });
}
template <class T>
__global__ void normal_kernel(T* to, Layout<1> l, bool dense, Source source, Compute<T> mean, Compute<T> deviation) {
  using C = Compute<T>;
  for_blocks(source, l.numel, [&](int64_t b, uint64_t counter) {
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
    store_block(to, l, dense, b, values);
  });
}

/// Integers in [low, low + range), 0 for 2^64, as any dtype.
__global__ void integer_kernel(void* to, DType dtype, Layout<1> l, Source source, int64_t low, uint64_t range) {
  for_blocks(source, l.numel, [&](int64_t b, uint64_t counter) {
    const bool narrow = range - 1 < Philox::kNarrowRange;
    const Philox::Block words = Philox::block(source.seed, counter),
                        more = narrow ? words : Philox::block(source.seed, counter, 1);
    for (int i = 0; i < 4 && 4 * b + i < l.numel; ++i) {
      const uint64_t v =
          narrow ? Philox::integer(words.word[i], range) : Philox::integer(words.word[i], more.word[i], range);
      int64_t at[1];
      l.offsets(4 * b + i, at);
      store_any(to, at[0], dtype, int64_t(uint64_t(low) + v));
    }
  });
}
/// True with probability p, or with that of each element (operand 1 of the layout).
__global__ void bernoulli_kernel(void* to, DType dtype, Layout<2> l, Source source, double p, const void* limits,
                                 DType limits_dtype, LateError* error) {
  for_blocks(source, l.numel, [&](int64_t b, uint64_t counter) {
    const Philox::Block words = Philox::block(source.seed, counter);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (4 * b + i >= l.numel) break;
      int64_t at[2];
      l.offsets(4 * b + i, at);
      double limit = p;
      if (limits) {
        limit = load_any<double>(limits, at[1], limits_dtype);
        if (!(limit >= 0 && limit <= 1)) report_bad_value(error, 4 * b + i, 0, 0);
      }
      store_any(to, at[0], dtype, double(Philox::uniform(words.word[i])) < limit);
    }
  });
}

template <class K, class P> __global__ void permutation_keys(Pairs<K, P> to, int64_t n, Source source) {
  for_blocks(source, n, [&](int64_t b, uint64_t counter) {
    const Philox::Block words = Philox::block(source.seed, counter);
    for (int i = 0; i < 4 && 4 * b + i < n; ++i)
      to.keys[4 * b + i] = words.word[i], to.positions[4 * b + i] = P(4 * b + i);
  });
}
template <class P> __global__ void permutation_kernel(void* to, DType dtype, Layout<1> l, const P* order) {
  for (const int64_t i : grid_stride(l.numel)) {
    int64_t at[1];
    l.offsets(i, at);
    store_any(to, at[0], dtype, int64_t(order[i]));
  }
}

Grid grid_of_blocks(int64_t n) { return grid_of((n + 3) / 4); }

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
  launch(ctx, "random", grid_of_blocks(n), permutation_keys<K, P>, from, n, source);
  const Pairs<K, P> sorted = sort_pairs(ctx, from, other, n, 32);
  launch(ctx, "random", grid_of(n), permutation_kernel<P>, out.data, out.dtype, l, sorted.positions);
}

/// Dropout of four neighbours by one word each: those of at least `limit` stay.
template <class T> __global__ void dropout_kernel(T* y, bool* mask, const T* x, Layout<3> l, bool dense, Source source,
                                                  uint32_t limit, Compute<T> scale) {
  for_blocks(source, l.numel, [&](int64_t b, uint64_t counter) {
    const Philox::Block words = Philox::block(source.seed, counter);
    const auto stays = [&](int i) { return words.word[i] >> 8 >= limit; };
    if (dense && 4 * b + 4 <= l.numel) {
      Pack<T, 4> v = reinterpret_cast<const Pack<T, 4>*>(x)[b];
      for (int i = 0; i < 4; ++i) v.of[i] = stays(i) ? narrow<T>(widen(v.of[i]) * scale) : narrow<T>(0);
      reinterpret_cast<Pack<T, 4>*>(y)[b] = v;
      if (mask) reinterpret_cast<Pack<bool, 4>*>(mask)[b] = {{stays(0), stays(1), stays(2), stays(3)}};
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // a word chosen later lies in local memory
      if (4 * b + i >= l.numel) break;
      int64_t at[3];
      l.offsets(4 * b + i, at);
      y[at[0]] = stays(i) ? narrow<T>(widen(x[at[1]]) * scale) : narrow<T>(0);
      if (mask) mask[at[2]] = stays(i);
    }
  });
}

/// Packs of four elements lie at multiples of their size.
bool aligned(const void* data, int64_t element) { return reinterpret_cast<uintptr_t>(data) % (4 * element) == 0; }
template <int N> bool dense(const Layout<N>& l, int operand) {
  return l.numel <= 1 || (l.rank == 1 && l.strides[operand][0] == 1);
}

}  // namespace

void random(Context& ctx, const entry::Random& c) {
  const TensorView& out = c.out;
  const RandomParams& params = c.params;
  if (out.numel() == 0) return;
  const Source source(params.seed, params.offset, c.base);
  const Layout<1> l = layout_of<1>({&out}, false);
  const Grid grid = grid_of_blocks(l.numel);
  const bool packed = dense(l, 0) && aligned(out.data, size_of(out.dtype));
  switch (params.op) {
    case RandomOp::Uniform:
      return for_any_float("random", out.dtype, [&]<class T>() {
        launch(ctx, "random", grid, uniform_kernel<T>, out.as<T>(), l, packed, source, range_of<T>(params));
      });
    case RandomOp::Normal:
      return for_any_float("random", out.dtype, [&]<class T>() {
        launch(ctx, "random", grid, normal_kernel<T>, out.as<T>(), l, packed, source, params.a, params.b);
      });
    case RandomOp::Integer:
      return launch(ctx, "random", grid, integer_kernel, out.data, out.dtype, l, source, params.low,
                    uint64_t(params.high) - uint64_t(params.low));
    case RandomOp::Bernoulli:
    case RandomOp::BernoulliTensor: {
      const bool given = params.op == RandomOp::BernoulliTensor;
      const TensorView limits = given ? c.p.expand(out.shape()) : out;
      return launch(ctx, "random", grid, bernoulli_kernel, out.data, out.dtype, layout_of<2>({&out, &limits}, false),
                    source, params.a, given ? limits.data : nullptr, limits.dtype, given ? late_error(ctx) : nullptr);
    }
    case RandomOp::Permutation:
      if (l.numel <= int64_t(UINT32_MAX)) return permutation<uint32_t, uint32_t>(ctx, out, l, source);
      return permutation<uint64_t, int64_t>(ctx, out, l, source);
  }
}

void dropout(Context& ctx, const entry::Dropout& c) {
  const TensorView &y = c.y, &mask = c.mask, &x = c.x;
  const DropoutParams& params = c.params;
  const Layout<3> l = layout_of<3>({&y, &x, mask.defined() ? &mask : &y}, false);
  if (l.numel == 0) return;
  const uint32_t limit = Philox::drop_limit(params.p);
  const double scale = Philox::keep_scale(params.p);
  const bool packed = dense(l, 0) && dense(l, 1) && dense(l, 2) && aligned(y.data, size_of(y.dtype)) &&
                      aligned(x.data, size_of(y.dtype)) && (!mask.defined() || aligned(mask.data, 1));
  for_any_float("dropout", y.dtype, [&]<class T>() {
    // Packs of four float64 are more than one access moves.
    launch(ctx, "dropout", grid_of_blocks(l.numel), dropout_kernel<T>, y.as<T>(),
           mask.defined() ? mask.as<bool>() : nullptr, x.as<T>(), l, packed && sizeof(T) <= 4,
           Source(params.seed, params.offset, c.base), limit, scale);
  });
}

}  // namespace tapir::inline v0::cuda_kernels
