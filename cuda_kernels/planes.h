#pragma once
#include "divider.h"
#include "kernel.h"
#include "launch.h"

// Images (N, C, W) to (N, C, D, H, W) as three axes for a thread to find its place in: pool.cu, resample.cu.
namespace tapir::inline v0::cuda_kernels {

/// Strides; (N, C, W) and (N, C, H, W) are (N, C, 1, 1, W) and (N, C, 1, H, W).
struct Field {
  int64_t image, channel, at[3];
  __device__ int64_t offset(int64_t n, int64_t c, int i, int j, int k) const {
    return n * image + c * channel + i * at[0] + j * at[1] + k * at[2];
  }
};
inline Field field_of(V v) {
  Field f{v.strides[0], v.strides[1], {}};
  for (int64_t d = 2; d < v.rank; ++d)  // the stride of one position says nothing, and must not forbid packs
    f.at[d + 5 - v.rank - 2] = v.sizes[d] == 1 ? 0 : v.strides[d];
  return f;
}

struct Planes {
  int64_t images, channels;
  bool channels_inside;  // they lie side by side in every operand
  bool small;            // 32 bits hold the number of every element
  Field x, y;
  int64_t packs, extents[3];  // of what is walked through
  Divider by[4];              // the same, where 32 bits are enough

  /// Places will be numbered for elements of v, `pack` channels to a place.
  void walk(V v, int pack) {
    packs = channels / pack;
    for (int64_t d = 0; d < 3; ++d) extents[d] = v.rank + d >= 5 ? v.sizes[v.rank - 3 + d] : 1;
    for (int d = 0; small && d < 4; ++d) by[d] = Divider(uint32_t(d < 3 ? extents[d] : packs));
  }
};
inline Planes planes_of(V x, V y) {
  Planes p{x.sizes[0], x.sizes[1], false, false, field_of(x), field_of(y), 0, {}, {}};
  p.channels_inside = p.x.channel == 1 && p.y.channel == 1 && p.channels > 1;
  p.small = std::max(x.numel(), y.numel()) < int64_t(1) << 31;
  return p;
}
/// Whether packs of `pack` channels can be read and written at once.
inline bool packs(const Planes& p, V x, V y, int pack) {
  if (!p.channels_inside || p.channels % pack) return false;
  bool fits = true;
  for (const auto& [view, field] : {std::pair<const TensorView*, const Field*>{&x, &p.x}, {&y, &p.y}}) {
    fits = fits && reinterpret_cast<uintptr_t>(view->data) % 16 == 0 && field->image % pack == 0;
    for (int64_t step : field->at) fits = fits && step % pack == 0;
  }
  return fits;
}

/// A place of a field, or of a pack of `pack` channels from c on.
struct Place {
  int64_t n, c;
  int at[3];
};
/// Place number `i` of those that walk() named, where the last axis, or the channels, run fastest. I: 32 bits where they hold every number.
template <class I> __device__ Place place_as(const Planes& w, I i, int pack) {
  Place p;
  const auto split = [&](int k, int64_t extent) {
    I next;
    if constexpr (sizeof(I) == 4) next = w.by[k].quotient(i);
    else next = i / extent;
    const I at = i - next * I(extent);
    i = next;
    return at;
  };
  if (w.channels_inside) p.c = int64_t(split(3, w.packs)) * pack;
  for (int d = 2; d >= 0; --d) p.at[d] = int(split(d, w.extents[d]));
  if (!w.channels_inside) p.c = int64_t(split(3, w.packs));
  p.n = i;
  return p;
}
__device__ inline Place place_of(const Planes& w, int64_t i, int pack) {
  return w.small ? place_as<uint32_t>(w, uint32_t(i), pack) : place_as<int64_t>(w, i, pack);
}

}  // namespace tapir::inline v0::cuda_kernels
