#include <algorithm>
#include <cstring>

#include "../../core/dispatch.h"
#include "../../core/parallel.h"
#include "../convert.h"
#include "../kernels.h"
#include "../long_sums.h"
#include "../pack.h"
#include "../walk.h"
#include "places.h"

namespace tapir::inline v0::cpu {
namespace {

constexpr int64_t kGrain = 16384;  // elements
constexpr int64_t kSkip = INT64_MIN;

/// What index and index_put share. `dense` is out (index) or source (index_put): index shape, then rest. `table` is the
/// tensor whose first dimensions are indexed: K of them, then rest.
struct Plan {
  std::span<const TensorView> indices;
  int64_t index_rank, positions, rest;
  Shape index_shape;
  Walk<2> rows;  // of the rest: table, dense
  const TensorView& table;
  const int64_t* dense_strides;
  bool wrap;  // negative positions count from the end

  Plan(V table, std::span<const TensorView> indices, Shape index_shape, Shape rest_shape, const int64_t* dense_strides,
       bool wrap)
      : indices(indices), index_rank(index_shape.size()), positions(numel_of(index_shape)), rest(numel_of(rest_shape)),
        index_shape(index_shape), rows(rest_shape, {table.strides + indices.size(), dense_strides + index_rank}),
        table(table), dense_strides(dense_strides), wrap(wrap) {
    rows.by_memory();
  }
  bool empty() const { return positions == 0 || rest == 0; }

  /// Where in the table the rows of positions [first, last) begin; kSkip for those with a bad index, which are recorded.
  void table_offsets(Context& ctx, int64_t first, int64_t last, int64_t* to) const {
    std::fill(to, to + (last - first), 0);
    for (size_t k = 0; k < indices.size(); ++k) {
      const int64_t size = table.sizes[k], stride = table.strides[k], back = wrap ? -1 : 0;
      const Walk<1> walk(index_shape, {indices[k].strides});
      const int64_t* const ids = indices[k].as<int64_t>();
      walk.run(first, last, [&](int64_t position, int64_t count, const std::array<int64_t, 1>& at) {
        for (int64_t i = 0; i < count; ++i) {
          const int64_t value = ids[at[0] + i * walk.step(0)], id = value + (size & (value >> 63 & back));
          int64_t& slot = to[position - first + i];
          if (uint64_t(id) >= uint64_t(size)) [[unlikely]]
            ctx.bad_value(position + i, value, size), slot = kSkip;
          else if (slot != kSkip) slot += id * stride;
        }
      });
    }
  }
  void dense_offsets(int64_t first, int64_t last, int64_t* to) const {
    const Walk<1> walk(index_shape, {dense_strides});
    walk.run(first, last, [&](int64_t position, int64_t count, const std::array<int64_t, 1>& at) {
      for (int64_t i = 0; i < count; ++i) to[position - first + i] = at[0] + i * walk.step(0);
    });
  }
};

/// f(count, table offsets, dense offsets) for blocks of the good positions of [first, last), in order.
template <class F> void for_blocks(Context& ctx, const Plan& plan, int64_t first, int64_t last, F&& f) {
  constexpr int64_t kBlock = 64;
  int64_t in_table[kBlock], in_dense[kBlock];
  for (; first < last; first += kBlock) {
    const int64_t end = std::min(first + kBlock, last);
    plan.table_offsets(ctx, first, end, in_table);
    plan.dense_offsets(first, end, in_dense);
    int64_t count = 0;
    for (int64_t i = 0; i < end - first; ++i)
      if (in_table[i] != kSkip) in_table[count] = in_table[i], in_dense[count++] = in_dense[i];
    f(count, in_table, in_dense);
  }
}
/// f(table offset, dense offset) for each.
template <class F> void for_positions(Context& ctx, const Plan& plan, int64_t first, int64_t last, F&& f) {
  for_blocks(ctx, plan, first, last, [&](int64_t count, const int64_t* in_table, const int64_t* in_dense) {
    for (int64_t i = 0; i < count; ++i) f(in_table[i], in_dense[i]);
  });
}

template <class T, class Combine> void put(Context& ctx, const Plan& plan, T* table, const T* source, Combine combine) {
  // Rows may meet in one place, so positions go in order; what is split between threads is the rest.
  const Walk<2>& rows = plan.rows;
  if (plan.rest == 1)
    return for_positions(ctx, plan, 0, plan.positions,
                         [&](int64_t in_table, int64_t in_dense) { combine(table[in_table], source[in_dense]); });
  const int64_t grain = std::max<int64_t>(64, kGrain / std::max<int64_t>(1, plan.positions));
  parallel_for(plan.rest, grain, [&](int64_t first, int64_t last) {
    for_positions(ctx, plan, 0, plan.positions, [&](int64_t in_table, int64_t in_dense) {
      rows.run(first, last, [&](int64_t, int64_t count, const std::array<int64_t, 2>& at) {
        T* const to = table + in_table + at[0];
        const T* const from = source + in_dense + at[1];
        if (rows.step(0) == 1 && rows.step(1) == 1)
          for (int64_t i = 0; i < count; ++i) combine(to[i], from[i]);
        else
          for (int64_t i = 0; i < count; ++i) combine(to[i * rows.step(0)], from[i * rows.step(1)]);
      });
    });
  });
}

/// So many terms are added in T itself: those of 16 bits lose digits from the second addition on. See Note [Long sums].
template <class T> constexpr int64_t kFewTerms = is_half<T> ? 1 : kChain;
/// Rows of so many elements are worth looking for such sums, but those of 16 bits always are.
template <class T> constexpr int64_t kLongRow = is_half<T> ? 1 : 16;

/// put() that adds: places that are met more than kFewTerms times have their sums in double.
template <class T> void add_sums(Context& ctx, const Plan& plan, T* table, const T* source) {
  struct Row {
    int64_t place, in_dense;
  };
  Places places(ctx, plan.positions);
  Row* const row = ctx.scratch_of<Row>(plan.positions);
  int64_t rows = 0, sums = 0;
  for_positions(ctx, plan, 0, plan.positions, [&](int64_t in_table, int64_t in_dense) {
    row[rows++] = {places.meet(in_table), in_dense};
  });
  int64_t* const sum_of = ctx.scratch_of<int64_t>(places.size());  // -1: none
  for (int64_t p = 0; p < places.size(); ++p) sum_of[p] = places.times(p) > kFewTerms<T> ? sums++ : -1;
  double* const sum = ctx.scratch_of<double>(sums * plan.rest);
  const int64_t grain = std::max<int64_t>(64, kGrain / std::max<int64_t>(1, plan.positions));
  parallel_for(plan.rest, grain, [&](int64_t first, int64_t last) {
    const int64_t to_step = plan.rows.step(0), from_step = plan.rows.step(1);
    const auto for_sums = [&](auto&& move) {  // move(a sum, its place in the table) of each element
      for (int64_t p = 0; p < places.size(); ++p)
        if (sum_of[p] >= 0)
          plan.rows.run(first, last, [&](int64_t at, int64_t count, const std::array<int64_t, 2>& in) {
            double* const from = sum + sum_of[p] * plan.rest + at;
            for (int64_t i = 0; i < count; ++i) move(from[i], table[places.offset(p) + in[0] + i * to_step]);
          });
    };
    for_sums([](double& sum, T& place) { sum = double(place); });
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t p = row[r].place;
      plan.rows.run(first, last, [&](int64_t at, int64_t count, const std::array<int64_t, 2>& in) {
        const T* const from = source + row[r].in_dense + in[1];
        T* const to = table + places.offset(p) + in[0];
        if (sum_of[p] < 0) {
          for (int64_t i = 0; i < count; ++i) to[i * to_step] = added(to[i * to_step], from[i * from_step]);
          return;
        }
        double* const wide = sum + sum_of[p] * plan.rest + at;
        for (int64_t i = 0; i < count; ++i) wide[i] += double(from[i * from_step]);
      });
    }
    for_sums([](double& sum, T& place) { place = cast<T>(sum); });
  });
}

/// Short rows of 16 bits, in a copy of the table (kCopiedTable).
void add_in_copy(Context& ctx, const entry::IndexPut& c) {
  const TensorView sums = dense(ctx, c.out, kFloat64);
  index_put(ctx, {sums, packed(ctx, c.source, kFloat64), c.indices, c.params});
  copy(ctx, {c.out, sums});
}

}  // namespace

void index(Context& ctx, const entry::Index& c) {
  V out = c.out, x = c.x;
  const int64_t keys = int64_t(c.indices.size()), index_rank = out.rank - (x.rank - keys);
  const Shape shape = out.shape();
  const Plan plan(x, c.indices, Shape(std::span(shape.data(), size_t(index_rank))),
                  Shape(std::span(shape.data() + index_rank, size_t(out.rank - index_rank))), out.strides,
                  c.params.wrap);
  if (plan.empty()) return;
  const Walk<2>& rows = plan.rows;
  const int64_t grain = std::max<int64_t>(1, kGrain / plan.rest);
  for_size(out.dtype, [&]<class T>() {
    T* const to = out.as<T>();
    const T* const from = x.as<T>();
    parallel_for(plan.positions, grain, [&](int64_t first, int64_t last) {
      if (plan.rest == 1)
        return for_positions(ctx, plan, first, last, [&](int64_t in_x, int64_t in_out) { to[in_out] = from[in_x]; });
      if (rows.flat())
        return for_positions(ctx, plan, first, last, [&](int64_t in_x, int64_t in_out) {
          std::memcpy(to + in_out, from + in_x, size_t(plan.rest) * sizeof(T));
        });
      if (rows.step(0) == 1 && rows.step(1) == 1)
        return for_positions(ctx, plan, first, last, [&](int64_t in_x, int64_t in_out) {
          rows.run(0, plan.rest, [&](int64_t, int64_t count, const std::array<int64_t, 2>& at) {
            std::memcpy(to + in_out + at[1], from + in_x + at[0], size_t(count) * sizeof(T));
          });
        });
      // Across a block, which stays in the nearest cache: a row may touch a line with each of its elements.
      for_blocks(ctx, plan, first, last, [&](int64_t positions, const int64_t* in_x, const int64_t* in_out) {
        rows.run(0, plan.rest, [&](int64_t, int64_t count, const std::array<int64_t, 2>& at) {
          for (int64_t i = 0; i < count; ++i) {
            T* const out = to + at[1] + i * rows.step(1);
            const T* const row = from + at[0] + i * rows.step(0);
            for (int64_t p = 0; p < positions; ++p) out[in_out[p]] = row[in_x[p]];
          }
        });
      });
    });
  });
}

void index_put(Context& ctx, const entry::IndexPut& c) {
  V out = c.out, source = c.source;
  const int64_t keys = int64_t(c.indices.size()), rest_rank = out.rank - keys;
  const Shape shape = out.shape(), index_shape = c.indices.empty() ? Shape() : c.indices[0].shape();
  const Shape rest_shape(std::span(shape.data() + keys, size_t(rest_rank)));
  const Strides strides = source.is_scalar ? Strides::filled(index_shape.size() + rest_rank, 0) : source.stride_list();
  const Plan plan(out, c.indices, index_shape, rest_shape, strides.data(), c.params.wrap);
  if (plan.empty()) return;
  for_all("index_put", out.dtype, [&]<class T>() {
    const T number = source.is_scalar ? cast<T>(source.scalar) : T{};
    const T* const from = source.is_scalar ? &number : source.as<T>();
    if constexpr (is_half<T> || std::is_same_v<T, float>)
      if (c.params.accumulate && plan.positions > kFewTerms<T> && plan.rest >= kLongRow<T>)
        return plan.rest < kLongRow<float> && !source.is_scalar &&
                       out.numel() / kCopiedTable <= plan.positions * plan.rest
                   ? add_in_copy(ctx, c)
                   : add_sums<T>(ctx, plan, out.as<T>(), from);
    if (c.params.accumulate) put(ctx, plan, out.as<T>(), from, [](T& a, T b) { a = added(a, b); });
    else put(ctx, plan, out.as<T>(), from, [](T& a, T b) { a = b; });  // never reads what may be no bool yet
  });
}

}  // namespace tapir::inline v0::cpu
