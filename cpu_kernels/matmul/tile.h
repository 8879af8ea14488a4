#pragma once
#include "../vec.h"

namespace tapir::inline v0::cpu {

/// R rows by V vectors in registers: c (rows ld apart) = or += sum over k of a[r * row + k * step] b[k * b_step + lanes].
template <int R, int V> [[gnu::always_inline]] inline void multiply_tile(int64_t depth, const float* a, int64_t row,
                                                                         int64_t step, const float* b, int64_t b_step,
                                                                         float* c, int64_t ld, bool add) {
  Vec<float> sum[R][V] = {};
  for (int64_t k = 0; k < depth; ++k, a += step, b += b_step) {
    Vec<float> line[V];
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) line[v] = load(b + v * kLanes<float>);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) sum[r][v] += line[v] * a[r * row];
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      float* const at = c + r * ld + v * kLanes<float>;
      store(at, add ? load(at) + sum[r][v] : sum[r][v]);
    }
}

}  // namespace tapir::inline v0::cpu
