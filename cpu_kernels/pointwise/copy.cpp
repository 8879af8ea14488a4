#include <algorithm>
#include <cstring>

#include "../../core/dispatch.h"
#include "../../core/parallel.h"
#include "../kernels.h"
#include "../loops.h"
#include "../transpose.h"

namespace tapir::inline v0::cpu {
namespace {

constexpr int64_t kCopyGrain = int64_t(1) << 18;  // bytes

/// What a transposing copy works on: dimension `a` is dense in the source, `b` in the destination.
struct Transpose {
  int64_t rows, columns;     // extents of a and b
  int64_t to_row, from_col;  // bytes from one element to the next: of the destination along a, of the source along b
};

template <class W> void copy_block(const Transpose& t, char* to, const char* from, int64_t rows, int64_t columns) {
  constexpr int64_t side = block_side(sizeof(W));
  if (rows < side || columns < side)
    return load_part(reinterpret_cast<W*>(to), t.to_row / int64_t(sizeof(W)), from, t.from_col, rows, columns);
  alignas(64) W block[side * side];
  load_block(block, side, from, t.from_col);
  for (int64_t i = 0; i < side; ++i) std::memcpy(to + i * t.to_row, block + i * side, 64);
}

/// Copies a space whose operand 0 is dense along the last dimension and operand 1 along dimension `a`.
template <class W> void transpose(const Space& s, int64_t a, char* to, const char* from) {
  const int64_t b = s.rank - 1;
  const Transpose t{s.sizes[a], s.sizes[b], s.strides[0][a], s.strides[1][b]};
  Space outer(2);
  for (int64_t d = 0; d < s.rank; ++d) {
    const int64_t strides[] = {s.strides[0][d], s.strides[1][d]};
    if (d != a && d != b) outer.add(s.sizes[d], strides);
  }
  constexpr int64_t size = sizeof(W), side = block_side(size);
  const int64_t bands = (t.rows + side - 1) / side;
  const int64_t grain = std::max<int64_t>(kCopyGrain / 2 / (side * t.columns * size), 1);
  parallel_for(outer.numel * bands, grain, [&](int64_t first, int64_t last) {
    for (int64_t band = first; band < last; ++band) {
      const int64_t flat = band / bands, i = band % bands * side, rows = std::min(side, t.rows - i);
      char* out = to + outer.offset(0, flat) + i * t.to_row;
      const char* x = from + outer.offset(1, flat) + i * size;
      for (int64_t j = 0; j < t.columns; j += side)
        copy_block<W>(t, out + j * size, x + j * t.from_col, rows, std::min(side, t.columns - j));
    }
  });
}

/// Rows of the last dimension, each with a stride on both sides; 0 on the source's repeats an element.
template <class W> void copy_rows(const Space& s, char* to, const char* from) {
  const Tiles tiles(s, kTile * 4);
  const int64_t out_step = s.inner_stride(0), step = s.inner_stride(1);
  parallel_for(tiles.count, tiles.grain(kCopyGrain / 4 / int64_t(sizeof(W))), [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      const int64_t flat = tiles.begin(t);
      if (!tiles.by_row) {
        const int64_t n = std::min(tiles.width, s.numel - flat);
        W tile[kTile * 4];
        W* const place = s.is_flat(0, sizeof(W)) ? reinterpret_cast<W*>(to) + flat : tile;
        gather(s, 1, from, flat, n, sizeof(W), place);
        if (place == tile) scatter(s, 0, to, flat, n, sizeof(W), tile);
        continue;
      }
      const int64_t n = std::min(tiles.width, tiles.row - flat % tiles.row);
      char* out = to + s.offset(0, flat);
      const char* x = from + s.offset(1, flat);
      if (out_step == sizeof(W) && step == sizeof(W)) std::memcpy(out, x, size_t(n) * sizeof(W));
      else if (out_step == sizeof(W)) gather(s, 1, from, flat, n, sizeof(W), out);
      else
        for (int64_t i = 0; i < n; ++i)
          *reinterpret_cast<W*>(out + i * out_step) = *reinterpret_cast<const W*>(x + i * step);
    }
  });
}

/// Elements of one size, any strides.
template <class W> void copy_words(V out, V x) {
  Space s(2);
  for (int64_t d = 0; d < out.rank; ++d) {
    const int64_t from = d - (out.rank - x.rank);
    const int64_t source = from < 0 || x.sizes[from] == 1 ? 0 : x.strides[from] * int64_t(sizeof(W));
    const int64_t strides[] = {out.strides[d] * int64_t(sizeof(W)), source};
    s.add(out.sizes[d], strides);
  }
  s.simplify();
  const int64_t size = sizeof(W);
  if (s.rank >= 2 && s.inner_stride(0) == size && s.inner_stride(1) != size && s.inner_stride(1) != 0 && s.inner() >= 4)
    for (int64_t d = 0; d + 1 < s.rank; ++d)
      if (s.strides[1][d] == size && s.sizes[d] >= 4) return transpose<W>(s, d, out.as<char>(), x.as<const char>());
  copy_rows<W>(s, out.as<char>(), x.as<const char>());
}

void convert(V out, V x) {
  struct Conversion {
    Converter function;
  } const conversion{converter(out.dtype, x.dtype)};
  const LoopKernel kernel = [](int64_t n, void* const* data, const void* params) {
    static_cast<const Conversion*>(params)->function(n, data[0], data[1]);
  };
  const TensorView* const views[] = {&out, &x};
  const DType types[] = {out.dtype, x.dtype};
  pointwise(views, types, kernel, &conversion);
}

}  // namespace

void copies(Context& ctx, const entry::Copies& c) {
  for (size_t i = 0; i < c.xs.size(); ++i) copy(ctx, {c.outs[i], c.xs[i]});
}
void copy(Context& ctx, const entry::Copy& c) {
  V out = c.out, x = c.x;
  if (x.is_scalar) return fill(ctx, {out, x.scalar});
  const int64_t n = out.numel();
  if (n == 0) return;
  if (out.dtype != x.dtype) return convert(out, x);
  if (x.numel() == n && out.is_contiguous() && x.is_contiguous())
    return copy_bytes(out.data, kCPU, x.data, kCPU, n * size_of(out.dtype), nullptr);
  switch (size_of(out.dtype)) {
    case 1: return copy_words<uint8_t>(out, x);
    case 2: return copy_words<uint16_t>(out, x);
    case 4: return copy_words<uint32_t>(out, x);
    default: return copy_words<uint64_t>(out, x);
  }
}

}  // namespace tapir::inline v0::cpu
