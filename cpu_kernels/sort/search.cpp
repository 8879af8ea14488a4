#include "../../core/dispatch.h"
#include "../../core/parallel.h"
#include "../kernels.h"
#include "../walk.h"

namespace tapir::inline v0::cpu {

/// How many of n elements come before v; a NaN comes after all.
template <class T, bool kRight> static int64_t position(const T* sorted, int64_t n, int64_t step, T v) {
  const auto before = [v](T e) { return kRight ? !(e > v) : !(e >= v); };
  int64_t low = 0;
  while (n > 0) {  // the answer is in [low, low + n]
    const int64_t half = n / 2;
    const bool above = before(sorted[(low + half) * step]);
    low = above ? low + half + 1 : low, n = above ? n - half - 1 : half;
  }
  return low;
}

void search(Context&, const entry::Search& c) {
  V out = c.out, sorted = c.sorted, values = c.values;
  if (out.numel() == 0) return;
  const int64_t n = sorted.sizes[sorted.rank - 1], step = sorted.strides[sorted.rank - 1];
  Strides rows = sorted.stride_list();
  rows[sorted.rank - 1] = 0;
  const Walk<3> walk(out.shape(), {out.strides, values.strides, rows.data()});
  for_all("search", values.dtype, [&]<class T>() {
    const auto run = [&]<bool kRight>() {
      parallel_for(walk.total, 512, [&](int64_t first, int64_t last) {
        walk.run(first, last, [&](int64_t, int64_t count, const std::array<int64_t, 3>& at) {
          for (int64_t i = 0; i < count; ++i)
            out.as<int64_t>()[at[0] + i * walk.step(0)] = position<T, kRight>(
                sorted.as<T>() + at[2] + i * walk.step(2), n, step, values.as<T>()[at[1] + i * walk.step(1)]);
        });
      });
    };
    c.params.right ? run.template operator()<true>() : run.template operator()<false>();
  });
}

}  // namespace tapir::inline v0::cpu
