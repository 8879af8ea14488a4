#include "../../core/dispatch.h"
#include "../../core/parallel.h"
#include "../kernels.h"
#include "../walk.h"
#include "philox.h"

namespace tapir::inline v0::cpu {
namespace {

constexpr int64_t kBlock = 1024;  // elements whose random words are made together

/// Elements with a word of at least `limit` stay.
template <class T>
void apply(T* y, int64_t ys, const T* x, int64_t xs, const uint32_t* words, uint32_t limit, int64_t n, double scale) {
  using C = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const C s = C(scale);
  const auto at = [&](int64_t i, int64_t from) {
    const C scaled = C(x[from]) * s;  // before it is asked for: a load that may not be made is no vector's
    return T(words[i] >> 8 >= limit ? scaled : C(0));
  };
  if (ys == 1 && xs == 1)
    for (int64_t i = 0; i < n; ++i) y[i] = at(i, i);
  else
    for (int64_t i = 0; i < n; ++i) y[i * ys] = at(i, i * xs);
}
void write_mask(bool* mask, int64_t step, const uint32_t* words, uint32_t limit, int64_t n) {
  if (step == 1)
    for (int64_t i = 0; i < n; ++i) mask[i] = words[i] >> 8 >= limit;
  else
    for (int64_t i = 0; i < n; ++i) mask[i * step] = words[i] >> 8 >= limit;
}

}  // namespace

void dropout(Context&, const entry::Dropout& c) {
  V y = c.y, mask = c.mask, x = c.x;
  const DropoutParams& params = c.params;
  const uint64_t offset = params.offset + (c.base.defined() ? uint64_t(*c.base.as<int64_t>()) : 0);
  const bool masked = mask.defined();
  const Walk<3> walk(y.shape(), {y.strides, x.strides, masked ? mask.strides : y.strides});
  const uint32_t limit = Philox::drop_limit(params.p);
  const double scale = Philox::keep_scale(params.p);
  const int64_t blocks = (walk.total + kBlock - 1) / kBlock;
  for_any_float("dropout", y.dtype, [&]<class T>() {
    parallel_for(blocks, 8, [&](int64_t begin, int64_t end) {
      alignas(64) uint32_t words[kBlock];
      for (int64_t b = begin; b < end; ++b) {
        const int64_t first = b * kBlock, last = std::min(walk.total, first + kBlock);
        words_of(params.seed, offset, first, last - first, 0, words);
        walk.run(first, last, [&](int64_t position, int64_t n, const std::array<int64_t, 3>& at) {
          const uint32_t* const row = words + (position - first);
          apply(y.as<T>() + at[0], walk.step(0), x.as<T>() + at[1], walk.step(1), row, limit, n, scale);
          if (masked) write_mask(mask.as<bool>() + at[2], walk.step(2), row, limit, n);
        });
      }
    });
  });
}

}  // namespace tapir::inline v0::cpu
