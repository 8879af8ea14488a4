#include "../../core/arithmetic.h"
#include "../../core/dispatch.h"
#include "../../core/parallel.h"
#include "../convert.h"
#include "../kernels.h"
#include "../pack.h"
#include "../walk.h"
#include "places.h"

namespace tapir::inline v0::cpu {

static constexpr int64_t kIndexGrain = 16384;  // elements

/// to[i] = from[i from_step + ids[i] step] for n elements; false, with nothing written, where an index is not in [0, bound).
template <class T, bool kDense> static bool gather_row(T* to, int64_t to_step, const int64_t* ids, int64_t id_step,
                                                       const T* from, int64_t from_step, int64_t step, int64_t bound,
                                                       int64_t n) {
  const int64_t a = kDense ? 1 : to_step, b = kDense ? 1 : id_step, c = kDense ? 0 : from_step;
  int64_t wrong = 0;
  for (int64_t i = 0; i < n; ++i) wrong |= int64_t(uint64_t(ids[i * b]) >= uint64_t(bound));
  if (wrong) return false;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i * a] = from[i * c + ids[i * b] * step];
  return true;
}

void gather(Context& ctx, const entry::Gather& c) {
  V out = c.out, x = c.x, index = c.index;
  if (out.numel() == 0) return;
  const int64_t dim = c.params.dim, bound = x.rank ? x.sizes[dim] : 1, step = x.rank ? x.strides[dim] : 0;
  // Along `dim` the index, not the walk, moves through x.
  Strides x_strides = x.stride_list();
  if (x.rank) x_strides[dim] = 0;
  const Walk<3> walk(out.shape(), {out.strides, index.strides, x_strides.data()});
  for_size(out.dtype, [&]<class T>() {
    T* const to = out.as<T>();
    const T* const from = x.as<T>();
    const int64_t* const ids = index.as<int64_t>();
    const int64_t to_step = walk.step(0), id_step = walk.step(1), from_step = walk.step(2);
    constexpr int64_t kBlock = 512;
    const bool dense = to_step == 1 && id_step == 1 && from_step == 0;
    parallel_for(walk.total, kIndexGrain, [&](int64_t first, int64_t last) {
      walk.run(first, last, [&](int64_t position, int64_t count, const std::array<int64_t, 3>& at) {
        for (int64_t done = 0; done < count; done += kBlock) {
          const int64_t n = std::min(kBlock, count - done);
          T* const target = to + at[0] + done * to_step;
          const T* const source = from + at[2] + done * from_step;
          const int64_t* const row = ids + at[1] + done * id_step;
          const auto run = dense ? gather_row<T, true> : gather_row<T, false>;
          if (run(target, to_step, row, id_step, source, from_step, step, bound, n)) continue;
          for (int64_t i = 0; i < n; ++i) {
            const int64_t id = row[i * id_step];
            if (uint64_t(id) >= uint64_t(bound)) ctx.bad_value(position + done + i, id, bound);
            else target[i * to_step] = source[i * from_step + id * step];
          }
        }
      });
    });
  });
}

/// Records the first index outside [0, bound); true when there is one.
static bool any_bad_index(Context& ctx, V index, int64_t bound) {
  const Walk<1> walk(index.shape(), {index.strides});
  const int64_t* const ids = index.as<int64_t>();
  const int64_t step = walk.step(0);
  parallel_for(walk.total, kIndexGrain, [&](int64_t first, int64_t last) {
    walk.run(first, last, [&](int64_t position, int64_t count, const std::array<int64_t, 1>& at) {
      const int64_t* const row = ids + at[0];
      int64_t wrong = 0;
      if (step == 1)
        for (int64_t i = 0; i < count; ++i) wrong |= int64_t(uint64_t(row[i]) >= uint64_t(bound));
      else
        for (int64_t i = 0; i < count; ++i) wrong |= int64_t(uint64_t(row[i * step]) >= uint64_t(bound));
      for (int64_t i = 0; wrong && i < count; ++i)
        if (uint64_t(row[i * step]) >= uint64_t(bound)) ctx.bad_value(position + i, row[i * step], bound);
    });
  });
  return ctx.error.set;
}

template <class T> static T combined(ScatterOp op, T a, T b) {
  switch (op) {
    case ScatterOp::Assign: return b;
    case ScatterOp::Add: return added(a, b);
    case ScatterOp::Multiply:
      if constexpr (is_half<T>) return T(float(a) * float(b));
      else return wrap_mul(a, b);
    case ScatterOp::Max: return b > a || b != b ? b : a;
    default: return b < a || b != b ? b : a;
  }
}

/// Sums and products of 16 bits, in double: every addition in 16 bits would round the whole sum. All indices are good.
template <class T> static void combine_wide(Context& ctx, const entry::Scatter& c) {
  V out = c.out, index = c.index, source = c.source;
  const T number = source.is_scalar ? cast<T>(source.scalar) : T{};
  if (out.numel() / kCopiedTable <= index.numel()) {
    const TensorView wide = dense(ctx, out, kFloat64);
    TensorView from = source;
    if (source.is_scalar) from.scalar = double(float(number));
    else from = packed(ctx, source, kFloat64);
    scatter(ctx, {wide, index, from, c.params});
    return copy(ctx, {out, wide});
  }
  const int64_t step = out.rank ? out.strides[c.params.dim] : 0;
  Strides to_strides = out.stride_list(),
          from_strides = source.is_scalar ? Strides::filled(index.rank, 0) : source.stride_list();
  if (out.rank) to_strides[c.params.dim] = 0;
  const Walk<3> walk(index.shape(), {to_strides.data(), index.strides, from_strides.data()});
  Places places(ctx, walk.total);
  double* const wide = ctx.scratch_of<double>(walk.total);
  T* const to = out.as<T>();
  const T* const from = source.is_scalar ? &number : source.as<T>();
  const int64_t* const ids = index.as<int64_t>();
  walk.run(0, walk.total, [&](int64_t, int64_t count, const std::array<int64_t, 3>& at) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t place = at[0] + i * walk.step(0) + ids[at[1] + i * walk.step(1)] * step, p = places.meet(place);
      if (places.times(p) == 1) wide[p] = double(to[place]);
      wide[p] = combined(c.params.op, wide[p], double(from[at[2] + i * walk.step(2)]));
    }
  });
  for (int64_t p = 0; p < places.size(); ++p) to[places.offset(p)] = cast<T>(wide[p]);
}

// Nothing is written unless every index is good. Elements that differ in a coordinate other than `dim` never meet, so the
// work is split along the largest such dimension; within a part it goes in row-major order: the last one wins, sums are
// the same for any number of threads.
void scatter(Context& ctx, const entry::Scatter& c) {
  V out = c.out, index = c.index, source = c.source;
  if (index.numel() == 0) return;
  const int64_t dim = c.params.dim, bound = out.rank ? out.sizes[dim] : 1, step = out.rank ? out.strides[dim] : 0;
  if (any_bad_index(ctx, index, bound)) return;
  if (c.params.op == ScatterOp::Add || c.params.op == ScatterOp::Multiply) {
    if (out.dtype == kFloat16) return combine_wide<Half>(ctx, c);
    if (out.dtype == kBFloat16) return combine_wide<BFloat16>(ctx, c);
  }
  Strides to_strides = out.stride_list(),
          from_strides = source.is_scalar ? Strides::filled(index.rank, 0) : source.stride_list();
  if (out.rank) to_strides[dim] = 0;
  int64_t split = 0;
  for (int64_t d = 1; d < index.rank; ++d)
    if (d != dim && (split == dim || index.sizes[d] > index.sizes[split])) split = d;
  const int64_t parts = index.rank && split != dim ? index.sizes[split] : 1, part_size = index.numel() / parts;
  for_all("scatter", out.dtype, [&]<class T>() {
    const T number = source.is_scalar ? cast<T>(source.scalar) : T{};
    const T* const values = source.is_scalar ? &number : source.as<T>();
    parallel_for(parts, std::max<int64_t>(1, kIndexGrain / part_size), [&](int64_t first, int64_t last) {
      Shape shape = index.shape();
      T* to = out.as<T>();
      const T* from = values;
      const int64_t* ids = index.as<int64_t>();
      if (parts > 1) {
        shape[split] = last - first;
        to += first * to_strides[split], from += first * from_strides[split], ids += first * index.strides[split];
      }
      const Walk<3> walk(shape, {to_strides.data(), index.strides, from_strides.data()});
      const int64_t to_step = walk.step(0), id_step = walk.step(1), from_step = walk.step(2);
      walk.run(0, walk.total, [&](int64_t, int64_t count, const std::array<int64_t, 3>& at) {
        for (int64_t i = 0; i < count; ++i) {
          T& slot = to[at[0] + i * to_step + ids[at[1] + i * id_step] * step];
          slot = combined(c.params.op, slot, from[at[2] + i * from_step]);
        }
      });
    });
  });
}

}  // namespace tapir::inline v0::cpu
