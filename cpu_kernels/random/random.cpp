#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "../../core/dispatch.h"
#include "../../core/normal.h"
#include "../../core/parallel.h"
#include "../kernels.h"
#include "../loops.h"
#include "philox.h"

// The formulas are those of docs/random.md; lanes and counters those of core/generator.h.
namespace tapir::inline v0::cpu {
namespace {

using P = RandomParams;

void draw_words(const P& p, int64_t first, int64_t count, uint32_t plane, uint32_t* words) {
  words_of(p.seed, p.offset, first, count, plane, words);
}

/// Fills `out` in row-major order, whatever its strides: make(first, count, values) writes `count` values of type R.
template <class R, class Make> void generate(V out, Make&& make) {
  Space space(1);
  const int64_t size = size_of(out.dtype), n = out.numel();
  for (int64_t d = 0; d < out.rank; ++d) {
    const int64_t stride = out.strides[d] * size;
    space.add(out.sizes[d], &stride);
  }
  const bool flat = space.is_flat(0, size);
  const Converter convert = out.dtype == dtype_of<R> ? nullptr : converter(out.dtype, dtype_of<R>);
  char* const to = out.as<char>();
  parallel_for((n + kTile - 1) / kTile, 4, [&](int64_t first, int64_t last) {
    alignas(64) R values[kTile];
    alignas(64) char raw[kTile * kMaxElementSize];
    for (int64_t t = first; t < last; ++t) {
      const int64_t begin = t * kTile, count = std::min(kTile, n - begin);
      if (flat && !convert) {
        make(begin, count, reinterpret_cast<R*>(to) + begin);
        continue;
      }
      make(begin, count, values);
      if (convert) convert(count, flat ? to + begin * size : raw, values);
      if (!flat) scatter(space, 0, to, begin, count, size, convert ? static_cast<const void*>(raw) : values);
    }
  });
}

/// The bits of a word that a uniform float32 takes. A 16-bit float holds fewer: the others are dropped, so that none rounds to 1.
int uniform_bits(DType dtype) { return dtype == kFloat16 ? 11 : dtype == kBFloat16 ? 8 : 24; }

/// The largest number of that dtype below b.
template <class T> float below_half(float b) {
  T v(b);
  if (float(v) < b) return float(v);
  v.bits = v.bits & 0x8000 ? uint16_t(v.bits + 1) : v.bits ? uint16_t(v.bits - 1) : uint16_t(0x8001);
  return float(v);
}
float number_below(DType dtype, float b) {
  if (dtype == kFloat16) return below_half<Half>(b);
  if (dtype == kBFloat16) return below_half<BFloat16>(b);
  return std::nextafter(b, -std::numeric_limits<float>::infinity());
}

void uniform(V out, const P& p) {
  if (out.dtype == kFloat64)
    return generate<double>(out, [&](int64_t first, int64_t count, double* values) {
      alignas(64) uint32_t high[kTile + 4], low[kTile + 4];
      draw_words(p, first, count, 0, high), draw_words(p, first, count, 1, low);
      const double width = p.b - p.a, below = std::nextafter(p.b, p.a);
      for (int64_t i = 0; i < count; ++i) {
        const double v = std::fma(Philox::uniform(high[i], low[i]), width, p.a);
        values[i] = v < p.b || width <= 0 ? v : below;
      }
    });
  const DType dtype = out.dtype;
  const int bits = uniform_bits(dtype);
  generate<float>(out, [&](int64_t first, int64_t count, float* values) {
    alignas(64) uint32_t words[kTile + 4];
    draw_words(p, first, count, 0, words);
    const float a = float(p.a), b = float(p.b), width = float(p.b - p.a), below = number_below(dtype, b),
                unit = std::ldexp(1.0f, -bits);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const float v = std::fma(float(int32_t(words[i] >> (32 - bits))) * unit, width,
                               a);  // rounded once, with or without the instruction
      values[i] = v <= below || width <= 0 ? v : below;
    }
  });
}

void normal(V out, const P& p) {
  if (out.dtype == kFloat64)
    return generate<double>(out, [&](int64_t first, int64_t count, double* values) {
      alignas(64) uint32_t high[kTile + 4], low[kTile + 4];
      draw_words(p, first, count, 0, high), draw_words(p, first, count, 1, low);
      for (int64_t i = 0; i < count; i += 2) {
        const auto [x, y] = normal_pair<double>(high[i], low[i], high[i + 1], low[i + 1]);
        values[i] = p.a + p.b * x;
        if (i + 1 < count) values[i + 1] = p.a + p.b * y;
      }
    });
  generate<float>(out, [&](int64_t first, int64_t count, float* values) {
    alignas(64) uint32_t words[kTile + 4];
    float pairs[kTile + 4];
    draw_words(p, first, count, 0, words);
    const float mean = float(p.a), deviation = float(p.b);
    const int64_t half = (count + 1) / 2;
#pragma omp simd
    for (int64_t i = 0; i < half; ++i) {
      const auto [x, y] = normal_pair<float>(words[2 * i], words[2 * i + 1]);
      pairs[2 * i] = x, pairs[2 * i + 1] = y;
    }
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) values[i] = mean + deviation * pairs[i];
  });
}

void integer(V out, const P& p) {
  const uint64_t range = uint64_t(p.high) - uint64_t(p.low);
  generate<int64_t>(out, [&](int64_t first, int64_t count, int64_t* values) {
    alignas(64) uint32_t words[kTile + 4], low[kTile + 4];
    draw_words(p, first, count, 0, words);
    if (range - 1 < Philox::kNarrowRange) {
      for (int64_t i = 0; i < count; ++i) values[i] = int64_t(uint64_t(p.low) + Philox::integer(words[i], range));
    } else {
      draw_words(p, first, count, 1, low);
      for (int64_t i = 0; i < count; ++i)
        values[i] = int64_t(uint64_t(p.low) + Philox::integer(words[i], low[i], range));
    }
  });
}

void bernoulli(Context& ctx, V out, V probabilities, const P& p) {
  Space space(1);
  const bool by_tensor = p.op == RandomOp::BernoulliTensor;
  for (int64_t d = 0; by_tensor && d < out.rank; ++d) {
    const int64_t from = d - (out.rank - probabilities.rank);
    const bool repeats = from < 0 || probabilities.sizes[from] == 1;
    const int64_t stride = repeats ? 0 : probabilities.strides[from] * size_of(probabilities.dtype);
    space.add(out.sizes[d], &stride);
  }
  const Converter load = by_tensor ? converter(kFloat64, probabilities.dtype) : nullptr;
  generate<bool>(out, [&](int64_t first, int64_t count, bool* values) {
    alignas(64) uint32_t words[kTile + 4];
    draw_words(p, first, count, 0, words);
    if (!by_tensor) {
      for (int64_t i = 0; i < count; ++i) values[i] = double(Philox::uniform(words[i])) < p.a;
      return;
    }
    alignas(64) char raw[kTile * kMaxElementSize];
    double limits[kTile];
    gather(space, 0, probabilities.as<char>(), first, count, size_of(probabilities.dtype), raw);
    load(count, limits, raw);
    for (int64_t i = 0; i < count; ++i) {
      if (!(limits[i] >= 0 && limits[i] <= 1)) [[unlikely]]
        ctx.bad_value(first + i, 0, 0);
      values[i] = double(Philox::uniform(words[i])) < limits[i];
    }
  });
}

/// The order in which a stable sort by their words would put the elements: radix sort, 11 bits at a time.
void permutation(Context& ctx, V out, const P& p) {
  const int64_t n = out.numel();
  uint32_t* words = ctx.scratch_of<uint32_t>(2 * n + 8);
  int64_t* order = ctx.scratch_of<int64_t>(2 * n);
  uint32_t* next_words = words + n + 4;
  int64_t* next_order = order + n;
  draw_words(p, 0, n, 0, words);
  for (int64_t i = 0; i < n; ++i) order[i] = i;
  for (int shift = 0; shift < 32; shift += 11) {
    std::array<int64_t, 2049> start{};
    for (int64_t i = 0; i < n; ++i) ++start[size_t(words[i] >> shift & 2047) + 1];
    for (size_t k = 1; k < start.size(); ++k) start[k] += start[k - 1];
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = start[words[i] >> shift & 2047]++;
      next_words[at] = words[i], next_order[at] = order[i];
    }
    std::swap(words, next_words), std::swap(order, next_order);
  }
  generate<int64_t>(out,
                    [&](int64_t first, int64_t count, int64_t* values) { std::copy_n(order + first, count, values); });
}

}  // namespace

void random(Context& ctx, const entry::Random& c) {
  V out = c.out;
  if (out.numel() == 0) return;
  RandomParams p = c.params;
  if (c.base.defined()) p.offset += uint64_t(*c.base.as<int64_t>());
  switch (p.op) {
    case RandomOp::Uniform:
    case RandomOp::Normal:
      if (!is_floating(out.dtype)) fail_dtype("random", out.dtype);
      return p.op == RandomOp::Uniform ? uniform(out, p) : normal(out, p);
    case RandomOp::Integer: return integer(out, p);
    case RandomOp::Bernoulli:
    case RandomOp::BernoulliTensor: return bernoulli(ctx, out, c.p, p);
    case RandomOp::Permutation: return permutation(ctx, out, p);
  }
}

}  // namespace tapir::inline v0::cpu
