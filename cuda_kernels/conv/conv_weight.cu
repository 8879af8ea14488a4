#include "../launch.h"
#include "conv_problem.h"
#include "conv_tiles.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

/// The work of a block: rows and columns of a group, for one share of the pixels.
struct Work {
  int row, column, group, split;
  __device__ Work(const WeightProblem& p, int64_t number, int height, int width) {
    column = int(number % p.column_tiles) * width, number /= p.column_tiles;
    row = int(number % p.row_tiles) * height, number /= p.row_tiles;
    group = int(number % p.groups), split = int(number / p.groups);
  }
};

/// Pixel number i of all images of y: its image and its place on each axis.
__device__ __forceinline__ int locate(const WeightProblem& p, int i, int (&at)[3]) {
  uint32_t rest = uint32_t(i);
#pragma unroll
  for (int d = 3; d-- > 0;) {
    const uint32_t next = p.axes[d].pixels[0].quotient(rest);
    at[d] = int(rest - next * uint32_t(p.axes[d].y)), rest = next;
  }
  return int(rest);
}

/// What a thread copies: one pack of some rows, which are pixels, of each tile.
template <class T, int BM, int BN> class Loader {
 public:
  __device__ Loader(const WeightProblem& p, const Work& work, int step) : p_(p), pixel_(step * kDepth<T>) {
    const int output = work.row + kLeft::pack() * kPackSize<T>, column = work.column + kRight::pack() * kPackSize<T>;
    has_output_ = output < p.outputs, has_column_ = column < p.columns;
    dy_ = work.group * p.dy.inner + output;
    int position = int(p.by_channels.quotient(uint32_t(column)));
    x_ = work.group * p.x.inner + column - position * p.channels;
    for (int d = 3; d-- > 0;) {
      const int next = int(p.axes[d].kernels.quotient(uint32_t(position)));
      base_[d] = (position - next * p.axes[d].kernel) * p.axes[d].dilation - p.axes[d].padding;
      position = next;
    }
  }

  /// Queues the copies of the next tiles.
  __device__ __forceinline__ void operator()(T* tiles) {
    const T *const dy = static_cast<const T*>(p_.dy.data), *const x = static_cast<const T*>(p_.x.data);
#pragma unroll 1
    for (int row = kLeft::row(); row < kDepth<T>; row += kLeft::kStep) {
      int at[3];
      int64_t offset = dy_ + locate(p_, pixel_ + row, at) * p_.dy.outer;
#pragma unroll
      for (int d = 0; d < 3; ++d) offset += int64_t(at[d]) * p_.dy.axis[d];
      const bool inside = has_output_ && pixel_ + row < p_.pixels;
      copy_async(tiles + place<BM, kPackSize<T>>(row, kLeft::pack()), inside ? dy + offset : dy, inside);
    }
    tiles += BM * kDepth<T>;
#pragma unroll 1
    for (int row = kRight::row(); row < kDepth<T>; row += kRight::kStep) {
      int at[3];
      int64_t offset = x_ + locate(p_, pixel_ + row, at) * p_.x.outer;
      bool inside = has_column_ && pixel_ + row < p_.pixels;
#pragma unroll
      for (int d = 0; d < 3; ++d) {
        const int from = at[d] * p_.axes[d].stride + base_[d];
        inside = inside && unsigned(from) < unsigned(p_.axes[d].x);
        offset += int64_t(from) * p_.x.axis[d];
      }
      copy_async(tiles + place<BN, kPackSize<T>>(row, kRight::pack()), inside ? x + offset : x, inside);
    }
    pixel_ += kDepth<T>;
  }

 private:
  /// How the threads share out a tile of rows of N elements.
  template <int N> struct Share {
    static constexpr int kPacks = N / kPackSize<T>, kStep = kConvThreads / kPacks;
    __device__ static int row() { return int(threadIdx.x) / kPacks; }
    __device__ static int pack() { return int(threadIdx.x) % kPacks; }
  };
  using kLeft = Share<BM>;
  using kRight = Share<BN>;

  const WeightProblem& p_;
  int64_t dy_, x_;
  int base_[3], pixel_;
  bool has_output_, has_column_;
};

/// See Note [Convolutions as products].
template <class T, int BM, int BN> __global__ void __launch_bounds__(kConvThreads, sizeof(T) == 2 ? 2 : 1)
    conv_weight_kernel(WeightProblem p, int64_t total) {
  T* const tiles = dynamic_shared<T>();
  for (int64_t number = blockIdx.x; number < total; number += gridDim.x) {
    const Work work(p, number, BM, BN);
    const int first = int(int64_t(p.steps) * work.split / p.splits);
    const int last = int(int64_t(p.steps) * (work.split + 1) / p.splits);
    ConvSums<T, BM, BN, false> sums;
    sum_tiles<T>(sums, tiles, BM * kDepth<T>, (BM + BN) * kDepth<T>, last - first, Loader<T, BM, BN>(p, work, first));
    float* const to = p.sums + int64_t(work.split * p.groups + work.group) * p.outputs * p.columns;
    sums.for_each([&](int row, int column, float sum) {
      row += work.row, column += work.column;
      if (row < p.outputs && column < p.columns) to[int64_t(row) * p.columns + column] = sum;
    });
  }
}

template <class T, int BM, int BN> void run(Context& ctx, WeightProblem& p) {
  p.row_tiles = (p.outputs + BM - 1) / BM, p.column_tiles = (p.columns + BN - 1) / BN;
  p.steps = (p.pixels + kDepth<T> - 1) / kDepth<T>;
  // Four blocks for each multiprocessor, of eight tiles and more.
  const int64_t tiles = int64_t(p.row_tiles) * p.column_tiles * p.groups;
  p.splits = int(std::clamp<int64_t>(4 * multiprocessors(ctx.device) / tiles, 1, std::max(1, p.steps / 8)));
  p.sums =
      static_cast<float*>(ctx.scratch(int64_t(p.splits) * p.groups * p.outputs * p.columns * int64_t(sizeof(float))));
  const Grid grid{grid_of(tiles * p.splits, 1).blocks, dim3(kConvThreads), size_t(kStages) * (BM + BN) * 128};
  launch(ctx, "conv_backward_weight", grid, conv_weight_kernel<T, BM, BN>, p, tiles * p.splits);
}
template <class T> void run(Context& ctx, WeightProblem& p) {
  if (p.outputs <= 64) run<T, 64, 128>(ctx, p);
  else if (p.columns <= 64) run<T, 128, 64>(ctx, p);
  else run<T, 128, 128>(ctx, p);
}

}  // namespace

void conv_weight(Context& ctx, DType dtype, WeightProblem& p) {
  dtype == kFloat32 ? run<float>(ctx, p) : dtype == kFloat16 ? run<Half>(ctx, p) : run<BFloat16>(ctx, p);
}

}  // namespace tapir::inline v0::cuda_kernels
