#include "../any.h"
#include "../kernels.h"
#include "../launch.h"
#include "../layout.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

struct SearchPlan {
  Layout<3> l;  // out, values, the rows of sorted
  int64_t size, step;
  const void *sorted, *values;
  int64_t* out;
  DType dtype;
  bool right;
};

/// How many of the row's elements come before each value; a NaN comes after all. C holds every element exactly.
template <class C> __global__ void search_rows(const SearchPlan p) {
  for (const int64_t i : grid_stride(p.l.numel)) {
    int64_t at[3];
    p.l.offsets(i, at);
    const C v = load_any<C>(p.values, at[1], p.dtype);
    int64_t low = 0, n = p.size;
    while (n > 0) {  // the answer is in [low, low + n]
      const int64_t half = n / 2;
      const C e = load_any<C>(p.sorted, at[2] + (low + half) * p.step, p.dtype);
      const bool before = p.right ? !(e > v) : !(e >= v);
      low = before ? low + half + 1 : low, n = before ? n - half - 1 : half;
    }
    p.out[at[0]] = low;
  }
}

}  // namespace

void search(Context& ctx, const entry::Search& c) {
  const TensorView &out = c.out, &sorted = c.sorted, &values = c.values;
  TensorView rows = sorted;
  const int64_t last = sorted.rank - 1;
  rows.sizes[last] = out.sizes[last], rows.strides[last] = 0;
  const SearchPlan p{layout_of<3>({&out, &values, &rows}),
                     sorted.sizes[last],
                     sorted.strides[last],
                     sorted.data,
                     values.data,
                     out.as<int64_t>(),
                     values.dtype,
                     c.params.right};
  if (is_floating(values.dtype)) launch(ctx, "search", grid_of(p.l.numel), search_rows<double>, p);
  else launch(ctx, "search", grid_of(p.l.numel), search_rows<int64_t>, p);
}

}  // namespace tapir::inline v0::cuda_kernels
