#pragma once
#include <cstdint>
#include <span>

#include "../core/backend.h"
#include "convert.h"

namespace tapir::inline v0::cpu {

// Note [Loops by tiles]
// A kernel sees nothing but short contiguous arrays of the types it computes in. What differs in memory, by strides, by
// broadcasting or by dtype (the 16-bit floats), is gathered and converted into a tile that stays in the first-level
// cache, and scattered back. So there is one vectorised loop for each operation and type, and any layout is right.
// What lies as a kernel takes it is not gathered, and what all operands repeat is computed once and copied.
// Tiles depend on shapes alone, never on the number of threads: the results do not either.

inline constexpr int kMaxOperands = 5;
inline constexpr int64_t kTile = 1024;         // elements
inline constexpr int64_t kSmallRow = 64;       // rows below are tiled together
inline constexpr int64_t kGrain = 32768;       // elements of a cheap operation that are worth a thread
inline constexpr int64_t kMaxElementSize = 8;  // bytes

/// The dimensions that several operands share, with their strides in bytes. Extents of 1 are left out.
struct Space {
  explicit Space(int operands) : operands(operands) {}
  int operands;
  int64_t rank = 0, numel = 1;
  int64_t sizes[kMaxRank];
  int64_t strides[kMaxOperands][kMaxRank];

  void add(int64_t size, const int64_t* byte_strides);
  /// Orders dimensions by the strides of the first operand and merges those that are one in memory.
  void simplify();
  int64_t inner() const { return rank ? sizes[rank - 1] : 1; }
  int64_t inner_stride(int k) const { return rank ? strides[k][rank - 1] : 0; }
  /// Bytes from the start to element `flat` (row-major) of operand k.
  int64_t offset(int k, int64_t flat) const;
  /// The same to the start of row `row`, a row being the innermost dimension.
  int64_t row_offset(int k, int64_t row) const;
  /// True when operand k, of elements of `size` bytes, lies in memory without gaps in this order.
  bool is_flat(int k, int64_t size) const;
};

/// Elements [flat, flat + n) of operand k between memory and a contiguous tile.
void gather(const Space& space, int k, const char* from, int64_t flat, int64_t n, int64_t size, void* tile);
void scatter(const Space& space, int k, char* to, int64_t flat, int64_t n, int64_t size, const void* tile);

/// How a space is cut: along its rows where these are long, else across them.
struct Tiles {
  explicit Tiles(const Space& space, int64_t width = kTile);
  int64_t width, count;
  bool by_row;
  int64_t row = 0, per_row = 0;  // a row's length and its tiles, when by_row
  int64_t begin(int64_t tile) const { return by_row ? tile / per_row * row + tile % per_row * width : tile * width; }
  /// Parallel grain in tiles for `grain` elements.
  int64_t grain(int64_t elements) const {
    const int64_t g = elements / (by_row && row < width ? row : width);
    return g > 0 ? g : 1;
  }
};

/// n elements of each operand; array 0 is written. Operands may be the same array, and do not overlap otherwise.
using LoopKernel = void (*)(int64_t n, void* const* data, const void* params);

/// Runs the kernel over all elements of views[0]; the others are broadcast to it. types[k] is what the kernel takes as
/// operand k, whatever the view holds. `cost`: of an element, in additions.
void pointwise(std::span<const TensorView* const> views, const DType* types, LoopKernel kernel, const void* params,
               int64_t cost = 1);

}  // namespace tapir::inline v0::cpu
