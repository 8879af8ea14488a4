#include "../launch.h"
#include "conv_problem.h"
#include "conv_tiles.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

constexpr int kPixels = 128;          // of a tile
constexpr int kOutside = -(1 << 30);  // a place that no kernel position moves into an image

/// The work of a block: columns of a group for pixels of a phase.
struct Work {
  int column, group, row, r[3];
  __device__ Work(const ImageProblem& p, int64_t number, int width) {
    column = int(number % p.column_tiles) * width, number /= p.column_tiles;
    group = int(number % p.groups), number /= p.groups;
    row = int(number % p.tiles) * kPixels, number /= p.tiles;
#pragma unroll
    for (int d = 3; d-- > 0;) {
      const int phases = p.backward ? p.axes[d].phases() : 1;
      r[d] = int(number % phases), number /= phases;
    }
  }
};

/// Pixel `row` of a phase: its image and its number on each axis.
__device__ __forceinline__ int locate(const ImageProblem& p, const Phase (&phase)[3], int row, int (&at)[3]) {
  uint32_t rest = uint32_t(row);
#pragma unroll
  for (int d = 3; d-- > 0;) {
    const Divider by = phase[d].larger ? p.axes[d].pixels[1] : p.axes[d].pixels[0];
    const uint32_t next = by.quotient(rest);
    at[d] = int(rest - next * uint32_t(phase[d].count)), rest = next;
  }
  return int(rest);
}

/// A pixel of the tile: where what kernel position 0 sees would lie, and its number on each axis; where the result goes, -1: nowhere.
struct Row {
  int64_t start, place;
  int from[3];
};
__device__ void find_rows(Row* rows, const ImageProblem& p, const Phase (&phase)[3], const Work& work) {
  for (int i = int(threadIdx.x); i < kPixels; i += kConvThreads) {
    int at[3];
    const int image = locate(p, phase, work.row + i, at);
    Row row{image * p.from.outer + work.group * p.from.inner, image * p.to_image, {}};
#pragma unroll
    for (int d = 0; d < 3; ++d) {
      row.from[d] = at[d] * phase[d].scale + phase[d].base;
      row.start += int64_t(row.from[d]) * p.from.axis[d];
      row.place += (phase[d].first + int64_t(at[d]) * phase[d].step) * p.to_axis[d];
    }
    if (image >= p.images) row.place = -1, row.from[0] = kOutside;
    rows[i] = row;
  }
}

/// What a thread copies: packs of every row / 8 of both tiles, at a kernel position and channel of its own.
template <class T, int BN> class Loader {
 public:
  __device__ Loader(const ImageProblem& p, const Phase (&phase)[3], const Row* rows, const Work& work)
      : p_(p), phase_(phase), rows_(rows + threadIdx.x / 8), columns_(p.outputs - work.column - int(threadIdx.x) / 8) {
    weight_ = work.group * p.weight.outer + (work.column + int(threadIdx.x) / 8) * p.weight.inner;
#pragma unroll
    for (int d = 0; d < 3; ++d) weight_ += int64_t(phase[d].kernel) * p.weight.axis[d];
    advance(int(threadIdx.x) % 8 * kPackSize<T>);
  }

  /// Queues the copies of the next tiles.
  __device__ __forceinline__ void operator()(T* tiles) {
    const T *const from = static_cast<const T*>(p_.from.data), *const weight = static_cast<const T*>(p_.weight.data);
    const bool more = j_[0] < phase_[0].positions;
    int shift[3], weight_offset = channel_;
    int64_t offset = channel_;
#pragma unroll
    for (int d = 0; d < 3; ++d) {
      shift[d] = j_[d] * phase_[d].dilation;
      offset += int64_t(shift[d]) * p_.from.axis[d], weight_offset += j_[d] * phase_[d].kernel_step * p_.weight.axis[d];
    }
    T* to = tiles + place<kDepth<T>, kPackSize<T>>(int(threadIdx.x) / 8, int(threadIdx.x) % 8);
#pragma unroll
    for (int i = 0; i < kPixels; i += kStep) {
      const Row& row = rows_[i];
      bool inside = more;
#pragma unroll
      for (int d = 0; d < 3; ++d) inside = inside && unsigned(row.from[d] + shift[d]) < unsigned(p_.extent(d));
      copy_async(to + i * kDepth<T>, inside ? from + (row.start + offset) : from, inside);
    }
    to += kPixels * kDepth<T>;
#pragma unroll
    for (int i = 0; i < BN; i += kStep) {
      const bool inside = more && i < columns_;
      copy_async(to + i * kDepth<T>, inside ? weight + (weight_ + i * p_.weight.inner + weight_offset) : weight,
                 inside);
    }
    advance(kDepth<T>);
  }

 private:
  static constexpr int kStep = kConvThreads / 8;

  __device__ __forceinline__ void advance(int by) {
    for (channel_ += by; channel_ >= p_.channels; channel_ -= p_.channels) {
      if (++j_[2] < phase_[2].positions) continue;
      j_[2] = 0;
      if (++j_[1] < phase_[1].positions) continue;
      j_[1] = 0, ++j_[0];
    }
  }

  const ImageProblem& p_;
  const Phase (&phase_)[3];
  const Row* rows_;
  int64_t weight_;
  int columns_, channel_ = 0, j_[3] = {};
};

/// Writes sums, which are `step` apart from pixel to pixel.
template <class T, int BN>
__device__ void write(const ImageProblem& p, const float* sums, int step, const Row* rows, const Work& work) {
  constexpr int kPack = kPackSize<T>;
  const int columns = p.outputs - work.column, first = work.group * p.outputs + work.column;
  T* const to = static_cast<T*>(p.to) + first * p.to_channel;
  const auto finished = [&](int row, int column) {
    float v = sums[row * step + column];
    if (p.bias) v += widen(static_cast<const T*>(p.bias)[(first + column) * p.bias_stride]);
    return narrow<T>(p.relu && v < 0 ? 0 : v);
  };
  if (p.packs) {
    for (int e = int(threadIdx.x); e < kPixels * (BN / kPack); e += kConvThreads) {
      const int row = e / (BN / kPack), column = e % (BN / kPack) * kPack;
      if (rows[row].place < 0 || column >= columns) continue;
      Pack<T, kPack> v;
#pragma unroll
      for (int i = 0; i < kPack; ++i) v.of[i] = finished(row, column + i);
      *reinterpret_cast<Pack<T, kPack>*>(to + rows[row].place + column) = v;
    }
    return;
  }
  const bool by_pixels = p.to_channel != 1;
  for (int e = int(threadIdx.x); e < kPixels * BN; e += kConvThreads) {
    const int row = by_pixels ? e % kPixels : e / BN, column = by_pixels ? e / kPixels : e % BN;
    if (rows[row].place >= 0 && column < columns) to[rows[row].place + column * p.to_channel] = finished(row, column);
  }
}

/// See Note [Convolutions as products].
template <class T, int BN> __global__ void __launch_bounds__(kConvThreads, sizeof(T) == 2 ? 2 : 1)
    conv_image_kernel(ImageProblem p, int64_t total) {
  constexpr int kSize = (kPixels + BN) * kDepth<T>;
  __shared__ Phase phase[3];
  __shared__ Row rows[kPixels];
  T* const tiles = dynamic_shared<T>();
  for (int64_t number = blockIdx.x; number < total; number += gridDim.x) {
    const Work work(p, number, BN);
    __syncthreads();  // the last tile's phase and sums are used up
    if (threadIdx.x == 0) {
#pragma unroll
      for (int d = 0; d < 3; ++d) p.backward ? p.axes[d].backward(phase[d], work.r[d]) : p.axes[d].forward(phase[d]);
    }
    __syncthreads();
    if (work.row >= int64_t(p.images) * phase[0].count * phase[1].count * phase[2].count) continue;
    const int depth = phase[0].positions * phase[1].positions * phase[2].positions * p.channels;
    find_rows(rows, p, phase, work);
    ConvSums<T, kPixels, BN, true> sums;
    sum_tiles<T>(sums, tiles, kPixels * kDepth<T>, kSize, (depth + kDepth<T> - 1) / kDepth<T>,
                 Loader<T, BN>(p, phase, rows, work));
    const int step = p.packs ? BN + 8 : BN + 1;  // so that few of a warp's accesses share a bank
    float* const kept = dynamic_shared<float>();
    sums.for_each([&](int row, int column, float sum) { kept[row * step + column] = sum; });
    __syncthreads();
    write<T, BN>(p, kept, step, rows, work);
  }
}

/// Bytes of dynamic shared memory.
template <int BN> constexpr size_t shared_bytes() {
  constexpr size_t kTiles = size_t(kStages) * (kPixels + BN) * 128, kSums = size_t(kPixels) * (BN + 8) * sizeof(float);
  return std::max(kTiles, kSums);
}
/// Has a block of the device room for them beside the kernel's own? At 8.6, 8.9 and 12.0 wide tiles have not.
template <int BN> bool has_room(Device device) {
  int most = 0;
  check_cuda(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index), "conv");
  return shared_bytes<BN>() + 3 * sizeof(Phase) + kPixels * sizeof(Row) <= size_t(most);
}

template <class T, int BN> void run(Context& ctx, ImageProblem& p) {
  p.column_tiles = (p.outputs + BN - 1) / BN;
  int64_t total = int64_t(p.tiles) * p.column_tiles * p.groups;
  if (p.backward)
    for (const Axis& axis : p.axes) total *= axis.phases();
  const Grid grid{grid_of(total, 1).blocks, dim3(kConvThreads), shared_bytes<BN>()};
  launch(ctx, p.backward ? "conv_backward_data" : "conv", grid, conv_image_kernel<T, BN>, p, total);
}
template <class T> void run(Context& ctx, ImageProblem& p) {
  int64_t pixels = p.images;  // of the largest phase
  for (const Axis& axis : p.axes) pixels *= p.backward ? (axis.x + axis.stride - 1) / axis.stride : axis.y;
  p.tiles = int((pixels + kPixels - 1) / kPixels);
  const bool fills = int64_t(p.tiles) * ((p.outputs + 127) / 128) * p.groups >= multiprocessors(ctx.device);
  p.outputs > 64 && fills&& has_room<128>(ctx.device) ? run<T, 128>(ctx, p) : run<T, 64>(ctx, p);
}

}  // namespace

void conv_image(Context& ctx, DType dtype, ImageProblem p) {
  dtype == kFloat32 ? run<float>(ctx, p) : dtype == kFloat16 ? run<Half>(ctx, p) : run<BFloat16>(ctx, p);
}

}  // namespace tapir::inline v0::cuda_kernels
