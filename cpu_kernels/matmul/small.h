#pragma once
#include <algorithm>

#include "../transpose.h"
#include "../vec.h"
#include "tile.h"

// Products of so few floats that a library's call, or packing both operands, would take longer than they do.
namespace tapir::inline v0::cpu {

inline constexpr int64_t kSmallDepth = 256, kSmallColumns = 2 * kLanes<float>;

/// Each product of a batch by itself; p.k is at most kSmallDepth. finish.row() applies alpha, beta, bias and relu.
template <class Product, class Finish> void small_products(const Product& p, const Finish& finish) {
  for (int64_t at = 0; at < p.batch; ++at) {
    alignas(64) float packed[kSmallDepth * kSmallColumns], sums[8 * kSmallColumns];
    const float* a = static_cast<const float*>(p.a.data) + at * p.a.batch;
    for (int64_t j0 = 0; j0 < p.n; j0 += kSmallColumns) {
      const int64_t n = std::min(kSmallColumns, p.n - j0), wide = n > kLanes<float> ? kSmallColumns : kLanes<float>;
      const float* b = static_cast<const float*>(p.b.data) + at * p.b.batch + j0 * p.b.column;
      int64_t b_row = p.b.row;
      if (p.b.column != 1 || n != wide) {  // whole vectors of neighbours, zeros behind the last column
        if (n < wide) std::fill_n(packed, p.k * wide, 0.f);
        if (p.b.row == 1)
          load_part(packed, wide, reinterpret_cast<const char*>(b), p.b.column * int64_t(sizeof(float)), p.k, n);
        else
          for (int64_t k = 0; k < p.k; ++k)
            for (int64_t j = 0; j < n; ++j) packed[k * wide + j] = b[k * p.b.row + j * p.b.column];
        b = packed, b_row = wide;
      }
      const auto rows = [&]<int R>(int64_t i) {
        const float* from = a + i * p.a.row;
        if (wide == kSmallColumns)
          multiply_tile<R, 2>(p.k, from, p.a.row, p.a.column, b, b_row, sums, kSmallColumns, false);
        else multiply_tile<R, 1>(p.k, from, p.a.row, p.a.column, b, b_row, sums, kSmallColumns, false);
        for (int r = 0; r < R; ++r) finish.row(at, i + r, j0, n, sums + r * kSmallColumns);
      };
      constexpr int kRows = kVectorRegisters == 32 ? 8 : 4;
      int64_t i = 0;
      for (; i + kRows <= p.m; i += kRows) rows.template operator()<kRows>(i);
      for (; i + 2 <= p.m; i += 2) rows.template operator()<2>(i);
      for (; i < p.m; ++i) rows.template operator()<1>(i);
    }
  }
}

}  // namespace tapir::inline v0::cpu
