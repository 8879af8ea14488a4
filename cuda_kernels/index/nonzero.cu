#include "../any.h"
#include "../block_scan.h"
#include "../kernel.h"
#include "../kernels.h"
#include "../launch.h"
#include "../layout.h"

// Where elements are not 0, in row-major order: blocks count the elements of their chunks, one block sums the counts up, blocks write.
namespace tapir::inline v0::cuda_kernels {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxChunks = 4096;

/// Chunk c is [c size, (c + 1) size) in row-major order.
struct Chunks {
  int64_t count, size;
  explicit Chunks(int64_t n) {
    size = std::max<int64_t>(4 * kThreads, (n + kMaxChunks - 1) / kMaxChunks), count = (n + size - 1) / size;
  }
};

__device__ bool is_nonzero(const void* data, DType dtype, int64_t i) {
  return for_dtype(dtype, [&]<class T>() { return cast<bool>(static_cast<const T*>(data)[i]); });
}

__global__ void count_chunks(int64_t* counts, const void* x, DType dtype, Layout<1> l, Chunks chunks) {
  __shared__ int64_t shared[32];
  for (int64_t c = blockIdx.x; c < chunks.count; c += gridDim.x) {
    const int64_t end = c * chunks.size + chunks.size, last = end < l.numel ? end : l.numel;
    int64_t count = 0;
    for (int64_t i = c * chunks.size + threadIdx.x; i < last; i += kThreads) {
      int64_t at[1];
      l.offsets(i, at);
      count += is_nonzero(x, dtype, at[0]);
    }
    count = block_fold<int64_t>(count, 0, shared, Plus{});
    if (threadIdx.x == 0) counts[c] = count;
  }
}

/// counts become the sums before them; counts[n]: the sum of all. One block.
__global__ void scan_counts(int64_t* counts, int64_t n) {
  __shared__ int64_t shared[32];
  int64_t sum = 0, total = 0;
  for (int64_t first = 0; first < n; first += kThreads) {
    const int64_t i = first + threadIdx.x, v = i < n ? counts[i] : 0, before = block_scan(v, shared, total);
    if (i < n) counts[i] = sum + before;
    sum += total;
  }
  if (threadIdx.x == 0) counts[n] = sum;
}

/// The extents of x, for coordinates.
struct Extents {
  int64_t rank, of[kMaxRank];
};
__global__ void write_coordinates(int64_t* out, int64_t row_stride, int64_t column_stride, const void* x, DType dtype,
                                  Layout<1> l, Extents extents, Chunks chunks, const int64_t* starts) {
  __shared__ int64_t shared[32];
  for (int64_t c = blockIdx.x; c < chunks.count; c += gridDim.x) {
    const int64_t end = c * chunks.size + chunks.size, last = end < l.numel ? end : l.numel;
    int64_t row = starts[c], total = 0;
    for (int64_t first = c * chunks.size; first < last; first += kThreads) {
      const int64_t i = first + threadIdx.x;
      bool found = false;
      if (i < last) {
        int64_t at[1];
        l.offsets(i, at);
        found = is_nonzero(x, dtype, at[0]);
      }
      int64_t* to = out + (row + block_scan(found, shared, total)) * row_stride;
      row += total;
      if (!found) continue;
      int64_t rest = i;
      for (int64_t d = extents.rank; d-- > 0; rest /= extents.of[d]) to[d * column_stride] = rest % extents.of[d];
    }
  }
}

/// Sums before each chunk, and the sum of all behind them.
int64_t* scanned_counts(Context& ctx, V x, const Chunks& chunks) {
  int64_t* const counts = ctx.scratch_of<int64_t>(chunks.count + 1);
  const Grid grid{dim3(unsigned(chunks.count)), dim3(kThreads)}, one{dim3(1), dim3(kThreads)};
  launch(ctx, "nonzero", grid, count_chunks, counts, x.data, x.dtype, layout_of<1>({&x}, false), chunks);
  launch(ctx, "nonzero", one, scan_counts, counts, chunks.count);
  return counts;
}

}  // namespace

int64_t count_nonzero(Context& ctx, const entry::CountNonzero& c) {
  const TensorView& x = c.x;
  if (x.numel() == 0) return 0;
  const Chunks chunks(x.numel());
  int64_t count = 0;
  copy_bytes(&count, Device(), scanned_counts(ctx, x, chunks) + chunks.count, ctx.device, sizeof count, ctx.stream);
  synchronize(ctx.device, ctx.stream);
  return count;
}

void nonzero(Context& ctx, const entry::Nonzero& c) {
  const TensorView &out = c.out, &x = c.x;
  if (out.numel() == 0) return;
  const Chunks chunks(x.numel());
  const int64_t* const starts = scanned_counts(ctx, x, chunks);
  Extents extents{x.rank, {}};
  std::copy_n(x.sizes, x.rank, extents.of);
  launch(ctx, "nonzero", {dim3(unsigned(chunks.count)), dim3(kThreads)}, write_coordinates, out.as<int64_t>(),
         out.strides[0], out.strides[1], x.data, x.dtype, layout_of<1>({&x}, false), extents, chunks, starts);
}

}  // namespace tapir::inline v0::cuda_kernels
