#include "conv_columns.h"

#include <algorithm>
#include <cstring>

#include "../../core/parallel.h"
#include "../conv/conv_gemm.h"
#include "../kernels.h"

namespace tapir::inline v0::cpu::dnn {
namespace {

constexpr int64_t kChunkBytes = int64_t(12) << 20;  // of gathered pixels: they stay in the last cache

TensorView view_of(void* data, std::initializer_list<int64_t> sizes, std::initializer_list<int64_t> strides) {
  TensorView v(0.0, kFloat32);
  v.is_scalar = false, v.data = data, v.rank = int64_t(sizes.size());
  std::copy(sizes.begin(), sizes.end(), v.sizes), std::copy(strides.begin(), strides.end(), v.strides);
  return v;
}

/// Row p of `to`: what output pixel p reads at kernel positions [first, first + count), zeros in the padding.
void gather_pixels(const ConvShape& s, const float* x, int64_t first, int64_t count, float* to) {
  const Pixels pixels{s.out}, positions{s.kernel};
  const size_t bytes = size_t(s.c) * sizeof(float);
  parallel_for(s.n * volume(s.out), std::max<int64_t>(1, 16384 / (count * s.c)), [&](int64_t begin, int64_t end) {
    float* at = to + begin * count * s.c;
    for (int64_t pixel = begin; pixel < end; ++pixel) {
      int64_t n, ignored, p[3], q[3], from[3];
      pixels.locate(pixel, n, p);
      for (int64_t k = first; k < first + count; ++k, at += s.c) {
        positions.locate(k, ignored, q);
        if (!source_of(s, p, q, from)) std::memset(at, 0, bytes);
        else std::memcpy(at, x + (((n * s.in[0] + from[0]) * s.in[1] + from[1]) * s.in[2] + from[2]) * s.c, bytes);
      }
    }
  });
}

/// Measured with 2.6.3 on AVX-512, one thread: from 128 channels on the library reaches half of what a product does on planes of 4 x 4,
/// and the same from 8 x 8 on.
bool gains_as_product(const Conv& c) {
  const ConvShape& s = c.shape;
  const bool strided = s.stride[0] * s.stride[1] * s.stride[2] > 1;
  return c.pass == ConvPass::BackwardWeight && c.dtype == kFloat32 && c.x.channels_last && c.y.channels_last &&
         s.groups == 1 && s.c % 16 == 0 && s.o % 16 == 0 && s.c >= 128 && s.o >= 128 &&
         volume(s.out) <= (strided ? 196 : 49) && s.n * volume(s.out) >= 128;
}

}  // namespace

bool weight_gradient_as_product(Context& ctx, const Conv& c) {
  if (!gains_as_product(c)) return false;
  const ConvShape& s = c.shape;
  const int64_t positions = volume(s.kernel), pixels = s.n * volume(s.out), width = positions * s.c;
  const bool as_it_is =
      positions == 1 && volume(s.in) == volume(s.out) && s.padding[0] + s.padding[1] + s.padding[2] == 0;
  const int64_t most = std::clamp<int64_t>(kChunkBytes / (pixels * s.c * 4), 1, positions);
  const int64_t chunks = (positions + most - 1) / most;
  const bool in_place = positions == 1 || c.w.channels_last;  // (O, positions, C)
  float* const dw = in_place ? static_cast<float*>(c.w.data) : ctx.scratch_of<float>(s.o * width);
  float* const gathered = as_it_is ? static_cast<float*>(c.x.data) : ctx.scratch_of<float>(pixels * most * s.c);
  for (int64_t i = 0; i < chunks; ++i) {
    const int64_t first = positions * i / chunks, count = positions * (i + 1) / chunks - first;
    if (!as_it_is) gather_pixels(s, static_cast<const float*>(c.x.data), first, count, gathered);
    Gemm g;
    g.by_shape = c.by_shape, g.m = s.o, g.n = count * s.c, g.k = pixels;
    g.a = {c.y.data, 0, 1, s.o}, g.b = {gathered, 0, count * s.c, 1}, g.out = {dw + first * s.c, 0, width, 1};
    if (!gemm(ctx, g)) return false;
  }
  if (!in_place)
    copy(ctx, {view_of(c.w.data, {s.o, s.c, positions}, {width, positions, 1}),
               view_of(dw, {s.o, s.c, positions}, {width, 1, s.c})});
  return true;
}

}  // namespace tapir::inline v0::cpu::dnn
