// The kernels of the emulation's own tests: kernels.cu holds right ones, faults.cu wrong ones. Both are plain CUDA.
#pragma once
#include <cuda_runtime.h>

namespace emulation_tests {

template <class... P, class... A>
cudaError_t start(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, A... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = shared_bytes, config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, P(args)...);
}

struct Matrix {  // strided, as kernels see it
  float* data;
  long rows, cols, row_stride, col_stride;
  __host__ __device__ float& at(long r, long c) const { return data[r * row_stride + c * col_stride]; }
};

// kernels.cu
cudaError_t scale(const float* x, float* y, long n, cudaStream_t stream);  // y = 2 x
cudaError_t add(Matrix a, Matrix b, Matrix y, cudaStream_t stream);
cudaError_t row_sum(const float* x, float* y, long rows, long cols, cudaStream_t stream);
cudaError_t softmax(const float* x, float* y, long rows, long cols, cudaStream_t stream);
cudaError_t histogram(const int* x, int* bins, long n, cudaStream_t stream);
cudaError_t matmul(Matrix a, Matrix b, Matrix y, cudaStream_t stream);
cudaError_t reverse(float* y, cudaStream_t stream);  // 64 elements, through shared memory
cudaError_t last_block_sum(const float* x, float* partial, unsigned* arrived, float* y, long n, cudaStream_t stream);
cudaError_t warp_operations(long long* out, cudaStream_t stream);  // 32 lanes x kWarpResults
constexpr int kWarpResults = 16;
/// d (16, 8) += a (16, 16) b (16, 8) in 16-bit floats, the registers filled by hand.
cudaError_t warp_product(const unsigned short* a, const unsigned short* b, float* d, bool half, cudaStream_t stream);
/// a (16, 8), b (8, 8), d (16, 8).
cudaError_t warp_tf32_product(const float* a, const float* b, float* d, bool rounds, cudaStream_t stream);
/// d (16, 8) += a (16, 32) b (32, 8) in integers of 8 bits.
cudaError_t warp_int_product(const signed char* a, const signed char* b, int* d, cudaStream_t stream);
/// 32 rows of 8 by asynchronous copies, then by load_matrices: words (2, 4, 32), plain and transposed.
cudaError_t warp_matrices(const unsigned short* rows, unsigned* words, cudaStream_t stream);
cudaError_t block_votes(int* out, cudaStream_t stream);             // {and, or, count} of 96 threads
cudaError_t atomics(unsigned* out, cudaStream_t stream);            // 8 words, zero before
cudaError_t large_shared(float* y, bool ask, cudaStream_t stream);  // 100 KiB of dynamic shared memory
cudaError_t bare_launch(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream);
cudaError_t bounded_launch(int bound, unsigned threads, int* most,
                           cudaStream_t stream);  // bound: 64, 1024 or 0, none; most: as CUDA says
cudaError_t where_am_i(uint3* out, dim3 grid, dim3 block, cudaStream_t stream);

// faults.cu
cudaError_t diverge(float* y, cudaStream_t stream);
cudaError_t two_barriers(float* y, cudaStream_t stream);
cudaError_t lost_lane(float* y, cudaStream_t stream);
cudaError_t beyond_end(float* y, long n, cudaStream_t stream);
cudaError_t before_begin(float* y, cudaStream_t stream);
cudaError_t read_beyond_end(const float* x, float* y, long n, cudaStream_t stream);
cudaError_t reverse_without_barrier(float* y, cudaStream_t stream);
cudaError_t warp_without_sync(float* y, cudaStream_t stream);
cudaError_t blocks_meet(float* y, cudaStream_t stream);
cudaError_t uninitialised_shared(float* y, cudaStream_t stream);
cudaError_t through_table(float* const* table, float* y, cudaStream_t stream);  // a device array of pointers
cudaError_t misaligned_read(float* y, cudaStream_t stream);
cudaError_t misaligned_write(float* y, cudaStream_t stream);
cudaError_t early_read(const float* x, float* y, cudaStream_t stream);  // before the wait for an asynchronous copy
/// 32 elements, read before the kernels before are waited for. lets_first: the next kernel may begin even before that.
cudaError_t copy_ahead(const float* x, float* y, bool early, bool lets_first, cudaStream_t stream);
cudaError_t misaligned_row(unsigned* words, cudaStream_t stream);  // of a matrix
cudaError_t overflow_stack(float* y, cudaStream_t stream);

}  // namespace emulation_tests
