#include "../any.h"
#include "../kernels.h"
#include "../launch.h"
#include "../layout.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

// Counts are integers, whose sum has no order: blocks count in shared memory where the bins fit there. Weights are added in one order:
// each warp takes a chunk of the elements into bins of its own, one lane after the other, and the chunks follow each other.

constexpr int kThreads = 256, kSharedBins = 4096;

/// Which bin an element belongs to, computed in T: float or double. -1: none.
template <class T> struct Binning {
  Layout<2> l;  // x, weights
  const void* x;
  DType dtype;
  int64_t bins;
  T low, high;
  bool units;  // bins of width 1: exact for integers of any size

  __device__ int64_t of(int64_t offset) const {
    const T v = load_any<T>(x, offset, dtype);
    if (!(v >= low && v <= high)) return -1;
    const T at = v - low;
    const int64_t bin = int64_t(units ? at : at * T(bins) / (high - low));
    return bin < bins - 1 ? bin : bins - 1;
  }
};

template <class T> __global__ void count_elements(const Binning<T> b, unsigned long long* totals) {
  __shared__ unsigned own[kSharedBins];
  const bool shares = b.bins <= kSharedBins;
  for (int64_t i = threadIdx.x; shares && i < b.bins; i += blockDim.x) own[i] = 0;
  __syncthreads();
  for (const int64_t i : grid_stride(b.l.numel)) {
    int64_t at[2];
    b.l.offsets(i, at);
    const int64_t bin = b.of(at[0]);
    if (bin < 0) continue;
    if (shares) atomicAdd(&own[bin], 1u);
    else atomicAdd(&totals[bin], 1ull);
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; shares && i < b.bins; i += blockDim.x)
    if (own[i]) atomicAdd(&totals[i], static_cast<unsigned long long>(own[i]));
}

/// A warp to a block. parts: (chunks, bins), zeros.
template <class T>
__global__ void add_weights(const Binning<T> b, const void* weights, DType dtype, double* parts, int64_t chunks) {
  for (int64_t c = blockIdx.x; c < chunks; c += gridDim.x) {
    double* const own = parts + c * b.bins;
    const int64_t first = b.l.numel * c / chunks, last = b.l.numel * (c + 1) / chunks;
    for (int64_t base = first; base < last; base += 32) {
      const int64_t i = base + threadIdx.x;
      int64_t at[2] = {0, 0}, bin = -1;
      if (i < last) b.l.offsets(i, at), bin = b.of(at[0]);
      const double weight = bin >= 0 ? load_any<double>(weights, at[1], dtype) : 0;
      for (int lane = 0; lane < 32; ++lane) {
        if (lane == int(threadIdx.x) && bin >= 0) own[bin] += weight;
        __syncwarp();
      }
    }
  }
}

template <class Total>
__global__ void finish_bins(void* out, int64_t step, DType dtype, const Total* totals, int64_t bins, int64_t chunks) {
  for (const int64_t i : grid_stride(bins)) {
    Total sum = 0;
    for (int64_t c = 0; c < chunks; ++c) sum += totals[c * bins + i];
    store_any(out, i * step, dtype, sum);
  }
}

template <class T> T* zeros(Context& ctx, int64_t n) {
  T* const p = ctx.scratch_of<T>(n);
  const OnDevice on(ctx.device);
  return check_cuda(cudaMemsetAsync(p, 0, size_t(n) * sizeof(T), stream_of(ctx)), "histogram"), p;
}

template <class T> void histogram_as(Context& ctx, const entry::Histogram& c) {
  const TensorView &out = c.out, &x = c.x, &weights = c.weights;
  const int64_t bins = out.numel();
  if (bins == 0) return;
  const T low = T(c.params.low), high = T(c.params.high);
  const Binning<T> b{layout_of<2>({&x, &weights}), x.data, x.dtype, bins, low, high, high - low == T(bins)};
  int64_t chunks = 1;
  if (weights.defined()) {
    chunks = std::clamp<int64_t>(b.l.numel / 1024, 1, std::clamp<int64_t>((int64_t(1) << 22) / bins, 1, 1024));
    double* const parts = zeros<double>(ctx, bins * chunks);
    const Grid grid{dim3(unsigned(b.l.numel ? chunks : 0)), dim3(32)};
    launch(ctx, "histogram", grid, add_weights<T>, b, weights.data, weights.dtype, parts, chunks);
    launch(ctx, "histogram", grid_of(bins), finish_bins<double>, out.data, out.strides[0], out.dtype, parts, bins,
           chunks);
  } else {
    auto* const totals = zeros<unsigned long long>(ctx, bins);
    launch(ctx, "histogram", grid_of(b.l.numel, kThreads, 1024), count_elements<T>, b, totals);
    launch(ctx, "histogram", grid_of(bins), finish_bins<int64_t>, out.data, out.strides[0], out.dtype,
           reinterpret_cast<const int64_t*>(totals), bins, chunks);
  }
}

}  // namespace

void histogram(Context& ctx, const entry::Histogram& c) {
  if (c.x.dtype == kFloat64 || !is_floating(c.x.dtype)) histogram_as<double>(ctx, c);
  else histogram_as<float>(ctx, c);
}

}  // namespace tapir::inline v0::cuda_kernels
