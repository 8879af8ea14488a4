// Note [Quantized products of few rows]
// A group of 1 to 256 threads makes a column, or two of several rows: they take packs of 16 bytes along k, several of them asked for before
// the first is used. Groups are as wide as four packs a thread allow, wider where that makes too few blocks, so that small weights are in flight
// all at once. Blocks beside each other in y take 8 rows each. Sums are in a fixed order. Kernels with weights alone quantized are early ones,
// and make a norm's rows for themselves as those of Note [Products of few rows] do.
#include "../divider.h"
#include "../matmul/few_rows.h"
#include "quant_device.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

constexpr int kThreads = kFewRowsThreads, kRows = kMostFewRows;
constexpr int kPacks = 4;  // of a column that a thread takes

/// Sums of R numbers for each of J neighbouring columns: add(j, lane, sums) by each thread of a group, finish(column, its sums) by one.
template <int J, int R, class Sum, class Add, class Finish>
__device__ __forceinline__ void each_columns(int64_t n, int lanes, Add&& add, Finish&& finish) {
  __shared__ Sum shared[kThreads / 32][J][R];
  const int64_t sets = (n + J - 1) / J;
  for (RowGroups at(lanes); at.base < sets; at.next()) {
    const int64_t j = at.row() * J;
    Sum sums[J][R] = {};
    if (j < n) add(j, at.lane, sums);
#pragma unroll
    for (int c = 0; c < J; ++c)
#pragma unroll
      for (int r = 0; r < R; ++r) sums[c][r] = warp_fold(sums[c][r], Plus{}, lanes < 32 ? lanes : 32);
    if (lanes <= 32) {
#pragma unroll
      for (int c = 0; c < J; ++c)
        if (at.lane == 0 && j + c < n) finish(j + c, sums[c]);
      continue;
    }
    const int warp = int(threadIdx.x) / 32;
    if (threadIdx.x % 32 == 0)
#pragma unroll
      for (int c = 0; c < J; ++c)
#pragma unroll
        for (int r = 0; r < R; ++r) shared[warp][c][r] = sums[c][r];
    __syncthreads();
    if (at.lane < J && j + at.lane < n) {
      Sum total[R] = {};
      for (int other = 0; other < lanes / 32; ++other)
#pragma unroll
        for (int r = 0; r < R; ++r) total[r] += shared[warp + other][at.lane][r];
      finish(j + at.lane, total);
    }
    __syncthreads();
  }
}

/// use(number, the packs with that number of J columns) for this thread's packs of `count`; A are asked for before the first is used.
template <int A, int J, class P, class Use>
__device__ __forceinline__ void each_pack(const P* const (&columns)[J], int count, int lane, int lanes, Use&& use) {
  for (int first = lane; first < count; first += A * lanes) {
    P packs[A][J];
#pragma unroll
    for (int a = 0; a < A; ++a)
#pragma unroll
      for (int c = 0; c < J; ++c)
        if (first + a * lanes < count) packs[a][c] = columns[c][first + a * lanes];
#pragma unroll
    for (int a = 0; a < A; ++a)
      if (first + a * lanes < count) use(first + a * lanes, packs[a]);
  }
}

/// Element e of a word of weights.
template <int Bits> __device__ __forceinline__ float weight(uint32_t word, int e) {
  constexpr uint32_t kMask = (uint32_t(1) << Bits) - 1, kMiddle = uint32_t(1) << (Bits - 1);
  if constexpr (Bits == 8) word ^= 0x80808080u;
  // As the last bits of 2^23 + v it is exact, and costs no conversion.
  return __uint_as_float(0x4b000000u | (word >> (Bits * e) & kMask)) - float(0x800000u + kMiddle);
}
/// B bytes of weights.
template <int B> struct WeightsOf { using type = Pack<uint32_t, B / 4>; };
template <> struct WeightsOf<1> { using type = Pack<uint8_t, 1>; };
template <int B> using Weights = typename WeightsOf<B>::type;
template <int Bits, class P> __device__ __forceinline__ float weight_of(const P& weights, int e) {
  constexpr int kEach = int(sizeof(weights.of[0])) * 8 / Bits;
  return weight<Bits>(weights.of[e / kEach], e % kEach);
}

/// part[c][i] += the numbers of column c's pack times those of row i of x. With 8 rows the loop stays one, or its loads would take all registers.
template <int Bits, class P, class T, int M, int J>
__device__ __forceinline__ void add_packs(float (&part)[J][M], const P (&packs)[J], const T* x, int64_t k,
                                          int64_t rows) {
  constexpr int kElements = int(sizeof(P)) * 8 / Bits, kAtOnce = kElements < 8 ? kElements : 8;
  constexpr int kSteps = kElements / kAtOnce, kWords = int(sizeof(P) / sizeof(P{}.of[0])), kUsed = kWords / kSteps;
  P rest[J];
#pragma unroll
  for (int c = 0; c < J; ++c) rest[c] = packs[c];
#pragma unroll(M < kRows ? kSteps : 1)
  for (int step = 0; step < kSteps; ++step, x += kAtOnce) {
    float w[J][kAtOnce];
#pragma unroll
    for (int c = 0; c < J; ++c) {
#pragma unroll
      for (int l = 0; l < kAtOnce; ++l) w[c][l] = weight_of<Bits>(rest[c], l);
#pragma unroll
      for (int l = 0; l + kUsed < kWords; ++l) rest[c].of[l] = rest[c].of[l + kUsed];
    }
#pragma unroll
    for (int i = 0; i < M; ++i) {
      float numbers[kAtOnce];
      load_numbers(x + (i < rows ? i : rows - 1) * k, numbers);
#pragma unroll
      for (int c = 0; c < J; ++c)
#pragma unroll
        for (int l = 0; l < kAtOnce; ++l) part[c][i] += w[c][l] * numbers[l];
    }
  }
}

/// `per_group`: packs of B bytes that share a scale.
template <class T, int Bits, int B, int M, int J> __global__ void __launch_bounds__(kThreads, M < kRows ? 2 : 1)
    quant_few_rows_kernel(QuantProduct p, NormedRows<T> normed, int lanes, unsigned ahead, Divider per_group) {
  using Bytes = Weights<B>;
  constexpr int kElements = B * 8 / Bits;
  const int count = int(p.k / kElements), groups = int(p.k / p.group);
  const int64_t row = int64_t(blockIdx.y) * M, rows = p.m - row < M ? p.m - row : M;
  const int64_t columns_here = kThreads / lanes * J, before = blockIdx.x * columns_here, left = p.n - before;
  begin_early(ahead, static_cast<const char*>(p.w) + before * count * B, 0, 1,
              (left < columns_here ? left : columns_here) * count * B);
  const T* const x = normed.x ? normed.make(p.m, p.k) : static_cast<const T*>(p.x) + row * p.k;
  const auto add = [&](int64_t j, int lane, float(&sums)[J][M]) {
    const Bytes* columns[J];
    const float* scales[J];
#pragma unroll
    for (int c = 0; c < J; ++c) {
      const int64_t column = j + c < p.n ? j + c : p.n - 1;
      columns[c] = static_cast<const Bytes*>(p.w) + column * count, scales[c] = p.scale + column * groups;
    }
    each_pack < M<kRows ? kPacks / J : 1, J>(
                    columns, count, lane, lanes,
                    [&](int number, const Bytes(&packs)[J]) {
                      const int group = int(per_group.quotient(uint32_t(number)));
                      float part[J][M] = {};
                      add_packs<Bits>(part, packs, x + int64_t(number) * kElements, p.k, rows);
#pragma unroll
                      for (int c = 0; c < J; ++c) {
                        const float scale = scales[c][group];
#pragma unroll
                        for (int i = 0; i < M; ++i) sums[c][i] += part[c][i] * scale;
                      }
                    });
  };
  each_columns<J, M, float>(p.n, lanes, add, [&](int64_t j, const float(&sums)[M]) {
    const float bias = p.bias ? p.bias[j] : 0;
#pragma unroll
    for (int i = 0; i < M; ++i) {
      if (i >= rows) continue;
      T y = narrow<T>(sums[i] + bias);
      if (p.gelu) y = narrow<T>(math::gelu_tanh(widen(y)));
      static_cast<T*>(p.y)[(row + i) * p.y_row + j * p.y_column] = y;
    }
  });
}

template <int M> __global__ void __launch_bounds__(kThreads) quant_few_integers_kernel(QuantTiles p, int lanes) {
  constexpr int J = M == 1 ? 1 : 2;
  using Words = Pack<uint32_t, 4>;
  const int count = int(p.k / 16);
  const int64_t row = int64_t(blockIdx.y) * M;
  // Beside the sums of the rows: that of the weights.
  const auto add = [&](int64_t j, int lane, int(&sums)[J][M + 1]) {
    const Words* columns[J];
#pragma unroll
    for (int c = 0; c < J; ++c)
      columns[c] = reinterpret_cast<const Words*>(p.w + (j + c < p.n ? j + c : p.n - 1) * p.k);
    each_pack<kPacks / J, J>(columns, count, lane, lanes, [&](int number, const Words(&w)[J]) {
#pragma unroll
      for (int i = 0; i <= M; ++i) {
        Words x{{0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u}};
        if (i < M) x = reinterpret_cast<const Words*>(p.x + (row + i < p.m ? row + i : row) * p.k)[number];
#pragma unroll
        for (int c = 0; c < J; ++c)
#pragma unroll
          for (int l = 0; l < 4; ++l) sums[c][i] = __dp4a(int(x.of[l]), int(w[c].of[l]), sums[c][i]);
      }
    });
  };
  each_columns<J, M + 1, int>(p.n, lanes, add, [&](int64_t j, const int(&sums)[M + 1]) {
#pragma unroll
    for (int i = 0; i < M; ++i)
      if (row + i < p.m)
        FinishedRow(p.finish, row + i).write(j, sums[i], sums[M], (row + i) * p.to.strides[0] + j * p.y_column);
  });
}

/// Threads for a column, and the grid: J columns and M rows to a group.
struct Shape {
  int lanes = 1;
  Grid grid;
};
template <int J, int M> Shape shape_of(Context& ctx, int64_t m, int64_t n, int64_t packs) {
  Shape s;
  for (int each = kPacks / J; each > 0; each /= 2) {
    s.lanes = lanes_for(packs, each, kThreads);
    s.grid = grid_of((n + J - 1) / J * s.lanes, kThreads);
    if (int(s.grid.blocks.x) >= multiprocessors(ctx.device)) break;
  }
  s.grid.blocks.y = unsigned((m + M - 1) / M);
  return s;
}

template <class T, int Bits, int B, int M, int J>
void run(Context& ctx, const QuantProduct& p, const NormedRows<T>& normed) {
  constexpr int kElements = B * 8 / Bits;
  Shape s = shape_of<J, M>(ctx, p.m, p.n, p.k / kElements);
  Grid grid = early(ctx, s.grid);
  if (normed.x)
    grid.shared_bytes = normed.bytes(p.m, p.k), grid.blocks.x = std::min(grid.blocks.x, most_blocks(ctx.device));
  const auto ahead = unsigned(grid.early ? kMostAhead / (kThreads / s.lanes * J * (p.k / kElements) * B) + 1 : 0);
  launch(ctx, "quant_matmul", grid, quant_few_rows_kernel<T, Bits, B, M, J>, p, normed, s.lanes, ahead,
         Divider(uint32_t((p.group + kElements - 1) / kElements)));
}
template <class T, int Bits> void run_bits(Context& ctx, const QuantProduct& p, const NormedRows<T>& normed) {
  constexpr int kElements = 16 * 8 / Bits;
  const bool packs = p.k % kElements == 0 && (p.group % kElements == 0) && reinterpret_cast<uintptr_t>(p.w) % 16 == 0;
  if (!packs) return run<T, Bits, 1, kRows, 1>(ctx, p, normed);
  if (p.m == 1) return run<T, Bits, 16, 1, 1>(ctx, p, normed);
  if (p.m <= 4) return run<T, Bits, 16, 4, 2>(ctx, p, normed);
  run<T, Bits, 16, kRows, 2>(ctx, p, normed);
}
template <class T> bool run_dtype(Context& ctx, const QuantProduct& p, const entry::NormMatmul* norm) {
  const NormedRows<T> normed = norm ? normed_rows<T>(*norm) : NormedRows<T>();
  if (norm && !normed.x) return false;
  p.bits == 8 ? run_bits<T, 8>(ctx, p, normed) : run_bits<T, 4>(ctx, p, normed);
  return true;
}

/// E weights at a time, as numbers of a dtype.
template <class T, int Bits, int E> __global__ void widen_kernel(QuantProduct p, int64_t first, int64_t pieces, T* to) {
  using Bytes = Weights<E * Bits / 8>;
  const int64_t each = p.k / E, groups = p.k / p.group;
  for (const int64_t i : grid_stride(pieces)) {
    const int64_t row = i / each, at = i % each * E;
    const Bytes bytes = static_cast<const Bytes*>(p.w)[first * each + i];
    const float scale = p.scale[(first + row) * groups + at / p.group];
    float w[E];
#pragma unroll
    for (int e = 0; e < E; ++e) w[e] = weight_of<Bits>(bytes, e) * scale;
    if constexpr (E < 8) {
      for (int e = 0; e < E; ++e) to[i * E + e] = narrow<T>(w[e]);
    } else {
#pragma unroll
      for (int e = 0; e < E; e += kPackSize<T>) {
        float part[kPackSize<T>];
#pragma unroll
        for (int l = 0; l < kPackSize<T>; ++l) part[l] = w[e + l];
        store_pack(to + i * E + e, part);
      }
    }
  }
}
template <class T, int Bits> void widen(Context& ctx, const QuantProduct& p, int64_t first, int64_t rows, void* to) {
  const auto run = [&](int64_t pieces, auto kernel) {
    launch(ctx, "quant_matmul", grid_of(pieces), kernel, p, first, pieces, static_cast<T*>(to));
  };
  if (p.k % 8 == 0 && p.group % 8 == 0 && reinterpret_cast<uintptr_t>(p.w) % 8 == 0)
    return run(rows * p.k / 8, widen_kernel<T, Bits, 8>);
  run(rows * p.k * Bits / 8, widen_kernel<T, Bits, 8 / Bits>);
}

}  // namespace

bool quant_few_rows(Context& ctx, const QuantProduct& p, const entry::NormMatmul* norm) {
  if (p.dtype == kFloat32) return run_dtype<float>(ctx, p, norm);
  if (p.dtype == kFloat16) return run_dtype<Half>(ctx, p, norm);
  return run_dtype<BFloat16>(ctx, p, norm);
}

void quant_few_integers(Context& ctx, const QuantTiles& p) {
  const auto run = [&]<int M>() {
    const Shape s = shape_of < M == 1 ? 1 : 2, M > (ctx, p.m, p.n, p.k / 16);
    launch(ctx, "quant_matmul", s.grid, quant_few_integers_kernel<M>, p, s.lanes);
  };
  if (p.m == 1) run.operator()<1>();
  else if (p.m <= 4) run.operator()<4>();
  else run.operator()<kRows>();
}

void widen_weights(Context& ctx, const QuantProduct& p, int64_t first, int64_t rows, void* to) {
  const auto bits = [&]<class T>() {
    p.bits == 8 ? widen<T, 8>(ctx, p, first, rows, to) : widen<T, 4>(ctx, p, first, rows, to);
  };
  if (p.dtype == kFloat32) bits.operator()<float>();
  else if (p.dtype == kFloat16) bits.operator()<Half>();
  else bits.operator()<BFloat16>();
}

}  // namespace tapir::inline v0::cuda_kernels
