// Note [Direct weight gradient]
// dw[j, o] = sum over pixels p of x[base(p) + offset(j)] dy[p, o], where j runs over (kernel position, channel): in channels-last order one
// offset per j serves all pixels. A tile of some vectors of o and some j stays in registers while a strip of pixels that fits
// the first cache runs by. Padding is made real first, in a copy of the image. Images are summed in groups that depend on the
// shape alone, then the groups in order: the result is the same for any number of threads.
#include "conv_direct.h"

#include <array>
#include <utility>

#include "../pieces.h"
#include "conv_gemm.h"

namespace tapir::inline v0::cpu {
namespace {

constexpr int kLane = kLanes<float>;
constexpr int kTileSums = kVectorRegisters == 32 ? 24 : 12;  // accumulators of one tile
constexpr int kMaxColumns = 12;
constexpr int64_t kStripBytes = 24 << 10;
constexpr int64_t kMaxWeights = 1 << 17;  // beyond, the sums leave the second cache and a library does as well
constexpr int64_t kMaxGroups = 16;

/// Where the pixels of one strip are: `rows` rows of `width`, in floats.
struct Strip {
  const float *x, *dy;
  int64_t rows, width, x_row, x_step, dy_row, dy_step;
};

/// sums[c][o] += for the columns c at x + offsets[c], and Vectors vectors of o. A strip is summed by itself: one chain of additions over all
/// pixels would lose digits.
template <int Vectors, int Columns> void add_tile(const Strip& s, const int64_t* offsets, float* sums, int64_t ld) {
  Vec<float> acc[Columns][Vectors] = {};
  int64_t at[Columns];
  for (int c = 0; c < Columns; ++c) at[c] = offsets[c];
  for (int64_t r = 0; r < s.rows; ++r) {
    const float *x = s.x + r * s.x_row, *dy = s.dy + r * s.dy_row;
    for (int64_t p = 0; p < s.width; ++p, x += s.x_step, dy += s.dy_step) {
      Vec<float> g[Vectors];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) g[v] = load(dy + v * kLane);
#pragma GCC unroll 12
      for (int c = 0; c < Columns; ++c)
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) acc[c][v] += g[v] * x[at[c]];
    }
  }
#pragma GCC unroll 12
  for (int c = 0; c < Columns; ++c)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      float* const to = sums + c * ld + v * kLane;
      store(to, load(to) + acc[c][v]);
    }
}

using AddTile = void (*)(const Strip&, const int64_t*, float*, int64_t);
template <int Vectors, int... C>
constexpr std::array<AddTile, kMaxColumns + 1> tiles_of(std::integer_sequence<int, C...>) {
  return {nullptr, (Vectors * (C + 1) <= kTileSums               ? add_tile < Vectors,
                    Vectors * (C + 1) <= kTileSums ? C + 1 : 1 > : nullptr)...};
}
constexpr auto kCounts = std::make_integer_sequence<int, kMaxColumns>();
constexpr std::array<AddTile, kMaxColumns + 1> kTiles[] = {
    {}, tiles_of<1>(kCounts), tiles_of<2>(kCounts), {}, tiles_of<4>(kCounts)};

/// The same convolution with its axes at the end of the arrays, extents of 1 before them.
dnn::ConvShape last_axes(const dnn::ConvShape& shape) {
  dnn::ConvShape s = shape;
  for (int64_t* list : {s.in, s.out, s.kernel, s.stride, s.padding, s.dilation})
    std::rotate(list, list + s.spatial, list + 3);
  return s;
}

/// The work on one image after another; `sums` is (columns, o), `bias` (o).
struct WeightGradient {
  const dnn::ConvShape& s;
  const float *x, *dy;
  int64_t columns, padded[3], strides[3];  // of the image with its padding
  const int64_t* offsets;
  bool pads;

  /// The image with zeros around it.
  void pad(int64_t n, float* to) const {
    const float* from = x + n * volume(s.in) * s.c;
    std::fill_n(to, volume(padded) * s.c, 0.f);
    for (int64_t i = 0; i < s.in[0]; ++i)
      for (int64_t j = 0; j < s.in[1]; ++j, from += s.in[2] * s.c)
        std::copy_n(from, s.in[2] * s.c,
                    to + (i + s.padding[0]) * strides[0] + (j + s.padding[1]) * strides[1] + s.padding[2] * strides[2]);
  }

  void add_strip(const Strip& strip, float* sums, float* bias) const {
    for (int64_t o = 0; o < s.o;) {
      const int64_t left = (s.o - o) / kLane, vectors = left >= 4 && kTileSums == 24 ? 4 : left >= 2 ? 2 : 1;
      const int64_t most = std::min<int64_t>(kMaxColumns, kTileSums / vectors), tiles = (columns + most - 1) / most;
      Strip part = strip;
      part.dy += o;
      for (int64_t t = 0; t < tiles; ++t) {
        const int64_t first = columns * t / tiles, count = columns * (t + 1) / tiles - first;
        kTiles[vectors][size_t(count)](part, offsets + first, sums + first * s.o + o, s.o);
      }
      if (bias) {  // a column that is one everywhere
        static constexpr float one = 1;
        static constexpr int64_t here = 0;
        part.x = &one, part.x_row = part.x_step = 0;
        kTiles[vectors][1](part, &here, bias + o, s.o);
      }
      o += vectors * kLane;
    }
  }

  void add_image(int64_t n, float* room, float* sums, float* bias) const {
    if (pads) pad(n, room);
    const float* image = pads ? room : x + n * volume(s.in) * s.c;
    const float* gradient = dy + n * volume(s.out) * s.o;
    const int64_t dy_row = s.out[2] * s.o,
                  rows = std::clamp<int64_t>(kStripBytes / 4 / (s.out[2] * std::min<int64_t>(s.o, 4 * kLane)), 1,
                                             s.out[1]);
    for (int64_t i = 0; i < s.out[0]; ++i)
      for (int64_t j = 0; j < s.out[1]; j += rows)
        add_strip({image + i * s.stride[0] * strides[0] + j * s.stride[1] * strides[1],
                   gradient + (i * s.out[1] + j) * dy_row, std::min(rows, s.out[1] - j), s.out[2],
                   s.stride[1] * strides[1], s.stride[2] * strides[2], dy_row, s.o},
                  sums, bias);
  }
};

}  // namespace

bool direct_backward_weight(Context& ctx, const dnn::ConvShape& shape, V dw, V dbias, const float* dy, const float* x) {
  const dnn::ConvShape s = last_axes(shape);
  const int64_t columns = volume(s.kernel) * s.c, weights = columns * s.o;
  if (s.groups != 1 || s.o % kLane != 0 || weights > kMaxWeights) return false;
  WeightGradient g{
      .s = s, .x = x, .dy = dy, .columns = columns, .padded = {}, .strides = {}, .offsets = nullptr, .pads = false};
  for (int d = 2; d >= 0; --d) {
    g.padded[d] = s.in[d] + 2 * s.padding[d], g.pads = g.pads || s.padding[d] > 0;
    g.strides[d] = d == 2 ? s.c : g.strides[d + 1] * g.padded[d + 1];
  }
  int64_t* offsets = ctx.scratch_of<int64_t>(columns);
  for (int64_t j = 0; j < columns; ++j) {
    const int64_t q = j / s.c, at[] = {q / (s.kernel[1] * s.kernel[2]), q / s.kernel[2] % s.kernel[1], q % s.kernel[2]};
    offsets[j] = j % s.c;
    for (int d = 0; d < 3; ++d) offsets[j] += at[d] * s.dilation[d] * g.strides[d];
  }
  g.offsets = offsets;

  const int64_t groups = std::min(s.n, kMaxGroups), size = weights + s.o, room = g.pads ? volume(g.padded) * s.c : 0;
  float* sums = ctx.scratch_of<float>(groups * size);
  const int64_t grain = std::max<int64_t>(1, groups * 200000 / (s.n * volume(s.out) * weights));
  for_pieces<float>(ctx, groups, grain, room, [&](float* mine, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      float* part = sums + i * size;
      std::fill_n(part, size, 0.f);
      for (int64_t n = s.n * i / groups; n < s.n * (i + 1) / groups; ++n)
        g.add_image(n, mine, part, dbias.defined() ? part + weights : nullptr);
    }
  });

  Field<float> w = field<float>(dw);
  std::rotate(w.at, w.at + s.spatial, w.at + 3);
  parallel_for(size, 4096, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      float sum = 0;
      for (int64_t k = 0; k < groups; ++k) sum += sums[k * size + i];
      const int64_t j = i / s.o, o = i % s.o, q = j / s.c;
      if (j < columns)
        w.data[o * w.n + j % s.c * w.channel + q / (s.kernel[1] * s.kernel[2]) * w.at[0] +
               q / s.kernel[2] % s.kernel[1] * w.at[1] + q % s.kernel[2] * w.at[2]] = sum;
      else sums[i] = sum;  // of the bias gradient; nobody else reads this place
    }
  });
  if (dbias.defined()) {
    TensorView b = dbias;
    b.data = sums + weights, b.dtype = kFloat32, b.strides[0] = 1;
    copy(ctx, {dbias, b});
  }
  return true;
}

}  // namespace tapir::inline v0::cpu
