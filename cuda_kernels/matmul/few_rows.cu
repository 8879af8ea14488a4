#include "few_rows.h"

#include "../../core/math.h"
#include "matmul.h"

// Note [Products of few rows]
// With up to 8 rows every number of b is used a few times only: what counts is how fast b is read, and how soon after the launch. Where k is
// contiguous in b, a warp makes a column, and its lanes take packs of 16 bytes along k. Where n is, a block makes 16 or 32 columns: threads
// side by side take packs of one row of b, all others the rows below. Each thread asks for several packs before it uses the first one. Sums are
// in float32 and in a fixed order. The kernels are early ones (Note [Early launches]): b, a weight, comes near while the kernel before ends.
// Where the rows are a norm's, each block makes them for itself, in shared memory: a launch of its own costs more than that. There are not
// many blocks then, so that they are made few times.
namespace tapir::inline v0::cuda_kernels {
namespace {

constexpr int kMostRows = kMostFewRows, kThreads = kFewRowsThreads;
static_assert(kMostMade + kThreads / 32 * kMostRows * 32 * 4 + 512 <= 48 << 10);
constexpr int kAhead = 4;  // packs that a thread asks for at once, or twice as many

template <class T> __device__ void finish(const blas::Product& p, int i, int64_t j, float sum) {
  float v = float(p.alpha) * sum;
  if (p.beta != 0) v += float(p.beta) * widen(static_cast<const T*>(p.c.data)[i * p.c.row + j * p.c.column]);
  if (p.gelu != blas::Gelu::None) {  // of what the product alone would leave
    const T rounded = narrow<T>(v);
    T* const before = static_cast<T*>(p.before.data) + i * p.before.row + j * p.before.column;
    if (p.gelu == blas::Gelu::Forward && p.before.data) *before = rounded;
    v = p.gelu == blas::Gelu::Forward ? math::gelu_tanh(widen(rounded))
                                      : widen(rounded) * math::gelu_tanh_slope(widen(*before));
  }
  static_cast<T*>(p.out.data)[i * p.out.row + j * p.out.column] = narrow<T>(v);
}
/// The rows of a product.
template <class T> struct RowsOfA {
  const T* data;
  int64_t count, row, column;
  /// Row i, or the last one.
  __device__ const T* operator[](int i) const { return data + (i < count ? i : count - 1) * row; }
};

/// use(i, the pack at from + i stride) for i = first, first + step, ... below end. A packs are asked for before the first is used.
template <int A, int P, class T, class Use> __device__ __forceinline__ void each_pack(const T* from, int64_t stride,
                                                                                      int64_t first, int64_t end,
                                                                                      int64_t step, Use&& use) {
  for (int64_t at = first; at < end; at += step * A) {
    Pack<T, P> packs[A];
#pragma unroll
    for (int u = 0; u < A; ++u)
      if (at + u * step < end) packs[u] = *reinterpret_cast<const Pack<T, P>*>(from + (at + u * step) * stride);
#pragma unroll
    for (int u = 0; u < A; ++u)
      if (at + u * step < end) use(at + u * step, packs[u]);
  }
}

/// The rows of a, where they lie or made as a norm's.
template <class T> __device__ RowsOfA<T> rows_of(const blas::Product& p, const NormedRows<T>& rows) {
  if (rows.x) return {rows.make(p.m, p.k), p.m, p.k, 1};
  return {static_cast<const T*>(p.a.data), p.m, p.a.row, p.a.column};
}

/// k is contiguous in b. packs: rows of a can be read as b's columns are.
template <class T, int M, int P> __global__ void __launch_bounds__(kThreads, 2)
    few_rows_along_k(blas::Product p, NormedRows<T> rows, unsigned ahead, bool packs) {
  const int lane = threadIdx.x % 32;
  const int64_t first = int64_t(blockIdx.x) * (kThreads / 32), left = p.n - first;
  begin_early(ahead, static_cast<const T*>(p.b.data) + first * p.b.column, p.b.column,
              left < kThreads / 32 ? left : kThreads / 32, p.k);
  const RowsOfA<T> a = rows_of(p, rows);
  const int64_t warps = int64_t(gridDim.x) * (kThreads / 32), whole = p.k / P * P;
  for (int64_t j = int64_t(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32; j < p.n; j += warps) {
    const T* const b = static_cast<const T*>(p.b.data) + j * p.b.column;
    float sums[M] = {};
    const auto add = [&](int i, int64_t k, float w) { sums[i] += w * widen(a[i][k * a.column]); };
    each_pack<kAhead, P>(b, 1, int64_t(lane) * P, whole, 32 * P, [&](int64_t k, const Pack<T, P>& w) {
#pragma unroll
      for (int i = 0; i < M; ++i) {
        if (packs) {
          const auto x = *reinterpret_cast<const Pack<T, P>*>(a[i] + k);
#pragma unroll
          for (int l = 0; l < P; ++l) sums[i] += widen(w.of[l]) * widen(x.of[l]);
        } else {
#pragma unroll
          for (int l = 0; l < P; ++l) add(i, k + l, widen(w.of[l]));
        }
      }
    });
    for (int64_t k = whole + lane; k < p.k; k += 32)
      for (int i = 0; i < M; ++i) add(i, k, widen(b[k]));
    float mine = 0;  // row `lane`
#pragma unroll
    for (int i = 0; i < M; ++i) {
      const float sum = warp_fold(sums[i], Plus{});
      if (lane == i) mine = sum;
    }
    if (lane < M && lane < p.m) finish<T>(p, lane, j, mine);
  }
}

/// n is contiguous in b. A block makes N columns at a time.
template <class T, int M, int P, int N> __global__ void __launch_bounds__(kThreads, 2)
    few_rows_along_n(blas::Product p, NormedRows<T> rows, unsigned ahead) {
  constexpr int kLanes = N / P, kGroups = kThreads / kLanes;
  __shared__ float shared[kThreads / 32][M][N];
  const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
  const int64_t first = int64_t(blockIdx.x) * N, left = p.n - first;
  begin_early(ahead, static_cast<const T*>(p.b.data) + first, p.b.row, p.k, left < N ? left : N);
  const RowsOfA<T> a = rows_of(p, rows);
  for (int64_t j0 = int64_t(blockIdx.x) * N; j0 < p.n; j0 += int64_t(gridDim.x) * N) {
    const int64_t j = j0 + lane * P, end = j < p.n ? p.k : 0;
    const T* const b = static_cast<const T*>(p.b.data) + j;
    float sums[M][P] = {};
    each_pack<M == 1 ? 2 * kAhead : kAhead, P>(b, p.b.row, group, end, kGroups, [&](int64_t k, const Pack<T, P>& w) {
#pragma unroll
      for (int i = 0; i < M; ++i) {
        const float x = widen(a[i][k * a.column]);
#pragma unroll
        for (int l = 0; l < P; ++l) sums[i][l] += x * widen(w.of[l]);
      }
    });
#pragma unroll
    for (int i = 0; i < M; ++i)
#pragma unroll
      for (int l = 0; l < P; ++l) {
        float sum = sums[i][l];
        for (int d = kLanes; d < 32; d *= 2) sum += shuffle_xor(sum, d);
        if (threadIdx.x % 32 < kLanes) shared[threadIdx.x / 32][i][lane * P + l] = sum;
      }
    __syncthreads();
    for (int at = threadIdx.x; at < M * N; at += kThreads) {
      const int i = at / N, l = at % N;
      float sum = 0;
      for (int warp = 0; warp < kThreads / 32; ++warp) sum += shared[warp][i][l];
      if (i < p.m && j0 + l < p.n) finish<T>(p, i, j0 + l, sum);
    }
    __syncthreads();
  }
}

/// Can vectors, `step` elements apart, be read by packs of P?
template <int P> bool in_packs(const void* data, int64_t step) { return step % P == 0 && blas::is_aligned(data); }

template <class T, int M> void run_rows(Context& ctx, const blas::Product& p, const NormedRows<T>& rows) {
  constexpr int P = kPackSize<T>;
  const size_t shared = rows.x ? rows.bytes(p.m, p.k) : 0;
  const auto run = [&](int64_t columns, auto kernel, auto... more) {  // so many to a block
    Grid grid = early(ctx, Grid{grid_of((p.n + columns - 1) / columns, 1).blocks, dim3(kThreads), shared});
    if (rows.x) grid.blocks.x = std::min(grid.blocks.x, most_blocks(ctx.device));
    const auto ahead = unsigned(grid.early ? kMostAhead / (columns * p.k * int64_t(sizeof(T))) + 1 : 0);
    launch(ctx, "matmul", grid, kernel, p, rows, ahead, more...);
  };
  if (p.b.column == 1) {
    if (!in_packs<P>(p.b.data, p.b.row) || p.n % P != 0) return run(32, few_rows_along_n<T, M, 1, 32>);
    constexpr int64_t kNarrow = 1536;  // fewer columns to a block, so that enough blocks are there
    if (p.n <= kNarrow) return run(16, few_rows_along_n<T, M, P, 16>);
    return run(32, few_rows_along_n<T, M, P, 32>);
  }
  const bool packs =
      rows.x ? p.m == 1 || p.k % P == 0 : p.a.column == 1 && in_packs<P>(p.a.data, p.m == 1 ? 0 : p.a.row);
  if (in_packs<P>(p.b.data, p.b.column)) return run(kThreads / 32, few_rows_along_k<T, M, P>, packs);
  run(kThreads / 32, few_rows_along_k<T, M, 1>, packs);
}
template <class T> void run_dtype(Context& ctx, const blas::Product& p, const NormedRows<T>& rows = {}) {
  if (p.m == 1) return run_rows<T, 1>(ctx, p, rows);
  if (p.m <= 4) return run_rows<T, 4>(ctx, p, rows);
  run_rows<T, kMostRows>(ctx, p, rows);
}

constexpr int64_t kLeastColumns = 32,
                  kManyColumns = 4096;  // a block sums all of k, so that long sums need many of them
bool suits(const blas::Product& p) {
  const bool along = p.b.column == 1 || p.b.row == 1, few_blocks = p.n < kManyColumns && p.k > kManyColumns;
  return p.batch == 1 && p.m <= kMostRows && p.n >= kLeastColumns && !few_blocks && along && is_floating(p.dtype) &&
         p.dtype != kFloat64;
}

}  // namespace

bool few_rows_product(Context& ctx, blas::Product p) {
  if (p.m > p.n) transpose(p);
  if (!suits(p)) return false;
  if (p.dtype == kFloat32) run_dtype<float>(ctx, p);
  else if (p.dtype == kFloat16) run_dtype<Half>(ctx, p);
  else run_dtype<BFloat16>(ctx, p);
  return true;
}

bool few_rows_norm_product(Context& ctx, const entry::NormMatmul& c) {
  blas::Product p;
  p.dtype = c.out.dtype, p.m = c.out.sizes[0], p.n = c.out.sizes[1], p.k = c.x.sizes[1];
  p.b = strided_matrix(c.b), p.out = strided_matrix(c.out);
  if (c.bias.defined()) p.c = strided_matrix(c.bias.expand(c.out.shape())), p.beta = 1;
  if (c.params.finish == MatmulFinish::GeluTanh) p.gelu = blas::Gelu::Forward;
  if (!suits(p) || c.params.finish == MatmulFinish::Relu) return false;
  const auto run = [&]<class T>() {
    const NormedRows<T> rows = normed_rows<T>(c);
    if (rows.x) run_dtype<T>(ctx, p, rows);
    return rows.x != nullptr;
  };
  if (p.dtype == kFloat32) return run.template operator()<float>();
  if (p.dtype == kFloat16) return run.template operator()<Half>();
  return run.template operator()<BFloat16>();
}

}  // namespace tapir::inline v0::cuda_kernels
