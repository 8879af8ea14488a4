#pragma once
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
};
inline Planes planes_of(V x, V y) {
  Planes p{x.sizes[0], x.sizes[1], false, false, field_of(x), field_of(y)};
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
/// Place number `i` where the last axis, or the channels, run fastest. I: 32 bits where they hold every number.
template <class I> __device__ Place place_as(const Planes& w, I i, I e0, I e1, I e2, int pack) {
  Place p;
  const I channels = I(w.channels), packs = channels / I(pack);
  if (w.channels_inside) p.c = int64_t(i % packs) * pack, i /= packs;
  p.at[2] = int(i % e2), i /= e2;
  p.at[1] = int(i % e1), i /= e1;
  p.at[0] = int(i % e0), i /= e0;
  if (!w.channels_inside) p.c = i % channels, i /= channels;
  p.n = i;
  return p;
}
__device__ inline Place place_of(const Planes& w, int64_t i, int e0, int e1, int e2, int pack) {
  if (w.small) return place_as<uint32_t>(w, uint32_t(i), uint32_t(e0), uint32_t(e1), uint32_t(e2), pack);
  return place_as<int64_t>(w, i, e0, e1, e2, pack);
}

}  // namespace tapir::inline v0::cuda_kernels
