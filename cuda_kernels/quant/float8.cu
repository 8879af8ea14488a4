// 8-bit floats: matrices to bytes, and what a product of bytes needs where the library has none. core/formulas/float8.h.
#include "float8.h"

#include <early_launch.h>

#include "../../core/formulas/float8.h"
#include "../any.h"
#include "../rows.h"
#include "../stage.h"
#ifdef __CUDACC__
#include <cuda_fp8.h>
#endif

namespace tapir::inline v0::cuda_kernels {
namespace {

constexpr int kThreads = 128, kAmaxThreads = 512, kMostParts = 512;
constexpr int kTileRows = 64, kTileColumns = 128, kPacks = kTileColumns / 16;
using Bytes = Pack<uint8_t, 16>;

template <class T> struct Matrix {
  const T* data;
  int64_t rows, columns, row, column;  // strides
  bool packed;  // 16 neighbours of a row, from a multiple of 16 on, lie at a multiple of 16 bytes
};

/// formulas::to_float8 of two numbers, finite or NaN, by the instruction where there is one.
__device__ __forceinline__ void narrow_float8(float x, float y, Float8 format, uint8_t (&to)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  const auto both = __nv_cvt_float2_to_fp8x2({x, y}, __NV_SATFINITE, format == Float8::E4M3 ? __NV_E4M3 : __NV_E5M2);
  to[0] = uint8_t(both), to[1] = uint8_t(both >> 8);
#else
  to[0] = formulas::to_float8(x, format), to[1] = formulas::to_float8(y, format);
#endif
}

/// The largest |x| of a block's share, NaN before all. Without gaps x is n neighbours, in whatever order.
template <class T> __global__ void __launch_bounds__(kAmaxThreads)
    float8_amax_kernel(Matrix<T> x, bool without_gaps, float* parts) {
  __shared__ float shared[32];
  wait_for_previous();
  const int64_t n = x.rows * x.columns;
  float amax = 0;
  if (without_gaps) {
    for_packs<kPackSize<T>>(n, head_of(x.data), int(blockIdx.x * blockDim.x + threadIdx.x), int(gridDim.x * blockDim.x),
                            [&]<int W>(int64_t i) {
                              float v[W];
                              load_pack<W>(x.data + i, v);
#pragma unroll
                              for (int l = 0; l < W; ++l) amax = Larger()(math::abs(v[l]), amax);
                            });
  } else {
    for (const int64_t i : grid_stride(n))
      amax = Larger()(math::abs(widen(x.data[i / x.columns * x.row + i % x.columns * x.column])), amax);
  }
  amax = block_fold(amax, 0.f, shared, Larger());
  if (threadIdx.x == 0) parts[blockIdx.x] = amax;
}

/// 16 neighbours of row i from column j on; 0 outside the matrix.
template <class T>
__device__ __forceinline__ void load_neighbours(const Matrix<T>& x, int64_t i, int64_t j, float (&v)[16]) {
  const T* const from = x.data + i * x.row + j * x.column;
  if (x.packed) {
#pragma unroll
    for (int l = 0; l < 16; l += kPackSize<T>) {
      float part[kPackSize<T>];
      load_pack<kPackSize<T>>(from + l, part);
#pragma unroll
      for (int m = 0; m < kPackSize<T>; ++m) v[l + m] = part[m];
    }
  } else {
#pragma unroll
    for (int l = 0; l < 16; ++l) v[l] = j + l < x.columns ? widen(from[l * x.column]) : 0.f;
  }
}
/// Those of them that lie before `end`.
__device__ __forceinline__ void store_bytes(uint8_t* to, const Bytes& bytes, int64_t place, int64_t end, bool packed) {
  if (packed) {
    *reinterpret_cast<Bytes*>(to) = bytes;
  } else {
#pragma unroll
    for (int l = 0; l < 16; ++l)
      if (place + l < end) to[l] = bytes.of[l];
  }
}

/// Where 16 columns of a row stand in the tile: words that a warp reads together lie in different banks.
__device__ __forceinline__ int place_in_tile(int row, int pack) { return row * kPacks + (pack ^ row / 16 * 2); }

/// Four columns of 16 rows of the tile, as columns: thread t takes rows from t % 4 * 16 on.
__device__ __forceinline__ void turn(const Bytes* tile, int rows, int columns, Bytes (&out)[4]) {
  uint32_t words[16];
#pragma unroll
  for (int i = 0; i < 16; ++i)
    words[i] = reinterpret_cast<const uint32_t*>(tile + place_in_tile(rows * 16 + i, columns / 4))[columns % 4];
#pragma unroll
  for (int c = 0; c < 4; ++c)
#pragma unroll
    for (int i = 0; i < 16; ++i) out[c].of[i] = uint8_t(words[i] >> 8 * c);
}

struct Float8Places {
  uint8_t *rows, *columns;  // (M, N), (N, M), or null
  bool packed_rows, packed_columns;
};

/// A block takes tiles of 64 x 128: a thread 16 columns of a row at a time, then 16 rows of four columns.
template <class T> __global__ void __launch_bounds__(kThreads)
    to_float8_kernel(Matrix<T> x, const float* parts, int num_parts, Float8 format, float* scale, Float8Places to) {
  __shared__ float shared[32];
  __shared__ Bytes tile[kTileRows * kPacks];
  wait_for_previous();
  float amax = 0;
  for (int i = int(threadIdx.x); i < num_parts; i += kThreads) amax = Larger()(parts[i], amax);
  const float by = formulas::float8_scale(block_fold(amax, 0.f, shared, Larger()), format);
  if (blockIdx.x == 0 && threadIdx.x == 0) *scale = by;
  const int64_t across = (x.columns + kTileColumns - 1) / kTileColumns,
                tiles = across * ((x.rows + kTileRows - 1) / kTileRows);
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const int64_t first_row = t / across * kTileRows, first_column = t % across * kTileColumns;
#pragma unroll
    for (int p = int(threadIdx.x); p < kTileRows * kPacks; p += kThreads) {
      const int64_t i = first_row + p / kPacks, j = first_column + p % kPacks * 16;
      Bytes bytes{};
      if (i < x.rows && j < x.columns) {
        float v[16];
        load_neighbours(x, i, j, v);
#pragma unroll
        for (int l = 0; l < 16; l += 2) {
          uint8_t pair[2];
          narrow_float8(v[l] / by, v[l + 1] / by, format, pair);
          bytes.of[l] = pair[0], bytes.of[l + 1] = pair[1];
        }
        if (to.rows) store_bytes(to.rows + i * x.columns + j, bytes, j, x.columns, to.packed_rows);
      }
      if (to.columns) tile[place_in_tile(p / kPacks, p % kPacks)] = bytes;
    }
    if (!to.columns) continue;
    __syncthreads();
    const int rows = int(threadIdx.x) % 4, columns = int(threadIdx.x) / 4;
    const int64_t i = first_row + rows * 16, j = first_column + columns * 4;
    if (i < x.rows && j < x.columns) {
      Bytes turned[4];
      turn(tile, rows, columns, turned);
#pragma unroll
      for (int c = 0; c < 4; ++c)
        if (j + c < x.columns) store_bytes(to.columns + (j + c) * x.rows + i, turned[c], i, x.rows, to.packed_columns);
    }
    __syncthreads();  // the tile may be used again
  }
}

__global__ void widen_float8_kernel(const uint8_t* x, int64_t n, Float8 format, BFloat16* to) {
  for (const int64_t i : grid_stride(n)) to[i] = narrow<BFloat16>(formulas::from_float8(x[i], format));
}

struct Float8Finish {
  const float *sums, *a_scale, *b_scale;
  const void* bias;
  DType bias_dtype, dtype;
  int64_t bias_step, columns, row, column;
  void* out;
};
__global__ void float8_finish_kernel(Float8Finish f, int64_t n) {
  const float a = *f.a_scale, b = *f.b_scale;
  for (const int64_t i : grid_stride(n)) {
    const int64_t row = i / f.columns, column = i % f.columns;
    float v = f.sums[i] * a * b;
    if (f.bias) v += load_float<float>(f.bias, column * f.bias_step, f.bias_dtype);
    store_float(f.out, row * f.row + column * f.column, f.dtype, v);
  }
}

bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <class T> void run(Context& ctx, V x, const entry::ToFloat8& c) {
  Matrix<T> m{x.as<T>(), x.sizes[0], x.sizes[1], x.strides[0], x.strides[1], false};
  Float8Places to{c.out.as<uint8_t>(), c.transposed.as<uint8_t>(), false, false};
  if (m.column != 1 && m.row == 1)  // its columns lie in memory as rows do
    std::swap(m.rows, m.columns), std::swap(m.row, m.column), std::swap(to.rows, to.columns);
  m.packed = m.column == 1 && m.columns % 16 == 0 && m.row % kPackSize<T> == 0 && is_aligned(m.data);
  to.packed_rows = m.columns % 16 == 0 && is_aligned(to.rows);
  to.packed_columns = m.rows % 16 == 0 && is_aligned(to.columns);
  constexpr int64_t kShare = kAmaxThreads * 8;  // of a block; more blocks than 512 do not run at once
  const auto count = int(std::min<int64_t>((m.rows * m.columns + kShare - 1) / kShare, kMostParts));
  float* const amax = ctx.scratch_of<float>(std::max(count, 1));
  if (count > 0)
    launch(ctx, "to_float8", early(ctx, grid_of(int64_t(count) * kAmaxThreads, kAmaxThreads)), float8_amax_kernel<T>, m,
           is_dense(x.shape(), x.stride_list()), amax);
  const int64_t tiles = (m.rows + kTileRows - 1) / kTileRows * ((m.columns + kTileColumns - 1) / kTileColumns);
  launch(ctx, "to_float8", early(ctx, grid_of(std::max<int64_t>(tiles, 1) * kThreads, kThreads)), to_float8_kernel<T>,
         m, amax, count, c.params.format, c.scale.as<float>(), to);
}

}  // namespace

void to_float8(Context& ctx, const entry::ToFloat8& c) {
  switch (c.x.dtype) {
    case kFloat32: return run<float>(ctx, c.x, c);
    case kFloat16: return run<Half>(ctx, c.x, c);
    case kBFloat16: return run<BFloat16>(ctx, c.x, c);
    default: break;
  }
  TensorView x = c.x;
  x.dtype = kFloat32, x.data = ctx.scratch_of<float>(x.numel()), x.strides[0] = x.sizes[1], x.strides[1] = 1;
  copy(ctx, {x, c.x});
  run<float>(ctx, x, c);
}

TensorView widened_float8(Context& ctx, V x, Float8 format) {
  TensorView y = x;
  y.dtype = kBFloat16, y.data = ctx.scratch_of<BFloat16>(x.numel());
  launch(ctx, "float8_matmul", grid_of(x.numel()), widen_float8_kernel, x.as<uint8_t>(), x.numel(), format,
         y.as<BFloat16>());
  return y;
}

void finish_float8_product(Context& ctx, V out, V sums, const entry::Float8Matmul& c) {
  const Float8Finish f{.sums = sums.as<float>(),
                       .a_scale = c.a_scale.as<float>(),
                       .b_scale = c.b_scale.as<float>(),
                       .bias = c.bias.defined() ? c.bias.data : nullptr,
                       .bias_dtype = c.bias.dtype,
                       .dtype = out.dtype,
                       .bias_step = c.bias.defined() ? c.bias.strides[0] : 0,
                       .columns = out.sizes[1],
                       .row = out.strides[0],
                       .column = out.strides[1],
                       .out = out.data};
  launch(ctx, "float8_matmul", grid_of(out.numel()), float8_finish_kernel, f, out.numel());
}

}  // namespace tapir::inline v0::cuda_kernels
