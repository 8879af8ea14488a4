#include <cmath>
#include <limits>

#include "../../core/arithmetic.h"
#include "../any.h"
#include "../kernels.h"
#include "../launch.h"
#include "../layout.h"

namespace tapir::inline v0::cuda_kernels {
namespace {

// Note [Scans on a GPU]
// Elements are scanned as double or int64 and rounded once. A block takes a line, or up to 32 that lie side by side, by tiles and carries
// the state from tile to tile. Few long lines are cut into chunks first: one pass finds what each chunk comes to, a block scans those, and
// the scan proper starts each chunk from there. Short lines have a thread each.

constexpr int kThreads = 256, kItems = 4, kMostChunks = kThreads * kItems;

/// Operands: x, out, indices.
struct ScanPlan {
  Layout<3> lines;
  int64_t size, steps[3];
  const void* x;
  void* out;
  int64_t* indices;
  DType dtype, out_dtype;
  int64_t chunk, chunks;
  void* states;  // (line, chunk): what a chunk comes to, later what comes before it; null: one chunk
};

template <class C> struct SumScan {
  using State = C;
  __device__ static State start() { return C(0); }
  __device__ static State of(C x, int64_t) { return x; }
  __device__ static State join(State a, State b) { return wrap_add(a, b); }
};
template <class C> struct ProductScan {
  using State = C;
  __device__ static State start() { return C(1); }
  __device__ static State of(C x, int64_t) { return x; }
  __device__ static State join(State a, State b) { return wrap_mul(a, b); }
};
struct LogSumScan {
  using State = double;
  __device__ static State start() { return -std::numeric_limits<double>::infinity(); }
  __device__ static State of(double x, int64_t) { return x; }
  __device__ static State join(State a, State b) { return math::logaddexp(a, b); }
};
/// The extreme so far and where it stands: the last of equal ones, the last NaN.
template <class C, bool kLargest> struct ExtremeScan {
  struct State {
    C best;
    int64_t at;  // -1: none yet
  };
  __device__ static State start() { return {C(0), -1}; }
  __device__ static State of(C x, int64_t i) { return {x, i}; }
  __device__ static State join(State a, State b) {
    if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
    const bool wins = kLargest ? b.best >= a.best : b.best <= a.best;
    return wins || b.best != b.best ? b : a;  // nothing but a NaN wins over one
  }
};

template <class Op, class C>
__device__ typename Op::State load_state(const ScanPlan& p, const int64_t (&at)[3], int64_t i) {
  return Op::of(load_any<C>(p.x, at[0] + i * p.steps[0], p.dtype), i);
}
template <class Op>
__device__ void store_state(const ScanPlan& p, const int64_t (&at)[3], int64_t i, const typename Op::State& s) {
  if constexpr (requires { s.best; }) {
    store_any(p.out, at[1] + i * p.steps[1], p.out_dtype, s.best);
    p.indices[at[2] + i * p.steps[2]] = s.at;
  } else {
    store_any(p.out, at[1] + i * p.steps[1], p.out_dtype, s);
  }
}

/// What the threads before this one bring together, and what all of them do: of the block, or of this column where it has several.
/// `shared` holds a value for each thread.
template <class Op>
__device__ typename Op::State block_scan(typename Op::State v, typename Op::State* shared, typename Op::State& total) {
  using State = typename Op::State;
  const bool alone = blockDim.x == 1;
  const int lane = int(threadIdx.y) % 32, part = int(threadIdx.y) / (alone ? 32 : 1);
  for (int d = 1; d < 32 && alone; d *= 2) {
    const State before = shuffle_up(v, unsigned(d));
    if (lane >= d) v = Op::join(before, v);
  }
  if (!alone || lane == 31) shared[part * blockDim.x + threadIdx.x] = v;
  __syncthreads();
  State prefix = Op::start();
  total = Op::start();
  for (int w = 0; w < int(blockDim.y) / (alone ? 32 : 1); ++w) {
    if (w == part) prefix = total;
    total = Op::join(total, shared[w * blockDim.x + threadIdx.x]);
  }
  __syncthreads();
  if (!alone) return prefix;
  const State before = shuffle_up(v, 1);
  return lane == 0 ? prefix : Op::join(prefix, before);
}

/// One chunk of blockDim.x lines to a block. kTotals: only what the chunk comes to.
template <class Op, class C, bool kTotals> __global__ void scan_lines(const ScanPlan p) {
  using State = typename Op::State;
  __shared__ State shared[kThreads];
  const int64_t groups = (p.lines.numel + blockDim.x - 1) / blockDim.x;
  for (int64_t job = blockIdx.x; job < groups * p.chunks; job += gridDim.x) {
    const int64_t line = job / p.chunks * blockDim.x + threadIdx.x, first = job % p.chunks * p.chunk;
    const int64_t last = first + p.chunk < p.size ? first + p.chunk : p.size;
    const bool live = line < p.lines.numel;
    State* const state = static_cast<State*>(p.states) + line * p.chunks + job % p.chunks;
    int64_t at[3] = {};
    if (live) p.lines.offsets(line, at);
    State carry = !kTotals && p.states && live ? *state : Op::start();
    for (int64_t tile = first; tile < last; tile += int64_t(blockDim.y) * kItems) {
      State s[kItems], sum = Op::start(), total;
      const int64_t from = tile + int64_t(threadIdx.y) * kItems, end = live ? last : 0;
#pragma unroll
      for (int j = 0; j < kItems; ++j) {
        if (from + j < end) sum = Op::join(sum, load_state<Op, C>(p, at, from + j));
        s[j] = sum;
      }
      const State before = Op::join(carry, block_scan<Op>(sum, shared, total));
#pragma unroll
      for (int j = 0; j < kItems; ++j)
        if (!kTotals && from + j < end) store_state<Op>(p, at, from + j, Op::join(before, s[j]));
      carry = Op::join(carry, total);
    }
    if (kTotals && live && threadIdx.y == 0) *state = carry;
  }
}

/// A block for each line: the states of its chunks become those of all before them.
template <class Op> __global__ void scan_chunks(const ScanPlan p) {
  using State = typename Op::State;
  __shared__ State shared[kThreads];
  for (int64_t line = blockIdx.x; line < p.lines.numel; line += gridDim.x) {
    State* const states = static_cast<State*>(p.states) + line * p.chunks;
    State s[kItems], sum = Op::start(), total;
    const int from = int(threadIdx.y) * kItems;
    for (int j = 0; j < kItems; ++j) {
      s[j] = sum;
      if (from + j < p.chunks) sum = Op::join(sum, states[from + j]);
    }
    const State before = block_scan<Op>(sum, shared, total);
    for (int j = 0; j < kItems; ++j)
      if (from + j < p.chunks) states[from + j] = Op::join(before, s[j]);
  }
}

template <class Op, class C> __global__ void scan_short(const ScanPlan p) {
  for (const int64_t line : grid_stride(p.lines.numel)) {
    int64_t at[3];
    p.lines.offsets(line, at);
    typename Op::State sum = Op::start();
    for (int64_t i = 0; i < p.size; ++i) {
      sum = Op::join(sum, load_state<Op, C>(p, at, i));
      store_state<Op>(p, at, i, sum);
    }
  }
}

template <class Op, class C> void run(Context& ctx, ScanPlan p) {
  const int64_t lines = p.lines.numel;
  if (p.size <= 32) return launch(ctx, "scan", grid_of(lines, 128), scan_short<Op, C>, p);
  int across = 1;
  if (p.lines.rank > 0 && std::abs(p.lines.strides[0][0]) < std::abs(p.steps[0]) && lines >= 8)
    while (across < 32 && across < lines) across *= 2;
  const int64_t groups = (lines + across - 1) / across, tile = kThreads / across * kItems,
                wanted = std::min<int64_t>({p.size / (4 * tile), (across > 1 ? 1024 : 512) / groups, kMostChunks});
  const auto blocks = [](int64_t n, int columns) {
    Grid grid = grid_of(n, 1);
    return grid.threads = dim3(unsigned(columns), unsigned(kThreads / columns)), grid;
  };
  if (wanted > 1) {
    p.chunk = ((p.size + wanted - 1) / wanted + tile - 1) / tile * tile;
    p.chunks = (p.size + p.chunk - 1) / p.chunk;
    p.states = ctx.scratch_of<typename Op::State>(lines * p.chunks);
    launch(ctx, "scan", blocks(groups * p.chunks, across), scan_lines<Op, C, true>, p);
    launch(ctx, "scan", blocks(lines, 1), scan_chunks<Op>, p);
  }
  launch(ctx, "scan", blocks(groups * p.chunks, across), scan_lines<Op, C, false>, p);
}

template <class C> void scan_as(Context& ctx, const ScanPlan& p, ScanOp op) {
  switch (op) {
    case ScanOp::CumSum: return run<SumScan<C>, C>(ctx, p);
    case ScanOp::CumProd: return run<ProductScan<C>, C>(ctx, p);
    case ScanOp::CumMax: return run<ExtremeScan<C, true>, C>(ctx, p);
    case ScanOp::CumMin: return run<ExtremeScan<C, false>, C>(ctx, p);
    case ScanOp::LogCumSumExp:
      if constexpr (std::is_same_v<C, double>) return run<LogSumScan, C>(ctx, p);
  }
}

}  // namespace

void scan(Context& ctx, const entry::Scan& c) {
  const TensorView &out = c.out, &indices = c.indices, &x = c.x;
  const ScanParams& params = c.params;
  if (x.numel() == 0) return;
  ScanPlan p{};
  const TensorView* const views[] = {&x, &out, &indices};
  TensorView others[3];
  for (int k = 0; k < 3; ++k) {
    others[k] = *views[k];
    p.steps[k] = views[k]->rank ? views[k]->strides[params.dim] : 0;
    if (views[k]->rank) others[k].sizes[params.dim] = 1;
  }
  p.lines = layout_of<3>({&others[0], &others[1], &others[2]});
  p.size = x.rank ? x.sizes[params.dim] : 1;
  p.x = x.data, p.out = out.data, p.indices = indices.as<int64_t>(), p.dtype = x.dtype, p.out_dtype = out.dtype;
  p.chunk = p.size, p.chunks = 1;
  if (is_floating(x.dtype) || is_floating(out.dtype)) scan_as<double>(ctx, p, params.op);
  else scan_as<int64_t>(ctx, p, params.op);
}

}  // namespace tapir::inline v0::cuda_kernels
