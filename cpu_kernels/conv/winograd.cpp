// Note [Winograd]
// A convolution of 3 x 3 in 2.25 to 4 times fewer multiplications (Lavin and Gray, arXiv:1509.09308). A tile of 4 x 4 outputs is a
// product of polynomials, taken at 6 points in each direction:
//   forward and data    y = A^T [ (G w G^T) . (B^T x B) ] A        x: 6 x 6 around the tile
//   weight              dw = G^T [ sum over tiles of (B^T x B) . (A dy A^T) ] G
// At each of the 36 points the sum over channels (tiles, for the weight) is a matrix product. The points are 0, +-a, +-1/a and infinity
// with a = sqrt(1/2), whose rounding errors are some 2 times those of plain sums (weight gradients: up to 5); the usual 0, 1, -1, 2, -2 gives
// 5. A value that is not finite spreads over its tile, so results are looked at, and the pass is done otherwise where one is not finite.
// A tile of y or dx has the same bits in any block of them, and dw is summed in blocks that depend on the shape alone: so the number of
// threads changes no bit.
#include "winograd.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <utility>

#include "../../core/parallel.h"
#include "../../core/winograd.h"
#include "../matmul/tile.h"
#include "../pieces.h"
#include "../vec.h"

namespace tapir::inline v0::cpu {
namespace {

using F = Vec<float>;
constexpr int kLane = kLanes<float>;
constexpr int kTile = 4, kPoints = 6, kAll = kPoints * kPoints;
constexpr int kRows = kVectorRegisters == 32 ? 12 : 6;  // of the register tile, by two vectors
constexpr int kPanel = 2 * kLane;
constexpr float kHalfRoot = 0.70710678118654752f, kRoot = 1.41421356237309505f;  // the points: +-sqrt(1/2), +-sqrt(2)
constexpr float kInner = -2.f / 3, kOuter = 1.f / 6;                             // of G at both

// ---- the transforms of one direction ----

/// B^T.
inline void from_input(const F* x, F* v) {
  const F even = x[4] - 2 * x[2], odd = kHalfRoot * (x[3] - 2 * x[1]);
  const F even2 = x[4] - 0.5f * x[2], odd2 = kRoot * (x[3] - 0.5f * x[1]);
  v[0] = x[0] - 2.5f * x[2] + x[4], v[5] = x[1] - 2.5f * x[3] + x[5];
  v[1] = even + odd, v[2] = even - odd, v[3] = even2 + odd2, v[4] = even2 - odd2;
}
/// A^T.
inline void to_output(const F* m, F* y) {
  const F sum = m[1] + m[2], difference = m[1] - m[2], sum2 = m[3] + m[4], difference2 = m[3] - m[4];
  y[0] = m[0] + sum + sum2, y[1] = kHalfRoot * difference + kRoot * difference2;
  y[2] = 0.5f * sum + 2 * sum2, y[3] = (0.5f * kHalfRoot) * difference + (2 * kRoot) * difference2 + m[5];
}
/// A.
inline void from_output(const F* y, F* n) {
  const F even = y[0] + 0.5f * y[2], odd = kHalfRoot * y[1] + (0.5f * kHalfRoot) * y[3];
  const F even2 = y[0] + 2 * y[2], odd2 = kRoot * y[1] + (2 * kRoot) * y[3];
  n[0] = y[0], n[5] = y[3];
  n[1] = even + odd, n[2] = even - odd, n[3] = even2 + odd2, n[4] = even2 - odd2;
}
/// G.
inline void from_weight(const F* w, F* u) {
  const F even = kInner * (w[0] + 0.5f * w[2]), odd = (kInner * kHalfRoot) * w[1];
  const F even2 = kOuter * (w[0] + 2 * w[2]), odd2 = (kOuter * kRoot) * w[1];
  u[0] = w[0], u[5] = w[2];
  u[1] = even + odd, u[2] = even - odd, u[3] = even2 + odd2, u[4] = even2 - odd2;
}
/// G^T.
inline void to_weight(const F* s, F* w) {
  const F sum = kInner * (s[1] + s[2]), sum2 = kOuter * (s[3] + s[4]);
  w[0] = s[0] + sum + sum2, w[2] = 0.5f * sum + 2 * sum2 + s[5];
  w[1] = (kInner * kHalfRoot) * (s[1] - s[2]) + (kOuter * kRoot) * (s[3] - s[4]);
}

/// Both directions: to[i * Out + j] of from(i, j), In x In of them.
template <int In, int Out, void (*OneDirection)(const F*, F*), class Load, class Store>
inline void transform(Load&& from, Store&& to) {
  F half[Out][In];
#pragma GCC unroll 6
  for (int j = 0; j < In; ++j) {
    F in[In], out[Out];
#pragma GCC unroll 6
    for (int i = 0; i < In; ++i) in[i] = from(i * In + j);
    OneDirection(in, out);
#pragma GCC unroll 6
    for (int i = 0; i < Out; ++i) half[i][j] = out[i];
  }
#pragma GCC unroll 6
  for (int i = 0; i < Out; ++i) {
    F out[Out];
    OneDirection(half[i], out);
#pragma GCC unroll 6
    for (int j = 0; j < Out; ++j) to(i * Out + j, out[j]);
  }
}

// ---- the products ----

/// A product of one tile: see multiply_tile().
struct Product {
  int64_t depth;
  const float* a;
  int64_t row, step;
  const float* b;
  int64_t b_step;
  float* c;
  int64_t ld;
  bool add;
};
template <int Rows, int Vectors> [[gnu::noinline]] void multiply(const Product& p) {
  multiply_tile<Rows, Vectors>(p.depth, p.a, p.row, p.step, p.b, p.b_step, p.c, p.ld, p.add);
}
using Multiply = void (*)(const Product&);
template <int Vectors, int... R>
constexpr std::array<Multiply, kRows + 1> kernels_of(std::integer_sequence<int, R...>) {
  return {nullptr, multiply<R + 1, Vectors>...};
}
constexpr auto kEachRow = std::make_integer_sequence<int, kRows>();
constexpr std::array<Multiply, kRows + 1> kKernels[] = {{}, kernels_of<1>(kEachRow), kernels_of<2>(kEachRow)};

/// All rows (any number) by all columns (whole vectors); columns of b and c from panel to panel are b_panel and kPanel apart.
void multiply_all(Product p, int64_t rows, int64_t columns, int64_t b_panel) {
  const float *const a = p.a, *const b = p.b;
  float* const c = p.c;
  for (int64_t j = 0; j < columns; j += kPanel) {
    const int vectors = columns - j >= kPanel ? 2 : 1;
    p.b = b + j / kPanel * b_panel;
    for (int64_t i = 0; i < rows; i += kRows) {
      p.a = a + i * p.row, p.c = c + i * p.ld + j;
      kKernels[vectors][size_t(std::min<int64_t>(kRows, rows - i))](p);
    }
  }
}

// ---- where tiles lie ----

struct Grid {
  int64_t images, rows, columns;  // tiles of an image
  int64_t tiles() const { return images * rows * columns; }
};
Grid grid_of(int64_t images, int64_t height, int64_t width) {
  return {images, (height + kTile - 1) / kTile, (width + kTile - 1) / kTile};
}
struct Padding {
  int64_t top = 0, left = 0;
};
/// Images of `channels` numbers a pixel.
template <class T> struct Images {
  T* data;
  int64_t height, width, channels;
  /// The pixels of Size x Size from (top, left) of tile t on; `none` for those outside.
  template <int Size> void find(const Grid& g, int64_t t, T* none, T** to, Padding p = {}) const {
    const int64_t n = t / (g.rows * g.columns), top = t / g.columns % g.rows * kTile - p.top,
                  left = t % g.columns * kTile - p.left;
    for (int64_t i = 0; i < Size; ++i)
      for (int64_t j = 0; j < Size; ++j) {
        const int64_t y = top + i, x = left + j;
        const bool inside = y >= 0 && y < height && x >= 0 && x < width;
        *to++ = inside ? data + ((n * height + y) * width + x) * channels : none;
      }
  }
};

/// From one point to the next; whole pages apart they would share sets of the first cache.
int64_t apart(int64_t floats) { return floats % 1024 == 0 ? floats + kLane : floats; }

/// v[point * step + c] of tile t, (B^T x B).
template <class T>
void transform_input(const Images<T>& x, const Grid& g, int64_t t, Padding padding, T* zeros, float* v, int64_t step) {
  T* at[kAll];
  x.template find<kPoints>(g, t, zeros, at, padding);
  for (int64_t c = 0; c < x.channels; c += kLane)
    transform<kPoints, kPoints, from_input>([&](int i) { return load_float(at[i] + c); },
                                            [&](int i, F f) { store(v + i * step + c, f); });
}

// ---- forward, and the data gradient as a forward pass of dy with the weight turned ----

/// A weight (3 x 3, from, to) of any strides.
template <class T> struct Weight {
  const T* data;
  int64_t from, to, from_step, to_step, row, column;
  const T* at(int k, int64_t c, int64_t o) const {
    return data + k / 3 * row + k % 3 * column + c * from_step + o * to_step;
  }
};

/// (G w G^T): at each point, panels of `to` with `from` as their slow axis.
template <class T> void transform_weight(const Weight<T>& w, float* u, int64_t step) {
  parallel_for(w.to / kLane * w.from, 512, [&](int64_t first, int64_t last) {
    for (int64_t at = first; at < last; ++at) {
      const int64_t c = at % w.from, o = at / w.from * kLane;
      alignas(64) float lines[9][kLane];
      for (int k = 0; k < 9; ++k) {
        const T* from = w.at(k, c, o);
        for (int64_t lane = 0; lane < kLane; ++lane) lines[k][lane] = float(from[lane * w.to_step]);
      }
      float* place = u + (o / kPanel * w.from + c) * kPanel + o % kPanel;
      transform<3, kPoints, from_weight>([&](int i) { return load(lines[i]); },
                                         [&](int i, F f) { store(place + i * step, f); });
    }
  });
}

template <class T> struct Forward {
  Images<T> x, y;
  Grid grid;
  Padding padding;
  const float *u, *bias;
  int64_t u_step, block, part;  // tiles that are worked on at once, and channels of y
  std::atomic<bool>& finite;    // are all results?

  int64_t v_step() const { return apart(block * x.channels); }
  int64_t m_step() const { return apart(block * part); }
  int64_t room() const { return kAll * (v_step() + m_step()) + std::max(x.channels, y.channels); }

  void run(int64_t first, int64_t last, float* memory) const {
    float *const v = memory, *const m = v + kAll * v_step();
    T* const spare = reinterpret_cast<T*>(m + kAll * m_step());
    const int64_t count = last - first;
    std::fill_n(spare, x.channels, T(0.f));
    for (int64_t t = 0; t < count; ++t)
      transform_input(x, grid, first + t, padding, spare, v + t * x.channels, v_step());
    F check{};
    for (int64_t o = 0; o < y.channels; o += part) {
      const int64_t width = std::min(part, y.channels - o);
      const Images<T> to{y.data + o, y.height, y.width, y.channels};
      for (int64_t i = 0; i < kAll; ++i)
        multiply_all({.depth = x.channels,
                      .a = v + i * v_step(),
                      .row = x.channels,
                      .step = 1,
                      .b = u + i * u_step + o / kPanel * x.channels * kPanel,
                      .b_step = kPanel,
                      .c = m + i * m_step(),
                      .ld = width,
                      .add = false},
                     count, width, x.channels * kPanel);
      for (int64_t t = 0; t < count; ++t) {
        T* at[kTile * kTile];
        to.template find<kTile>(grid, first + t, spare, at);
        for (int64_t c = 0; c < width; c += kLane) {
          const float* from = m + t * width + c;
          const F add = bias ? load(bias + o + c) : F{};
          transform<kPoints, kTile, to_output>(
              [&](int i) { return load(from + i * m_step()); },
              [&](int i, F f) { store_float(at[i] + c, f + add), check += (f + add) * 0.f; });
        }
      }
    }
    if (!std::isfinite(sum_lanes<float>(check))) finite = false;
  }
};

/// Tiles of a block: those of `floats` numbers a tile that the second cache holds, so that each thread has as many blocks. A tile's result
/// is the same in each.
int64_t block_of(int64_t floats, int64_t tiles) {
  const int64_t fits = std::clamp<int64_t>((int64_t(160) << 10) / floats / kRows * kRows, 2 * kRows, 8 * kRows);
  const int64_t threads = threads_here(), blocks = ((tiles + fits - 1) / fits + threads - 1) / threads * threads;
  return (tiles + blocks - 1) / blocks;
}

template <class T> bool forward(Context& ctx, const Images<T>& x, const Images<T>& y, int64_t images, Padding padding,
                                const Weight<T>& w, const float* bias) {
  const int64_t part = std::min<int64_t>(y.channels, 4 * kPanel), panels = (y.channels + kPanel - 1) / kPanel;
  const Grid grid = grid_of(images, y.height, y.width);
  const int64_t block = block_of(kAll * (x.channels + part), grid.tiles());
  const int64_t u_step = apart(panels * kPanel * x.channels);
  float* const u = ctx.scratch_of<float>(kAll * u_step);
  transform_weight(w, u, u_step);
  std::atomic<bool> finite{true};
  const Forward<T> f{x, y, grid, padding, u, bias, u_step, block, part, finite};
  for_pieces<float>(ctx, (grid.tiles() + block - 1) / block, 1, f.room(),
                    [&](float* room, int64_t first, int64_t last) {
                      for (int64_t i = first; i < last && finite; ++i)
                        f.run(i * block, std::min((i + 1) * block, grid.tiles()), room);
                    });
  return finite;
}

// ---- the weight gradient ----

/// G^T s G of the sums at each point, (c, o), for a weight (o, c, 3, 3). False where it is not finite.
bool write_weight(Context& ctx, const float* s, int64_t s_step, int64_t c, int64_t o, V dw) {
  float* const w9 = ctx.scratch_of<float>(9 * c * o);
  std::atomic<bool> finite{true};
  parallel_for(c, std::max<int64_t>(1, 8192 / o), [&](int64_t begin, int64_t end) {
    F check{};
    for (int64_t i = begin * o; i < end * o; i += kLane)
      transform<kPoints, 3, to_weight>([&](int q) { return load(s + q * s_step + i); },
                                       [&](int q, F f) { store(w9 + q * c * o + i, f), check += f * 0.f; });
    if (!std::isfinite(sum_lanes<float>(check))) finite = false;
  });
  if (!finite) return false;
  TensorView from = dw;
  from.dtype = kFloat32, from.data = w9, from.strides[0] = 1, from.strides[1] = o, from.strides[2] = 3 * c * o,
  from.strides[3] = c * o;
  copy(ctx, {dw, from});
  return true;
}

template <class T>
bool backward_weight(Context& ctx, const Images<T>& x, const Images<T>& dy, int64_t images, Padding padding, V dw) {
  const Grid grid = grid_of(images, dy.height, dy.width);
  const int64_t c = x.channels, o = dy.channels, tiles = grid.tiles();
  const int64_t block = std::min(std::max<int64_t>(96, (int64_t(1) << 21) / (kAll * (c + o)) / 8 * 8), tiles);
  const int64_t v_step = apart(block * c), n_step = apart(block * o), s_step = apart(c * o);
  float *const v = ctx.scratch_of<float>(kAll * v_step), *const n = ctx.scratch_of<float>(kAll * n_step);
  float* const s = ctx.scratch_of<float>(kAll * s_step);
  T* const zeros = ctx.scratch_of<T>(std::max(c, o));
  std::fill_n(zeros, std::max(c, o), T(0.f));
  constexpr int64_t kStrip = 4 * kRows;  // rows of a piece of work
  const int64_t strips = (c + kStrip - 1) / kStrip;
  for (int64_t first = 0; first < tiles; first += block) {
    const int64_t count = std::min(block, tiles - first);
    parallel_for(count, std::max<int64_t>(1, 4096 / (c + o)), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        transform_input(x, grid, first + t, padding, zeros, v + t * c, v_step);
        T* at[kTile * kTile];
        dy.template find<kTile>(grid, first + t, zeros, at);
        for (int64_t k = 0; k < o; k += kLane)
          transform<kTile, kPoints, from_output>([&](int i) { return load_float(at[i] + k); },
                                                 [&](int i, F f) { store(n + i * n_step + t * o + k, f); });
      }
    });
    parallel_for(kAll * strips, 1, [&](int64_t begin, int64_t end) {
      for (int64_t w = begin; w < end; ++w) {
        const int64_t i = w / strips, row = w % strips * kStrip;
        multiply_all({.depth = count,
                      .a = v + i * v_step + row,
                      .row = 1,
                      .step = c,
                      .b = n + i * n_step,
                      .b_step = o,
                      .c = s + i * s_step + row * o,
                      .ld = o,
                      .add = first > 0},
                     std::min(kStrip, c - row), o, kPanel);
      }
    });
  }
  return write_weight(ctx, s, s_step, c, o, dw);
}

}  // namespace

bool allows_winograd(DType dtype, const dnn::ConvShape& s) {
  if (!backends::cpu::allow_winograd() || (dtype != kFloat32 && dtype != kBFloat16) || s.spatial != 2 ||
      s.groups != 1 || s.c % kLane || s.o % kLane || s.c < 32 || s.o < 32)
    return false;
  for (int d = 0; d < 2; ++d)
    if (s.kernel[d] != 3 || s.stride[d] != 1 || s.dilation[d] != 1 || s.padding[d] > 2) return false;
  // The transformed weight, 36 c o numbers, must be memory that a program can spare: 72 MiB at most.
  return s.c * s.o <= int64_t(1) << 19;
}

bool suits_winograd(DType direct, const dnn::ConvShape& s) {
  if (direct == kBFloat16 && dnn::has_amx()) return false;  // 8 times as many products in bfloat16, not 2
  // The transformed weight is written and read for each pass.
  const int64_t tiles = grid_of(s.n, s.out[0], s.out[1]).tiles(), pixels = s.n * s.out[0] * s.out[1], pairs = s.c * s.o;
  // Where products take half the time, tiles that are cut cost more than they save unless there are many for each weight.
  const bool fast = direct == kBFloat16, cut = pixels < tiles * kTile * kTile;
  const int64_t least = fast ? std::max<int64_t>(32, pairs >> (cut ? 9 : 10)) : 32 + (pairs >> 13);
  const double filled = fast ? 0.75 : 0.6;
  return tiles >= least && pixels * pairs >= 1'000'000 && double(pixels) >= filled * double(tiles * kTile * kTile);
}

template <class T>
static bool run(Context& ctx, dnn::ConvPass pass, const dnn::ConvShape& s, T* x, V w, T* y, const float* bias) {
  const Images<T> in{x, s.in[0], s.in[1], s.c}, out{y, s.out[0], s.out[1], s.o};
  const Padding padding{s.padding[0], s.padding[1]};
  if (pass == dnn::ConvPass::BackwardWeight) return backward_weight(ctx, in, out, s.n, padding, w);
  const T* const data = w.as<T>();
  const int64_t *const steps = w.strides, row = steps[2], column = steps[3];
  if (pass == dnn::ConvPass::Forward)
    return forward(ctx, in, out, s.n, padding, Weight<T>{data, s.c, s.o, steps[1], steps[0], row, column}, bias);
  const Weight<T> turned{data + 2 * (row + column), s.o, s.c, steps[0], steps[1], -row, -column};  // by 180 degrees
  return forward(ctx, out, in, s.n, {2 - padding.top, 2 - padding.left}, turned, nullptr);
}
bool winograd(Context& ctx, dnn::ConvPass pass, const dnn::ConvShape& s, V x, V w, V y, const float* bias) {
  if (x.dtype == kBFloat16) return run(ctx, pass, s, x.as<BFloat16>(), w, y.as<BFloat16>(), bias);
  return run(ctx, pass, s, x.as<float>(), w, y.as<float>(), bias);
}

}  // namespace tapir::inline v0::cpu
