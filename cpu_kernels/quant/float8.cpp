#include "../../core/formulas/float8.h"

#include <atomic>

#include "../../core/parallel.h"
#include "../pack.h"

namespace tapir::inline v0::cpu {

/// The largest |x|, NaN before all: floats without their signs are ordered as their bits are.
static float largest_size(const float* x, int64_t n) {
  std::atomic<uint32_t> most = 0;
  parallel_for(n, 1 << 15, [&](int64_t first, int64_t last) {
    uint32_t mine = 0;
    for (int64_t i = first; i < last; ++i) mine = std::max(mine, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
    for (uint32_t seen = most.load(); seen < mine && !most.compare_exchange_weak(seen, mine);) {}
  });
  return std::bit_cast<float>(most.load());
}

/// Squares of a matrix, so that what is written transposed stays in the cache.
void to_float8(Context& ctx, const entry::ToFloat8& c) {
  constexpr int64_t kSide = 64;
  const TensorView x = dense(ctx, c.x, kFloat32);
  const float* const from = x.as<float>();
  const Float8 format = c.params.format;
  const float scale = *c.scale.as<float>() = formulas::float8_scale(largest_size(from, x.numel()), format);
  const int64_t rows = x.sizes[0], columns = x.sizes[1], across = (columns + kSide - 1) / kSide;
  uint8_t *const out = c.out.as<uint8_t>(), *const transposed = c.transposed.as<uint8_t>();
  parallel_for((rows + kSide - 1) / kSide * across, 8, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      const int64_t row = t / across * kSide, column = t % across * kSide;
      for (int64_t i = row; i < std::min(row + kSide, rows); ++i)
        for (int64_t j = column; j < std::min(column + kSide, columns); ++j) {
          const uint8_t byte = formulas::to_float8(from[i * columns + j] / scale, format);
          if (out) out[i * columns + j] = byte;
          if (transposed) transposed[j * rows + i] = byte;
        }
    }
  });
}

/// The numbers as floats of 32 bits.
static TensorView widened(Context& ctx, V x, Float8 format) {
  TensorView y = x;
  y.dtype = kFloat32, y.data = ctx.scratch_of<float>(x.numel());
  float table[256];
  for (int byte = 0; byte < 256; ++byte) table[byte] = formulas::from_float8(uint8_t(byte), format);
  parallel_for(x.numel(), 1 << 15, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) y.as<float>()[i] = table[x.as<uint8_t>()[i]];
  });
  return y;
}

void float8_matmul(Context& ctx, const entry::Float8Matmul& c) {
  const TensorView a = widened(ctx, c.a, c.params.a);
  TensorView b = widened(ctx, c.b, c.params.b);
  std::swap(b.sizes[0], b.sizes[1]), std::swap(b.strides[0], b.strides[1]);
  const bool wide = c.out.dtype == kFloat32;
  TensorView out = c.out;
  if (!wide) {
    out.dtype = kFloat32, out.data = ctx.scratch_of<float>(out.numel());
    out.strides[0] = out.sizes[1], out.strides[1] = 1;
  }
  const double scale = double(*c.a_scale.as<float>()) * double(*c.b_scale.as<float>());
  matmul(ctx, {.out = out,
               .a = a,
               .b = b,
               .bias = !c.bias.defined() || c.bias.dtype == kFloat32 ? V(c.bias) : dense(ctx, c.bias, kFloat32),
               .params = {.alpha = scale}});
  if (!wide) copy(ctx, {c.out, out});
}

}  // namespace tapir::inline v0::cpu
