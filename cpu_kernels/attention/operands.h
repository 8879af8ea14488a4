#pragma once
// Note [Products of attention]
// By the register kernel of gemm.h. A stands as rows, whose words lie along k, or turned, one step of k after the other, and is read where
// it lies; B is packed into panels.
#include <algorithm>

#include "../convert.h"
#include "../matmul/gemm.h"
#include "../transpose.h"
#include "../vec.h"

namespace tapir::inline v0::cpu {

/// An operand (batch, head, row, column).
template <class T> struct Heads {
  T* data = nullptr;
  int64_t batch = 0, head = 0, row = 0, column = 0;
  Heads(const TensorView& x) {
    if (!x.defined()) return;
    data = x.as<T>(), batch = x.strides[0], head = x.strides[1], row = x.strides[2];
    column = x.rank > 3 ? x.strides[3] : 0;
  }
  T* at(int64_t b, int64_t h, int64_t i) const { return data + b * batch + h * head + i * row; }
};

/// A row on its way into the cache while those before it are worked on: rows lie far apart, which no processor foresees.
template <class T> void fetch(const T* row, int64_t n) {
  for (int64_t i = 0; i < n; i += 64 / int64_t(sizeof(T))) __builtin_prefetch(row + i);
}

template <class T> struct Products {
  using W = Words<T>;
  using Acc = typename W::Acc;
  using Element = typename W::Element;
  using Number = typename W::Number;
  using Word = typename W::Word;
  static constexpr int kTogether = W::kTogether, kLane = kLanes<Acc>, kColumns = Panel<Acc>::kColumns;
  static constexpr int kRows = Panel<Acc>::kRows;
  static constexpr int64_t kAhead = 16;  // rows that are fetched before they are needed
  static int64_t words(int64_t n) { return (n + kTogether - 1) / kTogether; }

  /// Rows of words, `stride` words apart.
  struct Rows {
    const Word* data;
    int64_t stride;
  };

  /// One panel of rows of c with its first `columns` columns, up to whole vectors: = or += a b over `depth` words from `begin` on; panels
  /// of b are `panel` words long.
  template <bool kTurned> static void multiply(int64_t columns, int64_t begin, int64_t depth, const Word* a,
                                               int64_t stride, const Word* b, int64_t panel, Acc* c, int64_t ld,
                                               bool first) {
    a += begin * (kTurned ? stride : 1), b += begin * kColumns;
    int64_t j = 0;
    for (; j + kLane < columns; j += kColumns, b += panel)
      multiply_panels<T, kTurned, 2>(depth, a, stride, b, c + j, ld, first);
    if (j < columns) multiply_panels<T, kTurned, 1>(depth, a, stride, b, c + j, ld, first);
  }

  /// n rows of `width` elements as rows of words: where they lie, or copied, with zeros up to `rows` rows and whole words.
  template <class S>
  static Rows rows_of(const S* x, int64_t row, int64_t column, int64_t n, int64_t width, int64_t rows, Word* buffer) {
    if constexpr (std::is_same_v<S, Element>) {
      const bool whole = width % kTogether == 0 && (row % kTogether == 0 || n == 1) &&
                         reinterpret_cast<uintptr_t>(x) % sizeof(Word) == 0;
      if (column == 1 && n == rows && whole) return {reinterpret_cast<const Word*>(x), row / kTogether};
    }
    const int64_t stride = words(width);
    const Converter convert = converter(dtype_of<Element>, dtype_of<S>);
    for (int64_t i = 0; i < rows; ++i) {
      Element* const to = reinterpret_cast<Element*>(buffer + i * stride);
      const int64_t filled = i < n ? width : 0;
      if (column == 1) convert(filled, to, x + i * row);
      else
        for (int64_t d = 0; d < filled; ++d) to[d] = Element(x[i * row + d * column]);
      std::fill(to + filled, to + stride * kTogether, Element(0));
    }
    return {buffer, stride};
  }

  /// Panels of columns that are the n rows of x, over `depth` words; zeros behind the last.
  static void pack_turned(Word* to, Rows x, int64_t n, int64_t depth) {
    for (int64_t j0 = 0; j0 < n; j0 += kColumns, to += kColumns * depth) {
      const int64_t columns = std::min<int64_t>(kColumns, n - j0);
      const Word* const from = x.data + j0 * x.stride;
      if (columns < kColumns) std::fill_n(to, kColumns * depth, Word(0));
      int64_t j = 0;
      constexpr int64_t side = block_side(sizeof(Word));
      for (; j + side <= columns; j += side) {
        for (int64_t i = j0 + j + side; i < std::min(n, j0 + j + 2 * side); ++i) fetch(x.data + i * x.stride, depth);
        int64_t k = 0;
        for (; k + side <= depth; k += side)
          load_block(to + k * kColumns + j, kColumns, reinterpret_cast<const char*>(from + j * x.stride + k),
                     x.stride * int64_t(sizeof(Word)));
        for (; k < depth; ++k)
          for (int64_t q = j; q < j + side; ++q) to[k * kColumns + q] = from[q * x.stride + k];
      }
      for (; j < columns; ++j)
        for (int64_t k = 0; k < depth; ++k) to[k * kColumns + j] = from[j * x.stride + k];
    }
  }

  /// Panels of the columns of x, n rows of `width` elements (rows of words), whose k are the rows; zeros behind the last.
  static void pack(Word* to, Rows x, int64_t n, int64_t width) {
    const int64_t depth = words(n);
    for (int64_t k = 0; k < depth; ++k, to += kColumns) {
      for (int64_t i = kTogether * k; i < kTogether * (k + 1); ++i)
        fetch(x.data + (i + kAhead) * x.stride, words(width));
      for (int64_t j = 0; j < width; j += kColumns) {
        Word* const line = to + j * depth;
        const int64_t columns = std::min<int64_t>(kColumns, width - j);
        if constexpr (kTogether == 1) {
          const Word* const from = x.data + k * x.stride + j;
          if (columns == kColumns)
            for (int v = 0; v < 2; ++v) store<Number>(line + v * kLane, load<Number>(from + v * kLane));
          else std::copy_n(from, columns, line);
        } else {
          const auto* const even = reinterpret_cast<const uint16_t*>(x.data + 2 * k * x.stride) + j;
          const auto* const odd = even + 2 * x.stride;
          if (2 * k + 1 == n) std::copy_n(even, columns, line);
          else if (columns == kColumns)
            for (int64_t c = 0; c < kColumns; ++c) line[c] = even[c] | uint32_t(odd[c]) << 16;
          else
            for (int64_t c = 0; c < columns; ++c) line[c] = even[c] | uint32_t(odd[c]) << 16;
        }
        std::fill(line + columns, line + kColumns, Word(0));
      }
    }
  }
  /// A row of n sums as words, what is left of the last vector is anything. Where words are sums, they stay where they are.
  static void round_row(Word* to, const Acc* from, int64_t n) {
    if constexpr (kTogether == 2)
      for (int64_t j = 0; j < n; j += kLane) W::round_to(reinterpret_cast<Element*>(to) + j, from + j);
  }
  /// Rows of sums, ld apart, as turned words: word (k, j) is of rows 2 k and 2 k + 1, zeros behind the last of `rows`.
  static void round_turned(Word* to, const Acc* from, int64_t ld, int64_t rows, int64_t n) {
    if constexpr (kTogether == 2)
      for (int64_t k = 0; 2 * k < rows; ++k, from += 2 * ld, to += ld)
        for (int64_t j = 0; j < n; j += kLane)
          store<Number>(to + j,
                        2 * k + 1 == rows ? W::round(from + j) : W::round(from + j) | W::round(from + ld + j) << 16);
  }
};

}  // namespace tapir::inline v0::cpu
