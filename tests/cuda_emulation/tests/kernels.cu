// Right kernels of the kinds that a framework is made of. nvcc and g++ compile this file unchanged.
#include <cuda_pipeline_primitives.h>
#include <warp_matrix.h>

#include "test_kernels.h"

namespace tapir::inline v0::cuda_kernels {
extern __shared__ unsigned char dynamic_shared_bytes[];
}
namespace emulation_tests {
namespace {

template <class T> __device__ T* dynamic_shared() {
  return reinterpret_cast<T*>(tapir::cuda_kernels::dynamic_shared_bytes);
}
struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Max {
  __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};
/// Folds `v` over the block; every thread gets the result. Called twice in a row it needs the last barrier.
template <class Op> __device__ float block_fold(float v, float identity, Op op) {
  __shared__ float partial[32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = (blockDim.x + 31) / 32;
  for (int d = 16; d > 0; d /= 2) v = op(v, __shfl_xor_sync(~0u, v, d));
  if (lane == 0) partial[warp] = v;
  __syncthreads();
  v = lane < warps ? partial[lane] : identity;
  for (int d = 16; d > 0; d /= 2) v = op(v, __shfl_xor_sync(~0u, v, d));
  __syncthreads();
  return v;
}
__device__ long first_element() { return blockIdx.x * long(blockDim.x) + threadIdx.x; }
__device__ long all_threads() { return gridDim.x * long(blockDim.x); }
dim3 blocks_for(long n, int threads) { return dim3(unsigned((n + threads - 1) / threads)); }
bool is_vector(const Matrix& m) {
  return m.col_stride == 1 && m.row_stride == m.cols && reinterpret_cast<size_t>(m.data) % 16 == 0;
}

__global__ void scale_kernel(const float* x, float* y, long n) {
  const long i = first_element();
  if (i < n) y[i] = 2 * x[i];
}
__global__ void add_vector_kernel(const float4* a, const float4* b, float4* y, long n4) {
  for (long i = first_element(); i < n4; i += all_threads()) {
    const float4 p = a[i], q = b[i];
    y[i] = make_float4(p.x + q.x, p.y + q.y, p.z + q.z, p.w + q.w);
  }
}
__global__ void add_kernel(Matrix a, Matrix b, Matrix y) {
  for (long i = first_element(); i < y.rows * y.cols; i += all_threads())
    y.at(i / y.cols, i % y.cols) = a.at(i / y.cols, i % y.cols) + b.at(i / y.cols, i % y.cols);
}
__global__ void row_sum_kernel(const float* x, float* y, long cols) {
  float sum = 0;
  for (long i = threadIdx.x; i < cols; i += blockDim.x) sum += x[blockIdx.x * cols + i];
  sum = block_fold(sum, 0, Add{});
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}
__global__ void softmax_kernel(const float* x, float* y, long cols) {  // one block a row, the row kept in shared memory
  float* row = dynamic_shared<float>();
  float top = -INFINITY, sum = 0;
  for (long i = threadIdx.x; i < cols; i += blockDim.x) top = max(top, row[i] = x[blockIdx.x * cols + i]);
  top = block_fold(top, -INFINITY, Max{});
  for (long i = threadIdx.x; i < cols; i += blockDim.x) sum += row[i] = expf(row[i] - top);
  sum = block_fold(sum, 0, Add{});
  for (long i = threadIdx.x; i < cols; i += blockDim.x) y[blockIdx.x * cols + i] = row[i] / sum;
}
__global__ void histogram_kernel(const int* x, int* bins, long n) {  // 256 bins, counted per block first
  __shared__ int local[256];
  local[threadIdx.x] = 0;
  __syncthreads();
  for (long i = first_element(); i < n; i += all_threads()) atomicAdd(&local[x[i] & 255], 1);
  __syncthreads();
  atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}
constexpr int kTile = 16;
__global__ void matmul_kernel(Matrix a, Matrix b, Matrix y) {
  __shared__ float ta[kTile][kTile + 1], tb[kTile][kTile + 1];
  const long row = blockIdx.y * kTile + threadIdx.y, col = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (long k = 0; k < a.cols; k += kTile) {
    ta[threadIdx.y][threadIdx.x] = row < a.rows && k + threadIdx.x < a.cols ? a.at(row, k + threadIdx.x) : 0;
    tb[threadIdx.y][threadIdx.x] = k + threadIdx.y < b.rows && col < b.cols ? b.at(k + threadIdx.y, col) : 0;
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += ta[threadIdx.y][i] * tb[i][threadIdx.x];
    __syncthreads();
  }
  if (row < y.rows && col < y.cols) y.at(row, col) = sum;
}
__global__ void reverse_kernel(float* y) {
  __shared__ float tile[64];
  tile[threadIdx.x] = y[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[63 - threadIdx.x];
}
__global__ void last_block_sum_kernel(const float* x, float* partial, unsigned* arrived, float* y, long n) {
  __shared__ bool last;
  float sum = 0;
  for (long i = first_element(); i < n; i += all_threads()) sum += x[i];
  sum = block_fold(sum, 0, Add{});
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = sum;
    __threadfence();
    last = atomicAdd(arrived, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  sum = threadIdx.x < gridDim.x ? partial[threadIdx.x] : 0;
  sum = block_fold(sum, 0, Add{});
  if (threadIdx.x == 0) *y = sum;
}
template <class T> __global__ void warp_product_kernel(const unsigned short* a, const unsigned short* b, float* d) {
  const int g = int(threadIdx.x) / 4, t = int(threadIdx.x) % 4;
  const auto pair = [](unsigned short low, unsigned short high) { return uint32_t(low) | uint32_t(high) << 16; };
  uint32_t left[4], right[2];
  for (int i = 0; i < 4; ++i) {  // PTX ISA, m16n8k16: element 2 i of a has row g or g + 8, column 2 t or 2 t + 8
    const unsigned short* const at = a + (g + i % 2 * 8) * 16 + 2 * t + i / 2 * 8;
    left[i] = pair(at[0], at[1]);
  }
  for (int i = 0; i < 2; ++i) {
    const unsigned short* const at = b + (2 * t + i * 8) * 8 + g;
    right[i] = pair(at[0], at[8]);
  }
  float* const to[2] = {d + g * 8 + 2 * t, d + (g + 8) * 8 + 2 * t};
  float sums[4] = {to[0][0], to[0][1], to[1][0], to[1][1]};
  tapir::cuda_kernels::multiply_add<T>(sums, left, right[0], right[1]);
  to[0][0] = sums[0], to[0][1] = sums[1], to[1][0] = sums[2], to[1][1] = sums[3];
}
/// rounds: numbers become those of TF32 first.
__global__ void warp_tf32_product_kernel(const float* a, const float* b, float* d, bool rounds) {
  const int g = int(threadIdx.x) / 4, t = int(threadIdx.x) % 4;
  const auto word = [&](float x) { return rounds ? tapir::cuda_kernels::tf32_of(x) : __float_as_uint(x); };
  uint32_t left[4], right[2];
  // PTX ISA, m16n8k8: element i of a has row g or g + 8, column t or t + 4
  for (int i = 0; i < 4; ++i) left[i] = word(a[(g + i % 2 * 8) * 8 + t + i / 2 * 4]);
  for (int i = 0; i < 2; ++i) right[i] = word(b[(t + i * 4) * 8 + g]);
  float* const to[2] = {d + g * 8 + 2 * t, d + (g + 8) * 8 + 2 * t};
  float sums[4] = {to[0][0], to[0][1], to[1][0], to[1][1]};
  tapir::cuda_kernels::multiply_add<tapir::cuda_kernels::Tf32>(sums, left, right[0], right[1]);
  to[0][0] = sums[0], to[0][1] = sums[1], to[1][0] = sums[2], to[1][1] = sums[3];
}
__global__ void warp_int_product_kernel(const signed char* a, const signed char* b, int* d) {
  const int g = int(threadIdx.x) / 4, t = int(threadIdx.x) % 4;
  const auto four = [](const signed char* at, int step) {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word |= uint32_t(uint8_t(at[i * step])) << 8 * i;
    return word;
  };
  uint32_t left[4], right[2];
  // PTX ISA, m16n8k32: element 4 i of a has row g or g + 8, column 4 t or 4 t + 16
  for (int i = 0; i < 4; ++i) left[i] = four(a + (g + i % 2 * 8) * 32 + 4 * t + i / 2 * 16, 1);
  for (int i = 0; i < 2; ++i) right[i] = four(b + (4 * t + i * 16) * 8 + g, 8);
  int* const to[2] = {d + g * 8 + 2 * t, d + (g + 8) * 8 + 2 * t};
  int sums[4] = {to[0][0], to[0][1], to[1][0], to[1][1]};
  tapir::cuda_kernels::multiply_add(sums, left, right[0], right[1]);
  to[0][0] = sums[0], to[0][1] = sums[1], to[1][0] = sums[2], to[1][1] = sums[3];
}
__global__ void warp_matrices_kernel(const unsigned short* rows, unsigned* words) {
  unsigned short* const tile = dynamic_shared<unsigned short>();
  const int lane = int(threadIdx.x);
  __pipeline_memcpy_async(tile + 8 * lane, rows + 8 * lane, 16, lane == 31 ? 8 : 0);  // the last row ends with zeros
  __pipeline_commit();
  __pipeline_commit();  // an empty group
  __pipeline_wait_prior(1);
  __syncwarp();
  uint32_t plain[4], turned[4];
  tapir::cuda_kernels::load_matrices<false>(plain, tile + 8 * lane);
  tapir::cuda_kernels::load_matrices<true>(turned, tile + 8 * lane);
  for (int m = 0; m < 4; ++m) words[m * 32 + lane] = plain[m], words[(4 + m) * 32 + lane] = turned[m];
}
__global__ void warp_operations_kernel(long long* out) {
  const int lane = int(threadIdx.x);
  long long* mine = out + lane * kWarpResults;
  mine[0] = __shfl_sync(~0u, lane * 10, 5);
  mine[1] = __shfl_sync(~0u, lane, 2, 8);
  mine[2] = __shfl_up_sync(~0u, lane, 3);
  mine[3] = __shfl_down_sync(~0u, lane, 3, 16);
  mine[4] = __shfl_xor_sync(~0u, lane, 5);
  mine[5] = __shfl_sync(~0u, (1ll << 40) + lane, 7);
  mine[6] = (long long)(__shfl_xor_sync(~0u, 0.5 * lane, 1) * 2);
  mine[7] = __ballot_sync(~0u, lane % 3 == 0);
  mine[8] = __any_sync(~0u, lane == 31) * 2 + __any_sync(~0u, lane > 31);
  mine[9] = __all_sync(~0u, lane < 32) * 2 + __all_sync(~0u, lane < 31);
  mine[10] = __match_any_sync(~0u, lane / 4);
  mine[11] = __reduce_add_sync(~0u, -lane);
  mine[12] = __reduce_max_sync(~0u, unsigned(lane * 7 % 32));
  mine[13] = __reduce_min_sync(~0u, lane - 20);
  if (lane < 16) mine[14] = __shfl_xor_sync(0xffffu, lane, 1);  // halves of a warp may go different ways
  else mine[14] = __shfl_xor_sync(0xffff0000u, lane, 2);
  mine[15] =
      __popc(0xf0f0u) + __ffs(8) + __clz(1) + __clzll(1) + int(__umulhi(1u << 31, 6)) + int(__umul64hi(1ull << 63, 6));
}
__global__ void block_votes_kernel(int* out) {
  const int i = int(threadIdx.x);
  const int all = __syncthreads_and(i < 95), any = __syncthreads_or(i == 64), count = __syncthreads_count(i % 2);
  if (i == 17) out[0] = all, out[1] = any, out[2] = count;
}
__global__ void atomics_kernel(unsigned* out) {
  const unsigned i = threadIdx.x;
  atomicAdd(&out[0], 2u), atomicMax(&out[1], i), atomicOr(&out[2], 1u << i % 32), atomicXor(&out[3], i);
  atomicAdd(reinterpret_cast<float*>(&out[4]), 0.5f);
  unsigned old = *static_cast<volatile unsigned*>(out + 6), seen;  // a compare-and-swap loop
  do seen = old, old = atomicCAS(&out[6], seen, seen + 3);
  while (old != seen);
  atomicMin(reinterpret_cast<int*>(&out[7]), -int(i));
}
__global__ void large_shared_kernel(float* y) {
  float* row = dynamic_shared<float>();
  for (int i = int(threadIdx.x); i < 25600; i += 128) row[i] = float(i);
  __syncthreads();
  y[threadIdx.x] = row[25599 - threadIdx.x];
}
__global__ void nothing_kernel() {}
template <int N> __global__ void __launch_bounds__(N) bounded_kernel() {}
__global__ void where_kernel(uint3* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * (blockDim.x * blockDim.y * blockDim.z) + thread] =
      make_uint3(blockIdx.x * 100 + threadIdx.x, blockIdx.y * 100 + threadIdx.y, blockIdx.z * 100 + threadIdx.z);
}
}  // namespace

cudaError_t scale(const float* x, float* y, long n, cudaStream_t s) {
  return start(scale_kernel, blocks_for(n, 64), 64, 0, s, x, y, n);
}
cudaError_t add(Matrix a, Matrix b, Matrix y, cudaStream_t s) {
  const long n = y.rows * y.cols;
  if (n % 4 || !is_vector(a) || !is_vector(b) || !is_vector(y))
    return start(add_kernel, blocks_for(n, 256), 256, 0, s, a, b, y);
  return start(add_vector_kernel, blocks_for(n / 4, 256), 256, 0, s, reinterpret_cast<const float4*>(a.data),
               reinterpret_cast<const float4*>(b.data), reinterpret_cast<float4*>(y.data), n / 4);
}
cudaError_t row_sum(const float* x, float* y, long rows, long cols, cudaStream_t s) {
  return start(row_sum_kernel, unsigned(rows), 256, 0, s, x, y, cols);
}
cudaError_t softmax(const float* x, float* y, long rows, long cols, cudaStream_t s) {
  return start(softmax_kernel, unsigned(rows), 128, cols * sizeof(float), s, x, y, cols);
}
cudaError_t histogram(const int* x, int* bins, long n, cudaStream_t s) {
  return start(histogram_kernel, 8, 256, 0, s, x, bins, n);
}
cudaError_t matmul(Matrix a, Matrix b, Matrix y, cudaStream_t s) {
  const dim3 grid(unsigned((y.cols + kTile - 1) / kTile), unsigned((y.rows + kTile - 1) / kTile));
  return start(matmul_kernel, grid, dim3(kTile, kTile), 0, s, a, b, y);
}
cudaError_t reverse(float* y, cudaStream_t s) { return start(reverse_kernel, 1, 64, 0, s, y); }
cudaError_t last_block_sum(const float* x, float* partial, unsigned* arrived, float* y, long n, cudaStream_t s) {
  return start(last_block_sum_kernel, 16, 64, 0, s, x, partial, arrived, y, n);
}
cudaError_t warp_operations(long long* out, cudaStream_t s) { return start(warp_operations_kernel, 1, 32, 0, s, out); }
cudaError_t warp_tf32_product(const float* a, const float* b, float* d, bool rounds, cudaStream_t s) {
  return start(warp_tf32_product_kernel, 1, 32, 0, s, a, b, d, rounds);
}
cudaError_t warp_product(const unsigned short* a, const unsigned short* b, float* d, bool half, cudaStream_t s) {
  return start(half ? warp_product_kernel<tapir::Half> : warp_product_kernel<tapir::BFloat16>, 1, 32, 0, s, a, b, d);
}
cudaError_t warp_int_product(const signed char* a, const signed char* b, int* d, cudaStream_t s) {
  return start(warp_int_product_kernel, 1, 32, 0, s, a, b, d);
}
cudaError_t warp_matrices(const unsigned short* rows, unsigned* words, cudaStream_t s) {
  return start(warp_matrices_kernel, 1, 32, 512, s, rows, words);
}
cudaError_t block_votes(int* out, cudaStream_t s) { return start(block_votes_kernel, 1, 96, 0, s, out); }
cudaError_t atomics(unsigned* out, cudaStream_t s) { return start(atomics_kernel, 1, 100, 0, s, out); }
cudaError_t large_shared(float* y, bool ask, cudaStream_t s) {
  if (ask) {
    const cudaError_t e =
        cudaFuncSetAttribute(large_shared_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 25600 * sizeof(float));
    if (e != cudaSuccess) return e;
  }
  return start(large_shared_kernel, 1, 128, 25600 * sizeof(float), s, y);
}
cudaError_t bare_launch(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t s) {
  return start(nothing_kernel, grid, block, shared_bytes, s);
}
cudaError_t bounded_launch(int bound, unsigned threads, int* most, cudaStream_t s) {
  const auto kernel = bound == 64 ? bounded_kernel<64> : bound == 1024 ? bounded_kernel<1024> : nothing_kernel;
  cudaFuncAttributes attributes;
  if (cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)) != cudaSuccess) return cudaErrorUnknown;
  *most = attributes.maxThreadsPerBlock;
  return start(kernel, 1, threads, 0, s);
}
cudaError_t where_am_i(uint3* out, dim3 grid, dim3 block, cudaStream_t s) {
  return start(where_kernel, grid, block, 0, s, out);
}
}  // namespace emulation_tests
