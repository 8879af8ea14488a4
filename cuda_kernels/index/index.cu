#include "../../core/dispatch.h"
#include "../kernels.h"
#include "early_launch.h"
#include "places.h"

// Reading by index tensors.
namespace tapir::inline v0::cuda_kernels {
namespace {

/// Operands of the layout: out, index, x without its step along the dimension.
template <class T> __global__ void gather_kernel(T* out, const T* x, const int64_t* ids, Layout<3> l, int64_t step,
                                                 int64_t bound, LateError* error) {
  for (const int64_t i : grid_stride(l.numel)) {
    int64_t at[3];
    l.offsets(i, at);
    const int64_t id = ids[at[1]];
    if (uint64_t(id) >= uint64_t(bound)) report_bad_value(error, i, id, bound);
    else out[at[0]] = x[at[2] + id * step];
  }
}

/// How index finds the row of a position: by one index tensor, or by offsets that are there already.
struct Rows {
  Layout<2> l;  // of positions: out, ids (or offsets)
  const int64_t* ids;
  int64_t size, stride;
  bool wrap, are_offsets;
  LateError* error;
};
template <class T> __global__ void index_kernel(T* out, const T* x, Rows rows, Layout<2> rest, Split split) {
  let_next_begin(), wait_for_previous();
  const int64_t total = rows.l.numel * rest.numel;
  for (const int64_t i : grid_stride(total)) {
    const int64_t position = split.quotient(i), r = i - position * split.by;
    int64_t at[2], inner[2];
    rows.l.offsets(position, at), rest.offsets(r, inner);
    const int64_t value = rows.ids[at[1]];
    int64_t from = value;
    if (!rows.are_offsets) {
      const int64_t id = place_of(value, rows.size, rows.wrap);
      if (id < 0 && r == 0) report_bad_value(rows.error, position, value, rows.size);
      from = id < 0 ? -1 : id * rows.stride;
    }
    if (from >= 0) out[at[0] + inner[0]] = x[from + inner[1]];
  }
}

}  // namespace

void gather(Context& ctx, const entry::Gather& c) {
  const TensorView &out = c.out, &x = c.x, &index = c.index;
  if (out.numel() == 0) return;
  const int64_t dim = c.params.dim, bound = x.rank ? x.sizes[dim] : 1, step = x.rank ? x.strides[dim] : 0;
  TensorView from = x;  // along `dim` the index, not the place, moves through x
  if (x.rank) from.strides[dim] = 0;
  const Layout<3> l = layout_of<3>({&out, &index, &from}, false);
  for_size(out.dtype, [&]<class T>() {
    launch(ctx, "gather", grid_of(l.numel), gather_kernel<T>, out.as<T>(), x.as<T>(), index.as<int64_t>(), l, step,
           bound, late_error(ctx));
  });
}

void index(Context& ctx, const entry::Index& c) {
  const TensorView &out = c.out, &x = c.x;
  if (out.numel() == 0) return;
  const int64_t keys = int64_t(c.indices.size()), index_rank = out.rank - (x.rank - keys);
  const TensorView positions = dimensions(out, 0, index_rank), table = dimensions(x, 0, keys),
                   rest_out = dimensions(out, index_rank, out.rank - index_rank),
                   rest_x = dimensions(x, keys, x.rank - keys);
  Layout<2> rest = layout_of<2>({&rest_out, &rest_x});
  const int64_t element = size_of(out.dtype);
  const int64_t count =
      neighbours(rest, element, {out.data, x.data},
                 {std::span(positions.strides, size_t(index_rank)), std::span(table.strides, size_t(keys))});
  widen(rest, count, true);
  TensorView out_steps = positions, named = table;
  for (int64_t d = 0; d < index_rank; ++d) out_steps.strides[d] /= count;
  for (int64_t d = 0; d < keys; ++d) named.strides[d] /= count;

  Rows rows{};
  rows.are_offsets = keys != 1, rows.wrap = c.params.wrap;
  if (keys == 1) {
    rows.l = layout_of<2>({&out_steps, &c.indices[0]}, false), rows.ids = c.indices[0].as<int64_t>();
    rows.size = named.sizes[0], rows.stride = named.strides[0], rows.error = late_error(ctx);
  } else {
    const TensorView number = numbered(positions);
    rows.l = layout_of<2>({&out_steps, &number}, false);
    rows.ids = make_table_offsets(ctx, "index", at_zero(positions), number, named, c.indices, c.params.wrap);
  }
  const int64_t total = rows.l.numel * rest.numel;
  for_width(element * count, [&]<class T>() {
    launch(ctx, "index", early(ctx, grid_of(total)), index_kernel<T>, out.as<T>(), x.as<T>(), rows, rest,
           Split(rest.numel, total));
  });
}

}  // namespace tapir::inline v0::cuda_kernels
