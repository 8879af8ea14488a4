#include <cmath>

#include "../core/parallel.h"
#include "dispatch.h"
#include "kernels.h"
#include "philox.h"
#include "walk.h"

namespace tapir::inline v0::cpu {
namespace {

constexpr int64_t kBlock = 1024;  // elements whose random words are made together

/// keep[i]: element first + i stays. `first` is a multiple of 4, `count` at most kBlock.
void make_keep(const DropoutParams& params, int64_t first, int64_t count, uint32_t threshold, bool* keep) {
  alignas(64) uint32_t words[kBlock];
  words_of(params.seed, params.offset, first, count, 0, words);
  for (int64_t i = 0; i < count; ++i) keep[i] = words[i] >> 8 >= threshold;
}

template <class T> void apply(T* y, int64_t ys, const T* x, int64_t xs, const bool* keep, int64_t n, double scale) {
  using C = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const C s = C(scale);
  if (ys == 1 && xs == 1)
    for (int64_t i = 0; i < n; ++i) y[i] = keep[i] ? T(C(x[i]) * s) : T(C(0));
  else
    for (int64_t i = 0; i < n; ++i) y[i * ys] = keep[i] ? T(C(x[i * xs]) * s) : T(C(0));
}

}  // namespace

void dropout(Context&, V y, V mask, V x, const DropoutParams& params) {
  const bool masked = mask.defined();
  const Walk<3> walk(y.shape(), {y.strides, x.strides, masked ? mask.strides : y.strides});
  // (w >> 8) 2^-24 >= p, Philox::uniform against p, without a float; p = 1 keeps nothing.
  const auto threshold = uint32_t(std::ceil(params.p * 0x1p24));
  const double scale = params.p < 1 ? 1 / (1 - params.p) : 0;
  const int64_t blocks = (walk.total + kBlock - 1) / kBlock;
  for_any_float("dropout", y.dtype, [&]<class T>() {
    parallel_for(blocks, 8, [&](int64_t begin, int64_t end) {
      alignas(64) bool keep[kBlock];
      for (int64_t b = begin; b < end; ++b) {
        const int64_t first = b * kBlock, last = std::min(walk.total, first + kBlock);
        make_keep(params, first, last - first, threshold, keep);
        walk.run(first, last, [&](int64_t position, int64_t n, const std::array<int64_t, 3>& at) {
          const bool* const row = keep + (position - first);
          apply(y.as<T>() + at[0], walk.step(0), x.as<T>() + at[1], walk.step(1), row, n, scale);
          if (!masked) return;
          bool* const to = mask.as<bool>() + at[2];
          for (int64_t i = 0; i < n; ++i) to[i * walk.step(2)] = row[i];
        });
      }
    });
  });
}

}  // namespace tapir::inline v0::cpu
