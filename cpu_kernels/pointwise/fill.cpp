#include "../../core/dispatch.h"
#include "../../core/parallel.h"
#include "../kernels.h"
#include "../loops.h"

namespace tapir::inline v0::cpu {

void fill(Context&, const entry::Fill& c) {
  for_all("fill", c.out.dtype, [&]<class T>() {
    const T number = cast<T>(c.value);
    const LoopKernel kernel = [](int64_t n, void* const* data, const void* params) {
      T* to = static_cast<T*>(data[0]);
      const T v = *static_cast<const T*>(params);
      for (int64_t i = 0; i < n; ++i) to[i] = v;
    };
    const TensorView* const views[] = {&c.out};
    pointwise(views, &c.out.dtype, kernel, &number);
  });
}

void range(Context&, const entry::Range& c) {
  V out = c.out;
  const RangeParams& p = c.params;
  const int64_t n = out.numel();
  if (n == 0) return;
  const int64_t step = out.rank ? out.strides[0] : 0;
  const bool integer = !p.start.is_float() && !p.step.is_float() && !is_floating(out.dtype);
  for_all("range", out.dtype, [&]<class T>() {
    T* to = out.as<T>();
    parallel_for(n, kGrain / 2, [&](int64_t first, int64_t last) {
      if (integer) {
        const uint64_t start = uint64_t(p.start.to_int()), by = uint64_t(p.step.to_int());  // unsigned: wraps
        for (int64_t i = first; i < last; ++i) to[i * step] = cast<T>(int64_t(start + uint64_t(i) * by));
      } else {
        const double start = p.start.to_double(), by = p.step.to_double();
        for (int64_t i = first; i < last; ++i) to[i * step] = cast<T>(start + double(i) * by);
      }
    });
  });
}

}  // namespace tapir::inline v0::cpu
