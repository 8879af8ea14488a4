#include "../kernel.h"
#include "../launch.h"
#include "matmul.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

constexpr int kTile = 32, kThreads = 16;

/// A block makes tiles of 32 x 32, each thread 2 x 2 elements of one that lie 16 apart.
template <class T> __global__ void strided_product_kernel(blas::Product p, int64_t tiles_m, int64_t tiles_n) {
  using Sum = typename ProductSumOf<T>::type;
  __shared__ Sum a_tile[kTile][kTile + 1], b_tile[kTile][kTile + 1];
  const int ti = threadIdx.y, tj = threadIdx.x;
  for (int64_t tile = blockIdx.x; tile < tiles_m * tiles_n * p.batch; tile += gridDim.x) {
    const int64_t j0 = tile % tiles_n * kTile, i0 = tile / tiles_n % tiles_m * kTile, t = tile / tiles_n / tiles_m;
    const T* a = static_cast<const T*>(p.a.data) + t * p.a.batch;
    const T* b = static_cast<const T*>(p.b.data) + t * p.b.batch;
    Sum sums[2][2] = {};
    for (int64_t k0 = 0; k0 < p.k; k0 += kTile) {
      for (int r = ti; r < kTile; r += kThreads)
        for (int c = tj; c < kTile; c += kThreads) {
          const int64_t i = i0 + r, ka = k0 + c, kb = k0 + r, j = j0 + c;
          a_tile[r][c] = i < p.m && ka < p.k ? Sum(a[i * p.a.row + ka * p.a.column]) : Sum(0);
          b_tile[r][c] = kb < p.k && j < p.n ? Sum(b[kb * p.b.row + j * p.b.column]) : Sum(0);
        }
      __syncthreads();
      const int depth = p.k - k0 < kTile ? int(p.k - k0) : kTile;
      for (int k = 0; k < depth; ++k)
        for (int r = 0; r < 2; ++r)
          for (int c = 0; c < 2; ++c) sums[r][c] += a_tile[ti + r * kThreads][k] * b_tile[k][tj + c * kThreads];
      __syncthreads();
    }
    const Sum alpha = std::is_floating_point_v<Sum> ? Sum(p.alpha) : Sum(int64_t(p.alpha));
    const Sum beta = std::is_floating_point_v<Sum> ? Sum(p.beta) : Sum(int64_t(p.beta));
    for (int r = 0; r < 2; ++r)
      for (int c = 0; c < 2; ++c) {
        const int64_t i = i0 + ti + r * kThreads, j = j0 + tj + c * kThreads;
        if (i >= p.m || j >= p.n) continue;
        Sum v = alpha * sums[r][c];
        if (beta != Sum(0))
          v += beta * Sum(static_cast<const T*>(p.c.data)[t * p.c.batch + i * p.c.row + j * p.c.column]);
        T& out = static_cast<T*>(p.out.data)[t * p.out.batch + i * p.out.row + j * p.out.column];
        if constexpr (std::is_same_v<T, bool>) out = v != 0;
        else out = T(v);
      }
  }
}

}  // namespace

void strided_product(Context& ctx, const blas::Product& p) {
  const int64_t tiles_m = (p.m + kTile - 1) / kTile, tiles_n = (p.n + kTile - 1) / kTile;
  const Grid grid{grid_of(tiles_m * tiles_n * p.batch, 1).blocks, dim3(kThreads, kThreads)};
  const auto run = [&](auto kernel) { launch(ctx, "matmul", grid, kernel, p, tiles_m, tiles_n); };
  if (p.dtype == kBool) return run(strided_product_kernel<bool>);
  if (p.dtype == kFloat32) return run(strided_product_kernel<float>);
  if (p.dtype == kFloat64) return run(strided_product_kernel<double>);
  if (p.dtype == kFloat16) return run(strided_product_kernel<Half>);
  if (p.dtype == kBFloat16) return run(strided_product_kernel<BFloat16>);
  switch (size_of(p.dtype)) {
    case 1: return run(strided_product_kernel<uint8_t>);
    case 2: return run(strided_product_kernel<uint16_t>);
    case 4: return run(strided_product_kernel<uint32_t>);
    default: return run(strided_product_kernel<uint64_t>);
  }
}

}  // namespace tapir::inline v0::cuda_kernels
