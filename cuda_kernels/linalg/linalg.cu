#include <cmath>

#include "../kernel.h"
#include "../launch.h"
#include "linalg.h"

// What decompositions need beside the library: rows in another order, triangles, checks and norms.
namespace tapir::inline v0::cuda_kernels {
namespace {

using solver::Matrices;

template <class T> __global__ void permute_rows_kernel(T* out, const T* x, const int* order, int64_t rows,
                                                       int64_t columns, int64_t n, int to) {
  for (const int64_t i : grid_stride(n)) {
    const int64_t row = i % rows, first = i - row, batch = i / (rows * columns);
    const int64_t other = first + order[batch * rows + row];
    if (to) out[other] = x[i];
    else out[i] = x[other];
  }
}

template <class T> __global__ void keep_triangle_kernel(T* x, int64_t rows, int64_t columns, int64_t n, int upper) {
  for (const int64_t i : grid_stride(n)) {
    const int64_t row = i % rows, column = i / rows % columns;
    if (upper ? row > column : row < column) x[i] = T(0);
  }
}

template <class T> __global__ void find_not_finite_kernel(int* flags, const T* x, int64_t rows, int64_t columns,
                                                          int64_t batch, int triangle) {
  __shared__ int shared[32];
  for (int64_t b = blockIdx.x; b < batch; b += gridDim.x) {
    int found = 0;
    for (int64_t i = threadIdx.x; i < rows * columns; i += blockDim.x) {
      const int64_t row = i % rows, column = i / rows;
      if (triangle > 0 ? row > column : triangle < 0 && row < column) continue;
      const T v = x[b * rows * columns + i];
      if (!(v - v == T(0))) found = 1;
    }
    found = block_fold(found, 0, shared, Larger());
    if (threadIdx.x == 0) flags[b] = found;
  }
}

template <class T>
__global__ void column_norms_kernel(double* norms, const T* x, int64_t rows, int64_t columns, int64_t batch) {
  __shared__ double shared[32];
  for (int64_t b = blockIdx.x; b < batch; b += gridDim.x) {
    double largest = 0;
    for (int64_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (int64_t i = threadIdx.x; i < rows; i += blockDim.x) {
        const double v = double(x[(b * columns + j) * rows + i]);
        sum += v < 0 ? -v : v;
      }
      largest = Larger()(block_fold(sum, 0.0, shared, Plus()), largest);
    }
    if (threadIdx.x == 0) norms[b] = largest;
  }
}

template <class F> void for_type(DType dtype, F&& f) {
  if (dtype == kFloat64) f(double());
  else f(float());
}
Grid block_each(int64_t n) { return {grid_of(n, 1).blocks, dim3(128)}; }

}  // namespace

void permute_rows(Context& ctx, const Matrices& out, const Matrices& x, const int* order, bool to) {
  const int64_t n = x.batch * x.rows * x.columns;
  for_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(ctx, "linalg", grid_of(n), permute_rows_kernel<T>, static_cast<T*>(out.data), static_cast<const T*>(x.data),
           order, x.rows, x.columns, n, int(to));
  });
}

void keep_triangle(Context& ctx, const Matrices& m, bool upper) {
  const int64_t n = m.batch * m.rows * m.columns;
  for_type(m.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(ctx, "linalg", grid_of(n), keep_triangle_kernel<T>, static_cast<T*>(m.data), m.rows, m.columns, n,
           int(upper));
  });
}

void find_not_finite(Context& ctx, int* flags, const Matrices& m, int triangle) {
  for_type(m.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(ctx, "linalg", block_each(m.batch), find_not_finite_kernel<T>, flags, static_cast<const T*>(m.data), m.rows,
           m.columns, m.batch, triangle);
  });
}

void column_norms(Context& ctx, double* norms, const Matrices& m) {
  for_type(m.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(ctx, "linalg", block_each(m.batch), column_norms_kernel<T>, norms, static_cast<const T*>(m.data), m.rows,
           m.columns, m.batch);
  });
}

}  // namespace tapir::inline v0::cuda_kernels
