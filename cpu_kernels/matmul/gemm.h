#pragma once
// Note [The packed GEMM]
// A GEMM of our own, for what no library covers: any dtype, any strides, operands that are gathered (convolutions). Tiles of
// C are dealt to the threads; for a tile, blocks of A and B are packed into panels that the register kernel reads
// in order: A in panels of kRows rows, B in panels of kColumns columns, each panel with k as its slow axis. Tile sizes depend on
// the shape alone and every element is summed in the order of k, so results are the same for any number of threads.
#include <algorithm>

#include "../../core/backend.h"
#include "../pieces.h"
#include "../vec.h"

namespace tapir::inline v0::cpu {

/// What operands of T are multiplied as: words, a number of the type that is summed in, or two neighbouring bfloat16 along the axis that is summed
/// over, which the processor multiplies at once. Element: what operands are rounded to; kTogether of them make a word.
template <class T> struct Words {
  using Acc = std::conditional_t<sizeof(T) == 2, float, T>;
  using Element = Acc;
  using Number = Element;  // a word in a vector
  using Word = Element;
  static constexpr int kTogether = 1;
  static void multiply_add(Vec<Element>& sum, Word a, Vec<Word> b) { sum += b * a; }
};
#if defined(__AVX512BF16__)
template <> struct Words<BFloat16> {
  using Acc = float;
  using Element = BFloat16;
  using Number = uint32_t;
  typedef Number __attribute__((may_alias)) Word;
  static constexpr int kTogether = 2;
  /// A vector of numbers, rounded.
  static void round_to(BFloat16* to, const float* x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), __m256i(_mm512_cvtneps_pbh(load(x))));
  }
  /// Rounded, in the lower halves of words.
  static Vec<Number> round(const float* x) {
    return Vec<Number>(_mm512_cvtepu16_epi32(__m256i(_mm512_cvtneps_pbh(load(x)))));
  }
  static void multiply_add(Vec<float>& sum, Word a, Vec<Number> b) {  // around the intrinsic g++ 12 copies the sums
    const Vec<Number> all = a - Vec<Number>{};
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(b), "v"(all));
  }
};
#endif

template <class Acc> struct Panel {
  static constexpr int kVectors = 2;
  static constexpr int kColumns = kVectors * kLanes<Acc>;
  static constexpr int kRows = kVectorRegisters == 32 ? 12 : 6;
  static constexpr int64_t kDepth = 1024 / int64_t(sizeof(Acc));
};

/// c (kRows x kVectors vectors, rows ld apart) = or += a b, over `depth` words; b is a panel. Word k of row i of a: a[i stride + k], or turned
/// a[k stride + i], as in a panel, of stride kRows.
template <class T, bool kTurned, int kVectors>
[[gnu::noinline]] void multiply_panels(int64_t depth, const typename Words<T>::Word* a, int64_t stride,
                                       const typename Words<T>::Word* b, typename Words<T>::Acc* c, int64_t ld,
                                       bool first) {
  using Acc = typename Words<T>::Acc;
  using P = Panel<Acc>;
  using Word = typename Words<T>::Word;
  using Number = typename Words<T>::Number;
  constexpr int kLane = kLanes<Acc>, kApart = 3;  // kApart: rows from one pointer, what addresses can express
  Vec<Acc> sum[P::kRows][kVectors] = {};
  const Word* from[P::kRows / kApart];
  for (int i = 0; i < P::kRows / kApart; ++i) from[i] = a + i * kApart * (kTurned ? 1 : stride);
  for (int64_t k = 0; k < depth; ++k, b += P::kColumns) {
    Vec<Number> row[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) row[v] = load<Number>(b + v * kLane);
#pragma GCC unroll 12
    for (int i = 0; i < P::kRows; ++i) {
      const Word one = kTurned ? a[i] : from[i / kApart][i % kApart * stride];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) Words<T>::multiply_add(sum[i][v], one, row[v]);
    }
    if constexpr (kTurned) a += stride;
    else
#pragma GCC unroll 4
      for (const Word*& p : from) ++p;
  }
#pragma GCC unroll 12
  for (int i = 0; i < P::kRows; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      Acc* const at = c + i * ld + v * kLane;
      store(at, first ? sum[i][v] : load(at) + sum[i][v]);
    }
}

/// Packs rows [0, rows) x steps [0, depth) of a matrix into panels of R rows, zeros behind the last row. p[i * row + k * step]
/// is element (i, k).
template <int R, class Acc, class T>
void pack_matrix(Acc* to, const T* p, int64_t row, int64_t step, int64_t rows, int64_t depth) {
  for (int64_t i0 = 0; i0 < rows; i0 += R, to += R * depth) {
    const int64_t n = std::min<int64_t>(R, rows - i0);
    const T* from = p + i0 * row;
    if (n < R) std::fill_n(to, R * depth, Acc(0));
    if (row == 1 && n == R) {
      for (int64_t k = 0; k < depth; ++k)
        for (int64_t i = 0; i < R; ++i) to[k * R + i] = Acc(from[k * step + i]);
    } else if (n == R) {
      for (int64_t k = 0; k < depth; ++k)
        for (int64_t i = 0; i < R; ++i) to[k * R + i] = Acc(from[i * row + k * step]);
    } else {
      for (int64_t i = 0; i < n; ++i)
        for (int64_t k = 0; k < depth; ++k) to[k * R + i] = Acc(from[i * row + k * step]);
    }
  }
}

struct Tiling {
  int64_t rows, columns, row_tiles, column_tiles;
};
template <class Acc> Tiling tiling(int64_t batch, int64_t m, int64_t n) {
  using P = Panel<Acc>;
  const auto up = [](int64_t a, int64_t b) { return (a + b - 1) / b * b; };
  int64_t rows = std::min<int64_t>(up(m, P::kRows), 16 * P::kRows),
          columns = std::min<int64_t>(up(n, P::kColumns), 8 * P::kColumns);
  const auto tiles = [&] { return batch * ((m + rows - 1) / rows) * ((n + columns - 1) / columns); };
  while (tiles() < 16 && (rows > 4 * P::kRows || columns > 2 * P::kColumns)) {  // enough of them to share out
    if (columns >= rows && columns > 2 * P::kColumns) columns = up(columns / 2, P::kColumns);
    else if (rows > 4 * P::kRows) rows = up(rows / 2, P::kRows);
    else columns = up(columns / 2, P::kColumns);
  }
  return {rows, columns, (m + rows - 1) / rows, (n + columns - 1) / columns};
}

/// For each tile of the batch of (m, n) products over k > 0:
///   pack_a(to, b, i0, rows, k0, depth), pack_b(to, b, j0, columns, k0, depth) write panels of kRows and kColumns,
///   store(b, i0, rows, j0, columns, tile, ld) takes the sums.
template <class Acc, class PackA, class PackB, class Store> void packed_gemm(Context& ctx, int64_t batch, int64_t m,
                                                                             int64_t n, int64_t k, PackA&& pack_a,
                                                                             PackB&& pack_b, Store&& store) {
  using P = Panel<Acc>;
  const Tiling t = tiling<Acc>(batch, m, n);
  const int64_t total = batch * t.row_tiles * t.column_tiles, depth = std::min(k, P::kDepth);
  const int64_t size = t.rows * t.columns + (t.rows + t.columns) * depth, tile_work = t.rows * t.columns * k;
  const int64_t grain = std::max<int64_t>(1, (1 << 18) / tile_work);
  for_pieces<Acc>(ctx, total, grain, size, [&](Acc* c, int64_t first, int64_t last) {
    Acc *a = c + t.rows * t.columns, *b = a + t.rows * depth;
    for (int64_t tile = first; tile < last; ++tile) {
      const int64_t i0 = tile / t.column_tiles % t.row_tiles * t.rows, rows = std::min(t.rows, m - i0);
      const int64_t j0 = tile % t.column_tiles * t.columns, columns = std::min(t.columns, n - j0);
      const int64_t at = tile / (t.column_tiles * t.row_tiles);
      for (int64_t k0 = 0; k0 < k; k0 += depth) {
        const int64_t steps = std::min(depth, k - k0);
        pack_b(b, at, j0, columns, k0, steps);
        pack_a(a, at, i0, rows, k0, steps);
        for (int64_t j = 0; j < columns; j += P::kColumns)
          for (int64_t i = 0; i < rows; i += P::kRows)
            multiply_panels<Acc, true, 2>(steps, a + i * steps, P::kRows, b + j * steps, c + i * t.columns + j,
                                          t.columns, k0 == 0);
      }
      store(at, i0, rows, j0, columns, c, t.columns);
    }
  });
}

}  // namespace tapir::inline v0::cpu
