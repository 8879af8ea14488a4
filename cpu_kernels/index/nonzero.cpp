#include "../../core/dispatch.h"
#include "../../core/parallel.h"
#include "../kernels.h"
#include "../walk.h"

namespace tapir::inline v0::cpu {
namespace {

constexpr int64_t kChunk = 32768;  // elements, counted and written as one

template <class T> bool is_nonzero(T v) { return v != T{}; }
template <> bool is_nonzero(Half v) { return (v.bits & 0x7fff) != 0; }
template <> bool is_nonzero(BFloat16 v) { return (v.bits & 0x7fff) != 0; }

/// counts[c]: how many elements of chunk c are not 0.
void count_chunks(V x, int64_t chunks, int64_t* counts) {
  const Walk<1> walk(x.shape(), {x.strides});
  const int64_t step = walk.step(0);
  for_all("nonzero", x.dtype, [&]<class T>() {
    parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        int64_t total = 0;
        walk.run(c * kChunk, std::min(walk.total, (c + 1) * kChunk), [&](int64_t, int64_t n, const auto& at) {
          const T* const row = x.as<T>() + at[0];
          int32_t count = 0;  // of at most kChunk: narrow counters vectorise better
          if (step == 1)
            for (int64_t i = 0; i < n; ++i) count += is_nonzero(row[i]);
          else
            for (int64_t i = 0; i < n; ++i) count += is_nonzero(row[i * step]);
          total += count;
        });
        counts[c] = total;
      }
    });
  });
}

/// Writes the coordinates of the elements of [first, last) that are not 0; `row` is the first one's row in out.
template <class T> void write_coordinates(V out, V x, int64_t row, int64_t first, int64_t last) {
  const int64_t rank = x.rank, inner = rank ? x.sizes[rank - 1] : 1, step = rank ? x.strides[rank - 1] : 0;
  const int64_t row_stride = out.strides[0], column_stride = out.strides[1];
  int64_t at[kMaxRank] = {}, base = 0, rest = first / inner, column = first % inner;
  for (int64_t d = rank - 1; d-- > 0; rest /= x.sizes[d]) base += (at[d] = rest % x.sizes[d]) * x.strides[d];
  int64_t* to = out.as<int64_t>() + row * row_stride;
  for (;;) {
    const int64_t end = std::min(inner, column + last - first);
    first += end - column;
    for (; column < end; ++column) {
      if (!is_nonzero(x.as<T>()[base + column * step])) continue;
      for (int64_t d = 0; d + 1 < rank; ++d) to[d * column_stride] = at[d];
      if (rank) to[(rank - 1) * column_stride] = column;
      to += row_stride;
    }
    if (first >= last) return;
    column = 0;
    for (int64_t d = rank - 1; d-- > 0;) {
      base += x.strides[d];
      if (++at[d] < x.sizes[d]) break;
      base -= x.sizes[d] * x.strides[d];
      at[d] = 0;
    }
  }
}

}  // namespace

int64_t count_nonzero(Context& ctx, const entry::CountNonzero& c) {
  const int64_t chunks = (c.x.numel() + kChunk - 1) / kChunk;
  if (chunks == 0) return 0;
  int64_t* const counts = ctx.scratch_of<int64_t>(chunks);
  count_chunks(c.x, chunks, counts);
  int64_t total = 0;
  for (int64_t i = 0; i < chunks; ++i) total += counts[i];
  return total;
}

void nonzero(Context& ctx, const entry::Nonzero& call) {
  V out = call.out, x = call.x;
  const int64_t total = x.numel(), chunks = (total + kChunk - 1) / kChunk;
  if (chunks == 0 || out.numel() == 0) return;
  int64_t* const starts = ctx.scratch_of<int64_t>(chunks);
  count_chunks(x, chunks, starts);
  for (int64_t c = 0, sum = 0; c < chunks; ++c) sum += std::exchange(starts[c], sum);
  for_all("nonzero", x.dtype, [&]<class T>() {
    parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c)
        write_coordinates<T>(out, x, starts[c], c * kChunk, std::min(total, (c + 1) * kChunk));
    });
  });
}

}  // namespace tapir::inline v0::cpu
