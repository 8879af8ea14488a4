#include "overlap.h"

#include <algorithm>

namespace tapir::inline v0::ir {
namespace {

/// Elements low + sum of k_d strides[d], 0 <= k_d < sizes[d], with positive strides in falling order.
struct Box {
  int64_t low, high;  // first and last
  int rank = 0;
  int64_t sizes[kMaxRank], strides[kMaxRank];

  explicit Box(const View& v) : low(v.offset), high(v.offset) {
    for (int64_t d = 0; d < v.shape.size(); ++d) {
      const int64_t stride = v.strides[d], reach = stride * (v.shape[d] - 1);
      if (reach == 0) continue;
      (reach < 0 ? low : high) += reach;
      int at = rank++;
      for (; at > 0 && strides[at - 1] < std::abs(stride); --at)
        strides[at] = strides[at - 1], sizes[at] = sizes[at - 1];
      strides[at] = std::abs(stride), sizes[at] = v.shape[d];
    }
  }
  /// How far the box reaches in the direction of that stride; 0: it has two of them.
  int64_t extent(int64_t stride) const {
    int64_t n = 1;
    for (int d = 0; d < rank; ++d)
      if (strides[d] == stride) n = n == 1 ? sizes[d] : 0;
    return n;
  }
};

/// Offsets written as digits, one for each stride that either box has: a box is a range in each digit as long as none is carried.
bool disjoint_boxes(const Box& a, const Box& b) {
  int64_t grid[2 * kMaxRank];
  int64_t n = std::merge(a.strides, a.strides + a.rank, b.strides, b.strides + b.rank, grid, std::greater<>()) - grid;
  n = std::unique(grid, grid + n) - grid;
  int64_t rest_a = a.low, rest_b = b.low;
  bool apart = false;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t digit_a = rest_a / grid[i], digit_b = rest_b / grid[i];
    const int64_t extent_a = a.extent(grid[i]), extent_b = b.extent(grid[i]);
    if (extent_a == 0 || extent_b == 0) return false;
    if (i > 0) {
      if (grid[i - 1] % grid[i] != 0) return false;
      const int64_t base = grid[i - 1] / grid[i];
      if (digit_a + extent_a > base || digit_b + extent_b > base) return false;
    }
    apart |= digit_a + extent_a <= digit_b || digit_b + extent_b <= digit_a;
    rest_a %= grid[i], rest_b %= grid[i];
  }
  return apart || rest_a != rest_b;
}

}  // namespace

bool overlap(const View& a, const View& b) {
  if (a.kind != View::Kind::Memory || b.kind != View::Kind::Memory || a.block < 0 || a.block != b.block) return false;
  const Box x(a), y(b);
  const int64_t size_a = size_of(a.dtype), size_b = size_of(b.dtype);
  if ((x.high + 1) * size_a <= y.low * size_b || (y.high + 1) * size_b <= x.low * size_a) return false;
  return size_a != size_b || !disjoint_boxes(x, y);
}

bool same_form(const View& a, const View& b) {
  if (a.kind != View::Kind::Memory || b.kind != View::Kind::Memory) return false;
  if (a.offset != b.offset || a.dtype != b.dtype || !(a.shape == b.shape)) return false;
  for (int64_t d = 0; d < a.shape.size(); ++d)
    if (a.shape[d] != 1 && a.strides[d] != b.strides[d]) return false;
  return true;
}

bool same_place(const View& a, const View& b) { return a.block == b.block && same_form(a, b); }

View expanded(const View& v, const Shape& shape) {
  View out = v;
  if (v.kind != View::Kind::Memory) return out;
  out.shape = shape, out.strides = Strides::filled(shape.size(), 0);
  const int64_t more = shape.size() - v.shape.size();
  for (int64_t d = 0; d < v.shape.size(); ++d)
    if (v.shape[d] != 1) out.strides[d + more] = v.strides[d];
  return out;
}

std::optional<View> reshaped(const View& v, const Shape& shape) {
  if (v.kind != View::Kind::Memory || v.shape == shape) return v;
  View out = v;
  out.shape = shape, out.strides = Strides::filled(shape.size(), 0);
  // Runs of dimensions that are one in memory; each must be cut into whole new dimensions.
  int64_t to = shape.size() - 1;
  for (int64_t d = v.shape.size() - 1; d >= 0;) {
    if (v.shape[d] == 1) {
      --d;
      continue;
    }
    const int64_t stride = v.strides[d];
    int64_t run = v.shape[d], reach = stride * v.shape[d];
    for (--d; d >= 0 && (v.shape[d] == 1 || v.strides[d] == reach); --d) run *= v.shape[d], reach *= v.shape[d];
    int64_t made = 1;
    for (; to >= 0 && made < run; --to) {
      out.strides[to] = stride * made;
      made *= shape[to];
    }
    if (made != run) return {};
  }
  return out;
}

std::optional<View> through(const View& v, const View& here, const View& there) {
  if (v.dtype != here.dtype || v.offset != here.offset || numel_of(v.shape) != numel_of(here.shape)) return {};
  if (const auto same = reshaped(here, v.shape); same && same_place(*same, v)) return reshaped(there, v.shape);
  View out = there;
  out.shape = v.shape, out.strides = Strides::filled(v.shape.size(), 1);
  // A dimension of v is a piece of one of here's. The pieces of each, the shortest strides first, must make up all of it.
  int64_t order[kMaxRank], covered[kMaxRank], rank = 0;
  for (int64_t d = 0; d < v.shape.size(); ++d)
    if (v.shape[d] != 1) order[rank++] = d;
  std::sort(order, order + rank, [&](int64_t a, int64_t b) { return v.strides[a] < v.strides[b]; });
  std::fill(std::begin(covered), std::end(covered), 1);
  for (int64_t n = 0; n < rank; ++n) {
    const int64_t d = order[n], stride = v.strides[d];
    int64_t from = -1;
    for (int64_t i = 0; i < here.shape.size(); ++i)
      if (here.shape[i] > 1 && here.strides[i] * covered[i] == stride && covered[i] < here.shape[i]) from = i;
    if (from < 0) return {};
    out.strides[d] = there.strides[from] * covered[from];
    covered[from] *= v.shape[d];
  }
  for (int64_t i = 0; i < here.shape.size(); ++i)
    if (covered[i] != here.shape[i]) return {};
  return out;
}

}  // namespace tapir::inline v0::ir
