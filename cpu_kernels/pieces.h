#pragma once
#include <algorithm>
#include <cstdint>

#include "../core/parallel.h"
#include "kernels.h"

namespace tapir::inline v0::cpu {

/// Calls f(memory, first, last) in parallel for pieces that cover [0, total), none smaller than `grain` but where there is one alone. Each
/// piece has `size` numbers of scratch memory to itself. Pieces are as many as threads now; the loop may run with another number of them.
template <class T, class F> void for_pieces(Context& ctx, int64_t total, int64_t grain, int64_t size, F&& f) {
  if (total <= 0) return;
  constexpr int64_t kLine = 64 / sizeof(T);  // two pieces do not write to one cache line
  const int64_t each = (size + kLine - 1) / kLine * kLine;
  const int64_t pieces = std::min<int64_t>(std::max<int64_t>(1, total / grain), threads_here());
  T* const memory = size > 0 ? ctx.scratch_of<T>(pieces * each) : nullptr;
  parallel_for(pieces, 1, [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p)
      f(size > 0 ? memory + p * each : nullptr, total * p / pieces, total * (p + 1) / pieces);
  });
}

}  // namespace tapir::inline v0::cpu
