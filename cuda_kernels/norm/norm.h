#pragma once
#include <cmath>

#include "../any.h"
#include "../kernels.h"
#include "../stage.h"

namespace tapir::inline v0::cuda_kernels {

// norm.cu: Layer and Rms. norm_channels.cu: Batch and Group, and what norm_relu adds to Batch.
entry::Kernel<entry::Norm> norm_rows;
entry::Kernel<entry::NormBackward> norm_rows_backward;
/// False, and nothing done, where operands do not lie as the one kernel for it wants them.
bool norm_rows_add_backward(Context& ctx, const entry::NormAddBackward& c);
void norm_channels(Context& ctx, const entry::NormRelu& c, bool relu);
void norm_channels_backward(Context& ctx, const entry::NormReluBackward& c, bool relu);

template <class C> struct Two {
  C a, b;
  struct Join {
    __device__ Two operator()(Two s, Two t) const { return {s.a + t.a, s.b + t.b}; }
  };
};
/// rstd of a row whose distances from about their mean sum to s.a, their squares to s.b. What rounding left in the mean is taken out, so
/// that a row of one number has no spread at all.
template <class C> __device__ C settle_mean(Two<C> s, C width, C& mean, double eps) {
  const C shift = s.a / width, spread = s.b - s.a * shift;
  mean += shift;
  return C(1) / std::sqrt((spread < C(0) ? C(0) : spread) / width + C(eps));
}

/// W elements of a flat float operand from i on, by as wide loads as may be; `absent` where there is none.
template <int W, class C> __device__ __forceinline__ void load_flat(const Flat& f, int64_t i, C (&v)[W], C absent) {
  const auto load = [&]<class T>() {
    constexpr int N = W < kPackSize<T> ? W : kPackSize<T>;
#pragma unroll
    for (int at = 0; at < W; at += N) {
      const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(static_cast<const T*>(f.data) + i + at);
#pragma unroll
      for (int k = 0; k < N; ++k) v[at + k] = C(widen(pack.of[k]));
    }
  };
  if (!f.data) {
    for (int k = 0; k < W; ++k) v[k] = absent;
    return;
  }
  switch (f.dtype) {
    case kFloat32: return load.template operator()<float>();
    case kFloat16: return load.template operator()<Half>();
    case kBFloat16: return load.template operator()<BFloat16>();
    default: return load.template operator()<double>();
  }
}
/// load_flat() of packs may be used.
inline bool is_aligned(const Flat& f) { return reinterpret_cast<uintptr_t>(f.data) % 16 == 0; }

}  // namespace tapir::inline v0::cuda_kernels
