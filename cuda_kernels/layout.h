#pragma once
#include <cstdint>

#include "../core/backend.h"
#include "divider.h"

// From the number of an element to its places in operands of any strides.
namespace tapir::inline v0::cuda_kernels {

/// N operands of one shape, dimensions that all of them step through evenly merged into one, extents of 1 gone. Dimension 0 is the
/// innermost. Fits a kernel's argument space.
template <int N> struct Layout {
  int rank = 0;
  int64_t numel = 1;
  uint32_t small = 1;  // 1: numel < 2^31, division by multiplication
  int64_t sizes[kMaxRank] =
      {};  // what lies behind `rank` is nothing left over: the emulation searches arguments for host pointers
  Divider dividers[kMaxRank];
  int64_t strides[N][kMaxRank] = {};  // in elements

  /// The offsets, in elements, of element `i` in row-major order.
  TAPIR_HD void offsets(int64_t i, int64_t (&out)[N]) const {
    for (int k = 0; k < N; ++k) out[k] = 0;
    if (small) {
      uint32_t rest = uint32_t(i);
      for (int d = 0; d < rank; ++d) {
        const uint32_t next = dividers[d].quotient(rest), at = rest - next * dividers[d].d;
        for (int k = 0; k < N; ++k) out[k] += int64_t(at) * strides[k][d];
        rest = next;
      }
    } else {
      for (int d = 0; d < rank; ++d) {
        const int64_t next = i / sizes[d], at = i - next * sizes[d];
        for (int k = 0; k < N; ++k) out[k] += at * strides[k][d];
        i = next;
      }
    }
  }
  /// All operands are dense in this order: element i lies at offset i of each, or at 0 (stride 0 throughout).
  bool is_linear(int operand) const {
    return numel <= 1 || (rank == 1 && (strides[operand][0] == 1 || strides[operand][0] == 0));
  }
};

/// Views of one shape (broadcast ones with stride 0; numbers and absent ones count as stride 0). With `reorder` the dimensions are put
/// in the order of the first operand's strides, so that any dense order becomes linear; else they stay in row-major order.
template <int N> Layout<N> layout_of(const TensorView* const (&views)[N], bool reorder = true) {
  const TensorView& first = *views[0];
  int order[kMaxRank], rank = 0;
  for (int64_t d = first.rank - 1; d >= 0; --d)
    if (first.sizes[d] != 1) order[rank++] = int(d);
  if (reorder)
    for (int i = 1; i < rank; ++i)  // insertion sort, stable: the first operand's smallest strides come first
      for (int j = i; j > 0 && first.strides[order[j]] < first.strides[order[j - 1]]; --j) {
        const int t = order[j];
        order[j] = order[j - 1], order[j - 1] = t;
      }
  const auto stride = [&](int k, int d) {
    const TensorView& v = *views[k];
    return v.is_scalar || !v.defined() || v.sizes[d] == 1 ? int64_t(0) : v.strides[d];
  };
  Layout<N> l;
  if (first.numel() == 0) return l.numel = 0, l;
  for (int i = 0; i < rank; ++i) {
    const int d = order[i], last = l.rank - 1;
    l.numel *= first.sizes[d];
    bool merges = last >= 0;
    for (int k = 0; merges && k < N; ++k) merges = stride(k, d) == l.strides[k][last] * l.sizes[last];
    if (merges) {
      l.sizes[last] *= first.sizes[d];
      continue;
    }
    l.sizes[l.rank] = first.sizes[d];
    for (int k = 0; k < N; ++k) l.strides[k][l.rank] = stride(k, d);
    ++l.rank;
  }
  l.small = l.numel < (int64_t(1) << 31);
  if (l.small)
    for (int d = 0; d < l.rank; ++d) l.dividers[d] = Divider(uint32_t(l.sizes[d]));
  return l;
}

}  // namespace tapir::inline v0::cuda_kernels
