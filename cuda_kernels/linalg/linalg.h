#pragma once
#include <span>

#include "../vendor/solver.h"

namespace tapir::inline v0::cuda_kernels {

using Views = std::span<const TensorView>;

/// Scratch memory of a part of an entry's work: given back, in the stream's order, when it ends.
struct PartContext : Context {
  explicit PartContext(const Context& whole) {
    device = whole.device, deterministic = whole.deterministic, stream = whole.stream, table = whole.table;
  }
};

/// Where all dimensions but the last two are batches.
int64_t batch_of(V matrices);
/// Copies of `like`'s matrices, or room for as many of the given size, column by column.
solver::Matrices columns_of(Context& ctx, V like);
solver::Matrices room_for(Context& ctx, V like, int64_t rows, int64_t columns);
/// The batch as a view with `like`'s batch dimensions; `transposed` swaps rows and columns.
TensorView view_of(const solver::Matrices& m, V like, bool transposed = false);

// linalg.cu
/// out's rows are x's: out[order[i]] = x[i] where `to` is set, else out[i] = x[order[i]]. order: int32 (batch, rows).
void permute_rows(Context& ctx, const solver::Matrices& out, const solver::Matrices& x, const int* order, bool to);
/// The other triangle becomes 0.
void keep_triangle(Context& ctx, const solver::Matrices& m, bool upper);
/// flags[i] = 1 where matrix i holds an element that is no finite number; triangle: 0 all, 1 the upper, -1 the lower one.
void find_not_finite(Context& ctx, int* flags, const solver::Matrices& m, int triangle);
/// norms[i]: the largest column sum of |matrix i|, NaN where there is one.
void column_norms(Context& ctx, double* norms, const solver::Matrices& m);

// linalg_exp.cpp
void matrix_exp(Context& ctx, V y, V a);

template <class T> T* upload(Context& ctx, const T* values, int64_t n) {
  T* const there = ctx.scratch_of<T>(n);
  copy_bytes(there, ctx.device, values, kCPU, n * int64_t(sizeof(T)), ctx.stream);
  return there;
}
template <class T> void download(Context& ctx, T* to, const T* from, int64_t n) {
  copy_bytes(to, kCPU, from, ctx.device, n * int64_t(sizeof(T)), ctx.stream);
  synchronize(ctx.device, ctx.stream);
}

}  // namespace tapir::inline v0::cuda_kernels
