#pragma once
#include <cuda_pipeline_primitives.h>
#include <early_launch.h>
#include <warp_matrix.h>

#include <algorithm>

#include "../kernel.h"
#include "../launch.h"

// Note [Recurrent layers on a GPU]
// What depends on the inputs alone is one GEMM outside (ops/recurrent/rnn.cpp). Here a step is one launch, of an early kernel (Note [Early
// launches]). A block makes all gates of some units: while the step before ends, it brings their weights into shared memory, where each
// thread finds what it brought itself, and what it needs of the inputs into registers. Then it waits, multiplies the state, which is small
// and comes from the shared cache, by these weights, and makes gates, state and output of the sums. Its warps share out what is summed over,
// and their sums are added in a fixed order. Products are those of tensor cores in 16 bits, of registers otherwise.
// The state of a step is its output: the next step reads it there. In the backward pass a step's gradients of gates are the state, and the
// transposed weights the weights; dW is a GEMM over all steps, or two: of the first step's state before and of the others', which lie in y.
// Some steps are a product of the library and a kernel of what is left: where the product is so large that its rate counts for more than a
// launch, where rows of the state are no whole packs of 16 bytes, and 16 bits without such tensor cores.
namespace tapir::inline v0::cuda_kernels {

constexpr int kStepThreads = 256;

/// Rows of a state one step before: of the step's own output where it has the row, else of where the layer began.
template <class T> struct Before {
  const T* inside;
  int64_t rows, stride;  // of `inside`
  const T* start;
  __device__ T at(int64_t row, int64_t unit, int64_t width) const {
    return row < rows ? inside[row * stride + unit] : start[row * width + unit];
  }
};

/// What a step multiplies: rows of a state by rows of weights, neighbours along what is summed over. Places in both fit 32 bits.
template <class T> struct StateProduct {
  Before<T> state;   // without gaps; without a start, rows beyond `inside` have no sums
  int64_t rows;      // of the step
  const T* weights;  // (gates units, depth)
  int64_t units, depth;
  const Compute<T>* sums = nullptr;  // (rows, gates units), made by the library; null: the kernel makes them
  int held = 0;                      // how many rounds of weights stay in shared memory

  __host__ __device__ int64_t inside() const { return state.rows < rows ? state.rows : rows; }
  __host__ __device__ bool has_sums() const { return rows > 0 && (state.start || state.rows > 0); }
  /// Pieces of up to R rows of one source.
  __host__ __device__ int64_t pieces(int R) const { return (inside() + R - 1) / R + (rows - inside() + R - 1) / R; }
};
/// One of them.
template <class T> struct StatePiece {
  int64_t first;
  int count;
  const T* state;  // null: no sums
  __device__ StatePiece(const StateProduct<T>& p, int R, int64_t i) {
    const int64_t inside = p.inside(), before = (inside + R - 1) / R;
    const bool is_inside = i < before;
    first = is_inside ? i * R : inside + (i - before) * R;
    const int64_t left = (is_inside ? inside : p.rows) - first;
    count = int(left < R ? left : R);
    const T* const source = is_inside ? p.state.inside : p.state.start;
    state = source ? source + first * p.depth : nullptr;
  }
};

/// How a block makes sums of R rows and U units of G gates. Of what is summed over, a warp takes every kParts-th chunk; a round is one chunk
/// of each. kTensor: lanes hold packs as tensor cores want them, but for the order of what is summed over, which is the same on both sides.
/// Else 8 lanes side by side share a chunk, and lanes 8 apart have columns of their own.
template <class T, int R, int G, int U, bool kTensor> class StateTile {
 public:
  using Sum = Compute<T>;
  static constexpr int kRows = R, kGates = G, kUnits = U, kColumns = G * U, P = kPackSize<T>;
  static constexpr int kApart = kColumns == 16 ? 4 : 8;  // columns of a thread
  static constexpr int kPacks = kTensor ? kColumns / 8 : kColumns / kApart, kParts = kTensor ? 8 : 32 / kApart;
  static constexpr int kChunk = kTensor ? 32 : 8 * P, kRound = kChunk * kParts;
  static constexpr int64_t kRoundBytes = int64_t(kPacks) * kStepThreads * 16,
                           kSumBytes = int64_t(kParts) * R * kColumns * int64_t(sizeof(Sum));

  __device__ StateTile(const StateProduct<T>& p, int64_t first_unit)
      : p_(p), depth_(int(p.depth)), lane_(int(threadIdx.x) % 32), warp_(int(threadIdx.x) / 32),
        held_(dynamic_shared<Pack<T, P>>()), shared_(reinterpret_cast<Sum*>(held_ + p.held * kPacks * kStepThreads)) {
    const int units = int(p.units);
#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      const int unit = int(first_unit) + column(j) % U;  // beyond the last one: sums that nobody wants
      weights_[j] = (column(j) / U * units + (unit < units ? unit : units - 1)) * depth_;
    }
  }
  /// Queues copies of the first rounds of weights.
  __device__ void hold() {
    for (int round = 0; round < p_.held; ++round)
#pragma unroll
      for (int j = 0; j < kPacks; ++j)
        copy_async(held_ + (round * kPacks + j) * kStepThreads + threadIdx.x,
                   k_of(round) < depth_ ? weight(j) + k_of(round) : p_.weights, k_of(round) < depth_);
    __pipeline_commit();
  }
  /// Leaves the sums of the parts in shared memory.
  __device__ __forceinline__ void multiply(const StatePiece<T>& piece) {
    __syncthreads();  // sums before are used up
    if constexpr (kTensor) multiply_by_matrices(piece);
    else multiply_by_rows(piece);
    __syncthreads();
  }
  __device__ __forceinline__ Sum sum(int row, int column) const {
    Sum sum = shared_[place(0, row, column)];
#pragma unroll
    for (int part = 1; part < kParts; ++part) sum += shared_[place(part, row, column)];
    return sum;
  }

 private:
  /// Eights of columns change places by rows, so that a warp meets no bank twice.
  __device__ static int place(int part, int row, int column) {
    return (part * R + row) * kColumns + (kColumns % 32 == 0 ? column ^ ((row & 3) << 3) : column);
  }
  __device__ int column(int j) const {
    return kTensor ? 8 * j + lane_ / 4 : j * kApart + warp_ * 4 % kApart + lane_ / 8;
  }
  /// Where the thread's packs of a round begin.
  __device__ int k_of(int round) const {
    if constexpr (kTensor) return round * kRound + warp_ * kChunk + lane_ % 4 * 8;
    else return round * kRound + warp_ * 4 / kApart * kChunk + lane_ % 8 * P;
  }
  __device__ const T* weight(int j) const { return p_.weights + weights_[j]; }
  __device__ __forceinline__ Pack<T, P> pack_at(const T* row, int k) const {
    return k < depth_ ? *reinterpret_cast<const Pack<T, P>*>(row + k) : Pack<T, P>{};
  }
  __device__ __forceinline__ Pack<T, P> weights(int round, int j) const {
    return round < p_.held ? held_[(round * kPacks + j) * kStepThreads + threadIdx.x] : pack_at(weight(j), k_of(round));
  }

  /// Of a row, or the last one: sums beyond it are of no use.
  __device__ __forceinline__ Pack<T, P> state(const StatePiece<T>& piece, int row, int k) const {
    return pack_at(piece.state + (row < piece.count ? row : piece.count - 1) * depth_, k);
  }

  __device__ __forceinline__ void multiply_by_matrices(const StatePiece<T>& piece) {
    constexpr int kAhead = 64 / R;  // rounds whose state is asked for at once
    struct Words {
      uint32_t of[4];
    };
    const auto words = [](const Pack<T, P>& pack) {
      Words w;
      memcpy(&w, &pack, sizeof w);
      return w;
    };
    float sums[R / 16][kPacks][4] = {};
#pragma unroll 1
    for (int round = 0; round * kRound < depth_; round += kAhead) {
      Words left[kAhead][R / 8];
#pragma unroll
      for (int a = 0; a < kAhead; ++a)
#pragma unroll
        for (int i = 0; i < R / 8; ++i) left[a][i] = words(state(piece, 8 * i + lane_ / 4, k_of(round + a)));
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        if ((round + a) * kRound >= depth_) break;
#pragma unroll
        for (int j = 0; j < kPacks; ++j) {
          __syncwarp();  // one load of weights at once: more take registers that the state needs
          const Words right = words(weights(round + a, j));
#pragma unroll
          for (int i = 0; i < R / 16; ++i)
#pragma unroll
            for (int half = 0; half < 4; half += 2) {
              const Words &upper = left[a][2 * i], &lower = left[a][2 * i + 1];
              const uint32_t four[4] = {upper.of[half], lower.of[half], upper.of[half + 1], lower.of[half + 1]};
              multiply_add<T>(sums[i][j], four, right.of[half], right.of[half + 1]);
            }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < R / 16; ++i)
#pragma unroll
      for (int j = 0; j < kPacks; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<Pack<float, 2>*>(shared_ + place(warp_, 16 * i + 8 * half + lane_ / 4, 8 * j) +
                                             lane_ % 4 * 2) = {{sums[i][j][2 * half], sums[i][j][2 * half + 1]}};
  }

  __device__ __forceinline__ void multiply_by_rows(const StatePiece<T>& piece) {
    Sum sums[R][kPacks] = {};
#pragma unroll 1  // more would hoist loads until registers run out
    for (int round = 0; round * kRound < depth_; ++round) {
      Pack<T, P> right[kPacks];
#pragma unroll
      for (int j = 0; j < kPacks; ++j) right[j] = weights(round, j);
#pragma unroll
      for (int row = 0; row < R; ++row) {
        const Pack<T, P> left = state(piece, row, k_of(round));
#pragma unroll
        for (int j = 0; j < kPacks; ++j)
#pragma unroll
          for (int l = 0; l < P; ++l) sums[row][j] += widen(left.of[l]) * widen(right[j].of[l]);
      }
    }
    join_rows<4>(sums), join_rows<2>(sums), join_rows<1>(sums);
#pragma unroll
    for (int row = 0; row < R / 8; ++row)
#pragma unroll
      for (int j = 0; j < kPacks; ++j)
        shared_[place(warp_ * 4 / kApart, lane_ % 8 * (R / 8) + row, column(j))] = sums[row][j];
  }

  /// Of 8 lanes each adds up other rows: half of those that it has go to the lane whose number differs in that bit.
  template <int kBit> __device__ __forceinline__ void join_rows(Sum (&sums)[R][kPacks]) {
    constexpr int kHalf = R / 8 * kBit;
    const bool upper = lane_ & kBit;
#pragma unroll
    for (int row = 0; row < kHalf; ++row)
#pragma unroll
      for (int j = 0; j < kPacks; ++j) {
        const Sum first = sums[row][j], second = sums[row + kHalf][j];
        sums[row][j] = (upper ? second : first) + shuffle_xor(upper ? first : second, kBit);
      }
  }

  const StateProduct<T>& p_;
  const int depth_, lane_, warp_;
  Pack<T, P>* const held_;
  Sum* const shared_;
  int weights_[kPacks];  // where their rows begin
};

// Blocks beside each other on a multiprocessor: before 9.0 its shared memory holds one.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
constexpr int kStepBlocks = 2;
#else
constexpr int kStepBlocks = 1;
#endif

/// A step in one launch. Unit: what becomes of one unit of one row; load() takes what was there before the step before began, load_state() the
/// rest, finish() the sums.
template <class Unit, class Tile> __global__ void __launch_bounds__(kStepThreads, kStepBlocks)
    rnn_step(const typename Unit::Step s) {
  using T = typename Unit::Element;
  constexpr int kUnits = (Tile::kRows * Tile::kUnits + kStepThreads - 1) / kStepThreads;  // of a thread
  const int64_t first_unit = int64_t(blockIdx.x) * Tile::kUnits, pieces = s.product.pieces(Tile::kRows);
  Tile tile(s.product, first_unit);
  Unit units[kUnits];
  const auto each = [&](const StatePiece<T>& piece, auto&& use) {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const int e = i * kStepThreads + int(threadIdx.x), row = e / Tile::kUnits, unit = e % Tile::kUnits;
      if (row < piece.count && first_unit + unit < s.product.units)
        use(units[i], row, unit, piece.first + row, first_unit + unit);
    }
  };
  const auto load = [&](const StatePiece<T>& piece) {
    each(piece, [&](Unit& u, int, int, int64_t row, int64_t unit) { u.load(s, row, unit); });
  };
  tile.hold();
  load(StatePiece<T>(s.product, Tile::kRows, blockIdx.y));
  wait_for_previous();
  let_next_begin();  // behind the wait: Note [Early launches]
  __pipeline_wait_prior(0);
  for (int64_t i = blockIdx.y; i < pieces; i += gridDim.y) {
    const StatePiece<T> piece(s.product, Tile::kRows, i);
    if (i != blockIdx.y) load(piece);
    each(piece, [&](Unit& u, int, int, int64_t row, int64_t unit) { u.load_state(s, row, unit); });
    if (piece.state) tile.multiply(piece);
    each(piece, [&](Unit& u, int row, int unit, int64_t to_row, int64_t to_unit) {
      typename Tile::Sum sums[Tile::kGates] = {};
#pragma unroll
      for (int g = 0; g < Tile::kGates; ++g)
        if (piece.state) sums[g] = tile.sum(row, g * Tile::kUnits + unit);
      u.finish(s, to_row, to_unit, sums);
    });
  }
}

/// What is left of a step whose sums the library made.
template <class Unit> __global__ void rnn_cells(const typename Unit::Step s) {
  constexpr int G = Unit::kSums;
  for (const int64_t i : grid_stride(s.product.rows * s.product.units)) {
    const int64_t row = i / s.product.units, unit = i % s.product.units;
    Unit u;
    u.load(s, row, unit), u.load_state(s, row, unit);
    Compute<typename Unit::Element> sums[G];
#pragma unroll
    for (int g = 0; g < G; ++g) sums[g] = s.product.sums[(row * G + g) * s.product.units + unit];
    u.finish(s, row, unit, sums);
  }
}

/// Queues a step. first: nothing is known of the kernels before it.
template <class Unit, bool kTensor>
void launch_step(const Context& ctx, const char* op, typename Unit::Step s, bool first) {
  using T = typename Unit::Element;
  constexpr int kRows = sizeof(T) == 8                ? 8
                        : kTensor && !Unit::kBackward ? 32
                                                      : 16,
                kUnits = Unit::kBackward    ? 16
                         : Unit::kSums == 1 ? 32
                                            : 8;
  using Tile = StateTile<T, kRows, Unit::kSums, kUnits, kTensor>;
  const int64_t most = compute_capability(ctx.device) >= 80 ? 96 << 10 : 48 << 10;  // bytes
  if (s.product.has_sums())
    s.product.held = int(
        std::min((s.product.depth + Tile::kRound - 1) / Tile::kRound, (most - Tile::kSumBytes) / Tile::kRoundBytes));
  const int64_t across = (s.product.units + Tile::kUnits - 1) / Tile::kUnits,
                blocks = (kTensor && compute_capability(ctx.device) >= 90 ? 2 : 1) *
                         int64_t(multiprocessors(ctx.device)),  // each brings its weights for itself
      down = std::min(s.product.pieces(Tile::kRows), std::max<int64_t>(1, blocks / across));
  launch(ctx, op,
         Grid{dim3(unsigned(across), unsigned(down)), dim3(kStepThreads),
              size_t(s.product.held * Tile::kRoundBytes + Tile::kSumBytes), !first && begins_early(ctx.device)},
         rnn_step<Unit, Tile>, s);
}
/// The same by tensor cores where T has them.
template <class Unit> void launch_step(const Context& ctx, const char* op, const typename Unit::Step& s, bool first) {
  launch_step<Unit, sizeof(typename Unit::Element) == 2>(ctx, op, s, first);
}

}  // namespace tapir::inline v0::cuda_kernels
